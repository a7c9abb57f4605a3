// The page of the console.

import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type CallError, refreshOnReturn, setPrompts, toCallError } from "./api.ts";
import { FirstFrame } from "./frame.tsx";
import { reportOutcome, takeNext } from "./oidc.ts";
import { OperatorPage } from "./operators.tsx";
import { Door, SignIn, SignUp } from "./pages/sign-in.tsx";
import { pages } from "./pages.ts";
import { LinkButton } from "./parts/button.tsx";
import { FileMissing, useNeeded } from "./parts/later.tsx";
import { Messages } from "./parts/message-line.tsx";
import { Head } from "./parts/page.tsx";
import { Prompts, prompts } from "./parts/prompts.tsx";
import { Empty, Failed, Skeleton } from "./parts/view.tsx";
import { address, go, href, hrefOf, match, segments, startRouter } from "./router.ts";
import {
  account,
  currentSession,
  isAccountKnown,
  isOperator,
  loadSession,
  operatorPart,
  preferredAccount,
  rememberAccount,
} from "./session.ts";
import { Shell } from "./shell.tsx";
import { startTheme } from "./theme.ts";
import { words } from "./words.ts";
import { followZone } from "./zone.ts";

/** What an address must not keep: the secret of a link, and how a provider's sign-in ended. */
type Arrival = { readonly token: string; readonly outcome: string };

const place = document.getElementById("app");
/** The page began with the frame: somebody may be signed in. */
const isFramed = place?.firstElementChild != null;
/** It began without, where all with a session have it: nobody is signed in. */
const isStranger = !isFramed && !/^\/console\/(welcome|sign-in|sign-up)$/.test(location.pathname);

function takeArrival(): Arrival {
  const isWelcome = location.pathname === "/console/welcome";
  const token = isWelcome ? location.hash.slice(1) : "";
  const outcome = isWelcome ? (new URLSearchParams(location.search).get("oidc") ?? "") : "";
  if (isWelcome) history.replaceState(null, "", location.pathname);
  return { token, outcome };
}

function App({ arrival }: { arrival: Arrival }): JSX.Element {
  return (
    <>
      <Page arrival={arrival} />
      <Prompts />
      <Messages />
    </>
  );
}

function Page({ arrival }: { arrival: Arrival }): JSX.Element {
  const [first] = segments();
  if (first === "welcome" && arrival.token !== "") return <Link token={arrival.token} />;
  if (first === "welcome" && arrival.outcome !== "")
    return <ProviderReturn outcome={arrival.outcome} />;
  if (first === "sign-in") return <SignIn />;
  if (first === "sign-up") return <SignUp />;
  return <SignedIn />;
}

/** Few come by a link, and few make their first key: both are loaded by need. */
function Link({ token }: { readonly token: string }): JSX.Element {
  const { file, isMissing } = useNeeded(() => import("./pages/link.tsx"));
  // The address has lost the secret, and the page that is loaded again needs it.
  const retry = () => {
    history.replaceState(null, "", `${location.pathname}#${token}`);
    location.reload();
  };
  if (file) return <file.LinkPage token={token} retry={retry} />;
  return isMissing ? (
    <Door title={words.links.badTitle}>
      <FileMissing retry={retry} />
    </Door>
  ) : (
    <Door title="" />
  );
}

function FirstSteps(): JSX.Element {
  const { file, isMissing } = useNeeded(() => import("./pages/start.tsx"));
  if (file) return <file.Start />;
  return isMissing ? <FileMissing /> : <Skeleton />;
}

const successes = ["signed-in", "confirmed", "added"];

/** Back from a provider: in this window, or in one beside the page that waits for it. */
function ProviderReturn({ outcome }: { outcome: string }): JSX.Element {
  const [next] = useState(takeNext);
  const isGood = successes.includes(outcome);
  useEffect(() => {
    if (next !== undefined && isGood) return go(next, { replace: true });
    if (next !== undefined) return;
    reportOutcome(outcome);
    if (isGood) close();
  }, [next, isGood, outcome]);
  if (next !== undefined) return isGood ? <Door title="" /> : <SignIn problem={outcome} />;
  if (!isGood) return <SignIn problem={outcome} />;
  return (
    <Door title={words.doors.popupDone} lead={words.doors.popupLead}>
      <LinkButton href="/console/">{words.start.open}</LinkButton>
    </Door>
  );
}

