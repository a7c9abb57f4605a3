import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { SignInService } from "../../../../gen/gateway/people/v1/sign_in_pb.ts";
import { call, useCall } from "../api.ts";
import { LinkButton } from "../parts/button.tsx";
import { Form, TextField } from "../parts/form.tsx";
import { Brand } from "../parts/icon.tsx";
import { TroubleLine } from "../parts/trouble.tsx";
import { Skeleton } from "../parts/view.tsx";
import { Ways } from "../parts/ways.tsx";
import { address, go } from "../router.ts";
import { loadSession } from "../session.ts";
import { words } from "../words.ts";

type DoorProps = { title: string; lead?: string; children?: ComponentChildren };

/** The frame of the pages before the sign-in. */
export function Door({ title, lead, children }: DoorProps): JSX.Element {
  useEffect(() => {
    document.title = title ? words.common.documentTitle(title) : words.common.product;
  }, [title]);
  return (
    <>
      <TroubleLine />
      <main class="door stack">
        <p class="brand">
          <Brand />
          {words.common.product}
        </p>
        <div>
          {title && <h1>{title}</h1>}
          {lead && <p class="muted">{lead}</p>}
        </div>
        {children}
      </main>
    </>
  );
}

/** Where a page before the sign-in continues: an address of the console only. */
function readNext(): string {
  const next = new URLSearchParams(address.value.search).get("next") ?? "";
  return next.startsWith("/console/") ? next : "/console/";
}

/** `problem`: what a provider answered. */
export function SignIn({ problem }: { problem?: string }): JSX.Element {
  const begin = useCall(SignInService.method.beginSignIn, {});
  const next = readNext();
  const enter = async () => {
    await loadSession();
    go(next, { replace: true });
  };
  const known = words.doors.problems;
  return (
    <Door title={words.doors.signIn} lead={words.doors.signInLead}>
      {problem && (
        <p class="problem" role="alert">
          {known[problem] ?? known.sign_in_failed}
        </p>
      )}
      <Ways purpose="page" next={next} onDone={enter} />
      {begin.data?.signUp && (
        <p class="muted">
          {words.doors.noAccountYet} <a href="/console/sign-up">{words.doors.signUp}</a>
        </p>
      )}
    </Door>
  );
}

export function SignUp(): JSX.Element {
  const begin = useCall(SignInService.method.beginSignIn, {});
  const [email, setEmail] = useState("");
  const [isSent, setSent] = useState(false);
  const toSignIn = <LinkButton href="/console/sign-in">{words.doors.toSignIn}</LinkButton>;
  if (isSent)
    return (
      <Door title={words.doors.linkSentTitle} lead={words.doors.linkSent(email)}>
        {toSignIn}
      </Door>
    );
  if (begin.isLoading) return <Door title={words.doors.signUp}>{<Skeleton rows={2} />}</Door>;
  if (begin.data && !begin.data.signUp)
    return (
      <Door title={words.doors.signUpClosedTitle} lead={words.doors.signUpClosed}>
        {toSignIn}
      </Door>
    );
  const send = async () => {
    await call(SignInService.method.signUp, { email });
    setSent(true);
  };
  return (
    <Door title={words.doors.signUp} lead={words.doors.signUpLead}>
      <Form submit={words.doors.sendLink} fields={["email"]} onSubmit={send}>
        <TextField
          name="email"
          type="email"
          label={words.doors.email}
          autocomplete="email"
          value={email}
          onInput={setEmail}
          isFirst
        />
      </Form>
      {toSignIn}
    </Door>
  );
}
