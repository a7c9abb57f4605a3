// The ways to sign in or to confirm who somebody is: on the page of the sign-in, and in the dialogs
// that ask in place.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type CellChoice, SignInService } from "../../../../gen/gateway/people/v1/sign_in_pb.ts";
import { CallError, call, toCallError, useCall } from "../api.ts";
import { leaveFor, openBeside } from "../oidc.ts";
import { usePasskey } from "../passkeys.ts";
import { address } from "../router.ts";
import { session } from "../session.ts";
import { words } from "../words.ts";
import { Button } from "./button.tsx";
import { Form, TextField } from "./form.tsx";

type WaysProps = {
  /** `page`: the whole page goes to a provider. Otherwise it is opened in a window. */
  purpose: "page" | "again" | "confirm";
  /** Where to continue after the page went to a provider. */
  next?: string;
  onDone: () => Promise<void>;
};

export function Ways({ purpose, next = "/console/", onDone }: WaysProps): JSX.Element {
  const isConfirm = purpose === "confirm";
  const begin = useCall(SignInService.method.beginSignIn, {});
  const [problem, setProblem] = useState<CallError>();
  const [takesPassword, setTakesPassword] = useState(false);
  const left = useRef(new AbortController());
  useEffect(() => () => left.current.abort(), []);

  const attempt = (work: () => Promise<void>) => async () => {
    setProblem(undefined);
    try {
      await work();
      await onDone();
    } catch (thrown) {
      setProblem(toCallError(thrown));
    }
  };
  const withPasskey = attempt(async () => {
    const answerJson = await usePasskey();
    if (isConfirm)
      await call(
        SignInService.method.confirmIdentity,
        { passkeyAnswerJson: answerJson },
        { asks: false },
      );
    else await call(SignInService.method.signInWithPasskey, { answerJson }, { asks: false });
  });
  const withProvider = (provider: string) => async () => {
    setProblem(undefined);
    if (purpose === "page") {
      try {
        const { authorizationUrl } = await call(SignInService.method.beginOidc, { provider });
        return leaveFor(authorizationUrl, next);
      } catch (thrown) {
        return setProblem(toCallError(thrown));
      }
    }
    const outcome = await openBeside(
      provider,
      isConfirm ? "confirm" : "sign-in",
      left.current.signal,
    );
    if (outcome === "signed-in" || outcome === "confirmed") return onDone();
    const known = words.doors.problems;
    setProblem(new CallError(known[outcome] ?? known.sign_in_failed ?? "", { reason: outcome }));
  };

  // Who confirms has ways already, and sees only those.
  const own = isConfirm ? session.value : undefined;
  const hasPasskey = !own || own.passkeys.length > 0;
  const hasPassword = !own || own.hasPassword;
  const providers = (begin.data?.providers ?? []).filter(
    ({ name }) => !own || own.identities.some(({ provider }) => provider === name),
  );
  const onlyPassword = hasPassword && !hasPasskey && providers.length === 0;
  return (
    <div class="ways stack">
      {hasPasskey && (
        <Button kind="main" icon="passkey" onClick={withPasskey}>
          {isConfirm ? words.doors.confirmPasskey : words.doors.usePasskey}
        </Button>
      )}
      {providers.map(({ name, title }) => (
        <Button key={name} onClick={withProvider(name)}>
          {words.doors.continueWith(title || name)}
        </Button>
      ))}
      {problem && (
        <p class="problem" role="alert">
          {problem.message}
        </p>
      )}
      {hasPassword && !onlyPassword && !takesPassword && (
        <>
          <span class="or">{words.doors.or}</span>
          <Button onClick={() => setTakesPassword(true)}>{words.doors.usePassword}</Button>
        </>
      )}
      {hasPassword && (onlyPassword || takesPassword) && (
        <PasswordForm isConfirm={isConfirm} onDone={onDone} />
      )}
    </div>
  );
}

type PasswordFormProps = { isConfirm: boolean; onDone: () => Promise<void> };

function PasswordForm({ isConfirm, onDone }: PasswordFormProps): JSX.Element {
  const known = isConfirm ? (session.value.person?.login ?? "") : "";
  const [login, setLogin] = useState(known);
  const [password, setPassword] = useState("");
  const [choices, setChoices] = useState<readonly CellChoice[]>([]);
  const signIn = async (cell: string) => {
    const { signInWithPassword } = SignInService.method;
    const answer = await call(signInWithPassword, { login, password, cell }, { asks: false });
    setChoices(answer.choices);
    return answer.choices.length === 0;
  };
  const send = async (cell = new URLSearchParams(address.value.search).get("cell") ?? "") => {
    if (isConfirm) await call(SignInService.method.confirmIdentity, { password }, { asks: false });
    else if (!(await signIn(cell))) return;
    setPassword("");
    await onDone();
  };
  if (choices.length > 0)
    return (
      <>
        <p>{words.doors.chooseCell}</p>
        {choices.map(({ cell, accountNames }) => (
          <Button key={cell} onClick={() => send(cell)}>
            {accountNames.join(", ") || words.shell.cell(cell)}
          </Button>
        ))}
      </>
    );
  return (
    <Form
      submit={isConfirm ? words.doors.confirmPassword : words.doors.signInWithPassword}
      fields={["login", "password"]}
      onSubmit={() => send()}
    >
      {!isConfirm && (
        <TextField
          name="login"
          label={words.doors.login}
          hint={words.doors.loginHint}
          autocomplete="username"
          value={login}
          onInput={setLogin}
          isFirst
        />
      )}
      <TextField
        name="password"
        type="password"
        label={words.doors.password}
        autocomplete="current-password"
        value={password}
        onInput={setPassword}
        isFirst={isConfirm}
      />
    </Form>
  );
}