function SignedIn(): JSX.Element {
  const [error, setError] = useState<CallError>();
  const isKnown = currentSession.value !== undefined;
  useEffect(() => {
    if (isKnown) return;
    // The service could only refuse.
    if (isStranger) return goToSignIn();
    loadSession().catch((thrown: unknown) => {
      const problem = toCallError(thrown);
      if (problem.reason !== "missing_key" && problem.reason !== "invalid_session")
        return setError(problem);
      goToSignIn();
    });
  }, [isKnown]);
  if (error) return <Failed error={error} retry={() => location.reload()} />;
  if (!isKnown) return isFramed ? <FirstFrame /> : <Skeleton />;
  return <Routes />;
}

/** From there, the way leads back. */
function goToSignIn(): void {
  const { path, search } = address.value;
  const next = /^\/console\/?(welcome)?$/.test(path) ? "" : path + search;
  const query = next && `?${new URLSearchParams({ next })}`;
  go(`/console/sign-in${query}`, { replace: true });
}

/** Calls may ask for a sign-in only where somebody was signed in. */
function Routes(): JSX.Element {
  useEffect(() => {
    setPrompts(prompts);
    return () => setPrompts(undefined);
  }, []);
  const [first = "", ...rest] = segments();
  const isHome = first === "" || first === "welcome";
  const home = preferredAccount();
  const isOfOperators = first === operatorPart;
  // Addresses without an account, such as `/console/keys`, mean the preferred one.
  const isPage = pages.some(({ path }) => path.split("/")[0] === first && path !== "");
  useEffect(() => {
    // Operators need no account of their own.
    if (!(isHome || isPage)) return;
    if (home === undefined && isOperator()) go(hrefOf(operatorPart, ""), { replace: true });
    if (home === undefined) return;
    const path = isHome ? "" : [first, ...rest].join("/");
    go(hrefOf(home, path) + address.value.search, { replace: true });
  });
  useEffect(() => {
    if (!isHome && !isPage && !isOfOperators && isAccountKnown.value) rememberAccount(first);
  }, [first, isHome, isPage]);
  if (isHome || isPage) return home === undefined && !isOperator() ? <NoAccount /> : <Skeleton />;
  if (!isAccountKnown.value) return <NotFound />;
  if (isOfOperators) return <OperatorPage parts={rest} />;
  if (rest.join("/") === "start") return <FirstSteps key={first} />;
  for (const { path, component: Component } of pages) {
    const params = match(path, rest);
    if (params)
      return (
        <Shell>
          <Component key={`${account.value.accountId}/${path}`} params={params} />
        </Shell>
      );
  }
  return (
    <Shell>
      <Head title={words.common.notFoundTitle} />
      <Empty action={<LinkButton href={href("")}>{words.common.toOverview}</LinkButton>}>
        {words.common.notFound}
      </Empty>
    </Shell>
  );
}

function NotFound(): JSX.Element {
  return (
    <Door title={words.common.notFoundTitle} lead={words.common.notFound}>
      <LinkButton href="/console/">{words.common.toOverview}</LinkButton>
    </Door>
  );
}

function NoAccount(): JSX.Element {
  return <Door title={words.shell.noAccountTitle} lead={words.shell.noAccount} />;
}

const zoneEveryMs = 60_000;

/** Times follow a person who travels, or chooses another zone in another tab. */
function startZone(): void {
  followZone();
  for (const event of ["focus", "visibilitychange", "online", "storage"])
    addEventListener(event, followZone);
  setInterval(followZone, zoneEveryMs);
}

// Before anything else: a secret stays in the address for no longer than it takes to read it.
const arrival = takeArrival();
startTheme();
startZone();
startRouter();
refreshOnReturn();
if (place) render(<App arrival={arrival} />, place);
