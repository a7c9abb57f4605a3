// The way from a link to the first paid request, in three steps, or in four where the pool of the
// key has no credits.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Outcome, type Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import { Reason } from "../../../../gen/gateway/common/v1/error_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { RefusalGroup, UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate, useCall, useStream } from "../api.ts";
import { credits } from "../format.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { ChoiceField, Form, TextField } from "../parts/form.tsx";
import { Brand, Icon } from "../parts/icon.tsx";
import { outcomeText } from "../parts/outcome.tsx";
import { familyOf, type PoolName } from "../parts/pools.ts";
import { refusalOf } from "../parts/refusals.ts";
import { Secret, SecretSnippets } from "../parts/secret.tsx";
import { Notice } from "../parts/small.tsx";
import { TroubleLine } from "../parts/trouble.tsx";
import { href } from "../router.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";
import { FirstCredits } from "./first-credits.tsx";
import { Door } from "./sign-in.tsx";

type StepsProps = {
  title: string;
  lead?: string;
  step: 1 | 2 | 3 | 4;
  /** True: credits are a step of their own, before the key. */
  hasCredits?: boolean;
  isDone?: boolean;
  /** The content of this step. */
  children: ComponentChildren;
  /** What stands below the steps before. */
  before?: readonly ComponentChildren[];
};

export function Steps(props: StepsProps): JSX.Element {
  const { title, lead, step, hasCredits = false, isDone, children, before } = props;
  useEffect(() => {
    document.title = words.common.documentTitle(title);
  }, [title]);
  const { signInStep, creditsStep, keyStep, requestStep } = words.start;
  const steps = [signInStep, ...(hasCredits ? [creditsStep] : []), keyStep, requestStep];
  return (
    <>
      <TroubleLine />
      <main class="steps">
        <p class="brand">
          <Brand />
          {words.common.product}
        </p>
        <h1>{title}</h1>
        {lead && <p class="muted">{lead}</p>}
        <ol class="stack">
          {steps.map((name, index) => {
            const isBefore = index + 1 < step || isDone === true;
            const isCurrent = index + 1 === step;
            return (
              <li
                key={name}
                class={isBefore ? "step columns done" : "step columns"}
                aria-current={isCurrent ? "step" : undefined}
              >
                <span class="mark">
                  {isBefore ? <Icon name="done" /> : index + 1}
                  {isBefore && <span class="visually-hidden">{words.start.done}</span>}
                </span>
                <h2>{name}</h2>
                {isCurrent && <div class="content stack">{children}</div>}
                {!isCurrent && before?.[index] && <div class="content stack">{before[index]}</div>}
              </li>
            );
          })}
        </ol>
      </main>
    </>
  );
}

type NewKey = { readonly name: string; readonly pool: PoolName };
type NewSecret = NewKey & { readonly keyId: string; readonly text: string };

/** The steps behind the first one. */
export function Start(): JSX.Element {
  const [wanted, setWanted] = useState<NewKey>({ name: words.start.keyName, pool: "v1" });
  const [isWaiting, setWaiting] = useState(false);
  const [hadNoCredits, setHadNoCredits] = useState(false);
  const [secret, setSecret] = useState<NewSecret>();
  const signedIn = <p class="muted">{words.start.signedInAs(session.value.person?.login ?? "")}</p>;
  const create = async (key: NewKey) => {
    setSecret(await createKey(key));
    setWaiting(false);
  };
  /** Credits come first: a key that nobody can use helps nobody. */
  const begin = async (key: NewKey) => {
    setWanted(key);
    if (await hasCredits(key.pool)) return create(key);
    setHadNoCredits(true);
    setWaiting(true);
  };
  const createAnyway = async () => {
    await create(wanted);
    setHadNoCredits(false);
  };
  if (!can("member"))
    return (
      <Door title={words.keys.emptyTitle} lead={words.keys.emptyViewer}>
        <LinkButton href={href("")}>{words.start.open}</LinkButton>
      </Door>
    );
  if (secret)
    return <FirstRequest secret={secret} hadNoCredits={hadNoCredits} signedIn={signedIn} />;
  if (isWaiting)
    return (
      <Steps title={words.start.titleOfFour} step={2} hasCredits before={[signedIn]}>
        <FirstCredits pool={wanted.pool} onReady={() => create(wanted)} />
        <div class="buttons">
          <Button kind="quiet" onClick={() => setWaiting(false)}>
            {words.start.otherKey}
          </Button>
          <Button kind="quiet" onClick={createAnyway}>
            {words.start.withoutCredits}
          </Button>
        </div>
      </Steps>
    );
  return (
    <Steps title={words.start.title} step={2} before={[signedIn]}>
      <p class="muted">{words.start.keyLead}</p>
      <FirstKey first={wanted} onSubmit={begin} />
    </Steps>
  );
}

async function hasCredits(pool: PoolName): Promise<boolean> {
  const { accountId } = account.value;
  const { forecasts } = await call(UsageService.method.getForecast, { accountId });
  return forecasts.some((one) => one.family === familyOf[pool] && one.freeMicrocredits > 0n);
}

