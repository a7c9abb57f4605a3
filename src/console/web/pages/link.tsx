// The page of a one-time link: the first start, an invitation, a recovery, a confirmed address.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { AccountRole } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import {
  type Link,
  LinkPurpose,
  SignInService,
} from "../../../../gen/gateway/people/v1/sign_in_pb.ts";
import { type CallError, call, toCallError, useCall } from "../api.ts";
import { roleName } from "../names.ts";
import { leaveFor } from "../oidc.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { Form, fieldError, TextField } from "../parts/form.tsx";
import { Failed, Skeleton } from "../parts/view.tsx";
import { createPasskey } from "../passkeys.ts";
import { go, hrefOf } from "../router.ts";
import { currentSession, loadSession, preferredAccount } from "../session.ts";
import { words } from "../words.ts";
import { Door } from "./sign-in.tsx";
import { Steps } from "./start.tsx";

type LinkPageProps = {
  /** The secret of the link, which is in no address any more. */
  readonly token: string;
  /** Opens the link once more. */
  readonly retry: () => void;
};

export function LinkPage({ token, retry }: LinkPageProps): JSX.Element {
  const [link, setLink] = useState<Link>();
  const [error, setError] = useState<CallError>();
  const [isOther, setOther] = useState(false);
  useEffect(() => {
    // Who is signed in already may take an invitation as he is.
    loadSession().catch(() => undefined);
    call(SignInService.method.beginPasskey, { linkToken: token }).then(
      (answer) => setLink(answer.link),
      (thrown: unknown) => setError(toCallError(thrown)),
    );
  }, [token]);
  if (error && error.reason !== "not_found")
    return (
      <Door title={words.links.badTitle}>
        <Failed error={error} retry={retry} />
      </Door>
    );
  if (error)
    return (
      <Door title={words.links.badTitle} lead={words.links.bad}>
        <LinkButton href="/console/sign-in">{words.doors.toSignIn}</LinkButton>
      </Door>
    );
  if (!link) return <Door title="">{<Skeleton rows={3} />}</Door>;
  if (link.purpose === LinkPurpose.EMAIL) return <ConfirmAddress token={token} link={link} />;
  const { title, lead } = textsOf(link);
  const login = currentSession.value?.person?.login;
  const isMine = link.purpose === LinkPurpose.INVITATION && login !== undefined && !isOther;
  const content = isMine ? (
    <TakeInvitation token={token} link={link} login={login} onOther={() => setOther(true)} />
  ) : (
    <ChooseWay token={token} link={link} />
  );
  // People who will make keys see what follows.
  const isStart = link.purpose !== LinkPurpose.RECOVERY && link.role !== AccountRole.VIEWER;
  if (isStart && !isMine)
    return (
      <Steps title={title} lead={lead} step={1}>
        {content}
      </Steps>
    );
  return (
    <Door title={title} lead={lead}>
      {content}
    </Door>
  );
}

function textsOf({ purpose, accountName, role }: Link): { title: string; lead: string } {
  const { links } = words;
  switch (purpose) {
    case LinkPurpose.OWNER:
      return { title: links.owner, lead: links.ownerLead };
    case LinkPurpose.RECOVERY:
      return { title: links.recovery, lead: links.recoveryLead };
    case LinkPurpose.SIGN_UP:
      return { title: links.signUp, lead: links.signUpLead };
    default:
      return {
        title: links.invitation(accountName),
        lead: links.invitationLead(links.roles[roleName(role)]),
      };
  }
}

/** Continues with the first key, if the person may make keys, or with the console. */
async function enter({ purpose, accountName, role }: Link): Promise<void> {
  const { accounts } = await loadSession();
  const joined = accounts.find((one) => one.name === accountName && one.role === role);
  const accountId = joined?.accountId ?? preferredAccount();
  if (accountId === undefined) return go("/console/", { replace: true });
  const isStart = purpose !== LinkPurpose.RECOVERY && role !== AccountRole.VIEWER;
  go(hrefOf(accountId, isStart ? "start" : ""), { replace: true });
}

type WayProps = { token: string; link: Link };