async function createKey({ name, pool }: NewKey): Promise<NewSecret> {
  const { accountId } = account.value;
  const request = { accountId, family: familyOf[pool], settings: { name } };
  const { key, secret } = await call(KeysService.method.createKey, request);
  invalidate(KeysService.method.listKeys);
  return { name, pool, keyId: key?.keyId ?? "", text: secret };
}

type FirstKeyProps = {
  readonly first: NewKey;
  readonly onSubmit: (key: NewKey) => Promise<void>;
};

function FirstKey({ first, onSubmit }: FirstKeyProps): JSX.Element {
  const [name, setName] = useState(first.name);
  const [pool, setPool] = useState(first.pool);
  return (
    <Form
      submit={words.start.create}
      fields={["name", "family"]}
      onSubmit={() => onSubmit({ name: name.trim(), pool })}
    >
      <TextField name="name" label={words.keyForm.name} value={name} onInput={setName} />
      <ChoiceField
        name="family"
        label={words.keyForm.family}
        value={pool}
        onInput={setPool}
        options={[
          { value: "v1", label: words.families.v1, hint: words.families.v1Hint },
          { value: "v2", label: words.families.v2, hint: words.families.v2Hint },
        ]}
      />
      <p>
        <a href={href("")}>{words.start.skip}</a>
      </p>
    </Form>
  );
}

type FirstRequestProps = {
  readonly secret: NewSecret;
  readonly hadNoCredits: boolean;
  readonly signedIn: JSX.Element;
};

/** What to paste, and what became of it: refusals, failures, and the first answer. */
function FirstRequest({ secret, hadNoCredits, signedIn }: FirstRequestProps): JSX.Element {
  const { receipt, problems } = useFirstRequest(secret.keyId);
  return (
    <Steps
      title={hadNoCredits ? words.start.titleOfFour : words.start.title}
      step={hadNoCredits ? 4 : 3}
      hasCredits={hadNoCredits}
      isDone={receipt !== undefined}
      before={[signedIn]}
    >
      <Secret secret={secret.text} />
      <p class="muted">{words.start.requestLead}</p>
      <SecretSnippets secret={secret.text} />
      {!receipt && <Problems problems={problems} pool={secret.pool} />}
      <div class={receipt ? "waiting seen" : "waiting"} role="status">
        {receipt ? <Icon name="done" /> : <span class="dot" />}
        <span>
          {receipt
            ? words.start.seen(receipt.model, credits(receipt.chargedMicrocredits, 4))
            : words.start.waiting}
        </span>
      </div>
      <div class="buttons">
        {receipt && (
          <LinkButton href={href(`requests/${receipt.requestId}`)}>
            {words.start.receipt}
          </LinkButton>
        )}
        <LinkButton kind={receipt ? "main" : "plain"} href={href("")}>
          {receipt ? words.start.open : words.start.skip}
        </LinkButton>
      </div>
    </Steps>
  );
}

type Problem = { readonly text: string; readonly needsCredits: boolean };

const creditReasons: readonly Reason[] = [Reason.CREDITS_EXHAUSTED, Reason.CREDITS_HELD];
/** Refusals are counted, not charged: no stream has them. */
const refusalsEveryMs = 2_000;

/** Until the first answer of a key: what its requests met. The rest is on the page of requests. */
function useFirstRequest(keyId: string): {
  readonly receipt: Receipt | undefined;
  readonly problems: readonly Problem[];
} {
  const { accountId } = account.value;
  const [last, setLast] = useState<Receipt>();
  const receipt = last?.outcome === Outcome.COMPLETED ? last : undefined;
  useStream(
    UsageService.method.watchCharges,
    receipt ? undefined : { accountId, filter: { keyId } },
    ({ charges }) => {
      const best = charges.find(({ outcome }) => outcome === Outcome.COMPLETED) ?? charges.at(-1);
      if (best) setLast(best);
    },
  );
  const refused = useCall(
    UsageService.method.queryRefusals,
    receipt ? undefined : { accountId, keyIds: [keyId], groupBy: [RefusalGroup.REASON] },
    { everyMs: refusalsEveryMs },
  );
  const refusals = (refused.data?.rows ?? []).map(({ reason }) => {
    const { label, advice } = refusalOf(reason);
    return {
      text: words.start.refused(label, advice),
      needsCredits: creditReasons.includes(reason),
    };
  });
  const failure = last && {
    text: words.start.notCompleted(outcomeText(last)),
    needsCredits: false,
  };
  return { receipt, problems: failure ? [...refusals, failure] : refusals };
}

type ProblemsProps = { readonly problems: readonly Problem[]; readonly pool: PoolName };

/** Each with its next step. */
function Problems({ problems, pool }: ProblemsProps): JSX.Element {
  const [isBuying, setBuying] = useState(false);
  const needed = problems.some(({ needsCredits }) => needsCredits);
  return (
    <>
      {problems.map(({ text, needsCredits }) => (
        <Notice
          key={text}
          tone="warn"
          action={
            needsCredits &&
            !isBuying && <Button onClick={() => setBuying(true)}>{words.start.getCredits}</Button>
          }
        >
          {text}
        </Notice>
      ))}
      {needed && isBuying && <FirstCredits pool={pool} onReady={async () => setBuying(false)} />}
    </>
  );
}