/** Asks before it confirms: a program that opens the links of mails must not. */
function ConfirmAddress({ token, link }: WayProps): JSX.Element {
  const [isDone, setDone] = useState(false);
  const confirm = async () => {
    await call(SignInService.method.confirmEmail, { token });
    // The person who is signed in here may have another address now.
    await loadSession().catch(() => undefined);
    setDone(true);
  };
  const { links, doors } = words;
  return isDone ? (
    <Door title={links.emailDone} lead={links.emailDoneLead(link.login)}>
      <LinkButton href="/console/">{doors.toSignIn}</LinkButton>
    </Door>
  ) : (
    <Door title={links.email} lead={links.emailLead(link.login)}>
      <Button kind="main" onClick={confirm}>
        {links.emailConfirm}
      </Button>
    </Door>
  );
}

function TakeInvitation(props: WayProps & { login: string; onOther: () => void }): JSX.Element {
  const { token, link, login, onOther } = props;
  const take = async () => {
    await call(SignInService.method.redeemLink, { token });
    await enter(link);
  };
  return (
    <div class="ways stack">
      <p>{words.links.asYou(login)}</p>
      <Button kind="main" onClick={take}>
        {words.links.take(link.accountName)}
      </Button>
      <Button kind="quiet" onClick={onOther}>
        {words.links.other}
      </Button>
    </div>
  );
}

function ChooseWay({ token, link }: WayProps): JSX.Element {
  const isSignUp = link.purpose === LinkPurpose.SIGN_UP;
  const isRecovery = link.purpose === LinkPurpose.RECOVERY;
  const isNew = !isSignUp && !isRecovery;
  const begin = useCall(SignInService.method.beginSignIn, {});
  // Where everybody may sign up, an address is a login of its holder alone.
  const isOpen = link.purpose === LinkPurpose.INVITATION && begin.data?.signUp === true;
  const [login, setLogin] = useState(link.login);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [takesPassword, setTakesPassword] = useState(false);

  const finish = async (way: { passkeyAnswerJson?: string; password?: string }) => {
    if (isSignUp)
      await call(SignInService.method.confirmEmail, { token, name: name.trim(), ...way });
    else
      await call(SignInService.method.redeemLink, {
        token,
        ...(isNew && { login: login.trim(), name: name.trim() }),
        ...way,
      });
    setPassword("");
    await enter(link);
  };
  const send = async () => {
    if (isNew && login.trim() === "") throw fieldError("login", words.links.loginMissing);
    if (takesPassword) return finish({ password });
    const { passkeyOptionsJson } = await call(SignInService.method.beginPasskey, {
      linkToken: token,
      login: isNew ? login.trim() : "",
    });
    return finish({ passkeyAnswerJson: await createPasskey(passkeyOptionsJson) });
  };
  const withProvider = (provider: string) => async () => {
    const { authorizationUrl } = await call(SignInService.method.beginOidc, {
      provider,
      linkToken: token,
    });
    leaveFor(authorizationUrl, "/console/");
  };
  return (
    <div class="ways stack">
      <Form
        submit={takesPassword ? words.links.withPassword : words.links.createPasskey}
        fields={["login", "name", "password"]}
        onSubmit={send}
      >
        <div class="fields stack">
          <TextField
            name="login"
            label={words.links.login}
            {...(isNew && { hint: isOpen ? words.links.loginName : words.links.loginNew })}
            autocomplete="username"
            value={login}
            onInput={setLogin}
            isFixed={!isNew}
            isFirst={isNew}
          />
          {!isRecovery && (
            <TextField
              name="name"
              label={words.links.name}
              hint={words.links.nameHint}
              autocomplete="name"
              value={name}
              onInput={setName}
            />
          )}
          {takesPassword ? (
            <TextField
              name="password"
              type="password"
              label={words.links.password}
              hint={words.links.passwordHint}
              autocomplete="new-password"
              value={password}
              onInput={setPassword}
            />
          ) : (
            <p class="hint">{words.links.passkeyHint}</p>
          )}
        </div>
      </Form>
      {!isSignUp &&
        (begin.data?.providers ?? []).map((provider) => (
          <Button key={provider.name} onClick={withProvider(provider.name)}>
            {words.doors.continueWith(provider.title || provider.name)}
          </Button>
        ))}
      {!link.needsPasskey && (
        <Button kind="quiet" onClick={() => setTakesPassword(!takesPassword)}>
          {takesPassword ? words.links.createPasskey : words.links.usePassword}
        </Button>
      )}
    </div>
  );
}
