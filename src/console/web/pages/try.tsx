// One message to a model, through the public path and with an ordinary key of a small budget. Text,
// answer and secret are in the memory of this page alone.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Outcome, type Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import { InferenceService, type Model } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { reasonOf } from "../../../base/reasons.ts";
import { tokenCategories } from "../../../base/token-categories.ts";
import { call, invalidate, toCallError, useCall } from "../api.ts";
import { clock, count, credits, parseCount, smallDollars } from "../format.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { CheckField, Form, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { FileMissing } from "../parts/later.tsx";
import { Card, Head } from "../parts/page.tsx";
import { familyOf, type PoolName, poolNameOf } from "../parts/pools.ts";
import { refusalOf } from "../parts/refusals.ts";
import { Facts, Notice, Snippet } from "../parts/small.tsx";
import { useTools } from "../parts/tool-blocks.tsx";
import { type TryKeys, tryBudgetMicro, useTryKeys } from "../parts/try-key.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { type Ending, type Message, PublicError, sendMessage } from "../public-call.ts";
import { href, useQuery } from "../router.ts";
import { account, canBuy, isMember } from "../session.ts";
import { words } from "../words.ts";
import { tryWords as text } from "../words-try.ts";

export function Try(): JSX.Element {
  const { accountId } = account.value;
  const list = useCall(
    InferenceService.method.listModels,
    isMember() ? { pricesOf: accountId } : undefined,
  );
  return (
    <>
      <Head title={words.shell.try} />
      {isMember() ? (
        <>
          <p class="intro muted">{text.intro}</p>
          <View
            call={list}
            skeleton={<Skeleton rows={8} />}
            empty={({ models }) =>
              models.some(isSold) ? undefined : (
                <Empty title={text.noModelsTitle}>{text.noModels}</Empty>
              )
            }
          >
            {({ models }) => <Playground models={models.filter(isSold)} />}
          </View>
        </>
      ) : (
        <Empty>{text.viewer}</Empty>
      )}
    </>
  );
}

function isSold({ aliasFor, price }: Model): boolean {
  return aliasFor === "" && price !== undefined;
}

type Fields = {
  readonly pool: PoolName;
  readonly system: string;
  readonly message: string;
  /** Most tokens of the answer, as typed. */
  readonly limit: string;
  readonly isStream: boolean;
};

/** `lost`: nothing is known of it. */
type State = "key" | "waiting" | "coming" | "stopped" | "refused" | "lost" | Ending;

/** What became of a message. */
type Attempt = {
  readonly requestId: string;
  readonly state: State;
  readonly answer: string;
  readonly error?: PublicError;
  /** Null: none was found. */
  readonly receipt?: Receipt | null;
};

const running: readonly State[] = ["key", "waiting", "coming"];

function Playground({ models }: { readonly models: readonly Model[] }): JSX.Element {
  const [query, setQuery] = useQuery({ model: "" });
  const cheapest = models.reduce((a, b) => (outputPrice(b) < outputPrice(a) ? b : a));
  const model = models.find(({ modelId: id }) => id === query.model) ?? cheapest;
  const pool = usePoolWithCredits();
  const [typed, setTyped] = useState<Partial<Fields>>({});
  const fields: Fields = {
    ...{ pool, system: "", message: "", limit: usualLimit(model), isStream: true },
    ...typed,
  };
  const keys = useTryKeys();
  const { attempt, send, stop } = useAttempt(keys);
  const place = useRef<HTMLDivElement>(null);
  useSendKey(place);
  const submit = async () => {
    const message = messageOf(fields, model);
    await send(message, familyOf[fields.pool]);
  };
  return (
    <div class="two columns" ref={place}>
      <Card title={text.message}>
        <Form submit={text.send} fields={["model", "message", "max_tokens"]} onSubmit={submit}>
          <MessageFields
            models={models}
            model={model}
            fields={fields}
            onModel={(id) => setQuery({ model: id })}
            onChange={(changes) => setTyped({ ...typed, ...changes })}
          />
          <KeyLine keys={keys} />
        </Form>
      </Card>
      <div>
        <AnswerCard
          attempt={attempt}
          keys={keys}
          onStop={stop}
          onNewKey={() => {
            keys.end();
            place.current?.querySelector("form")?.requestSubmit();
          }}
        />
        <SameCall fields={fields} model={model} />
      </div>
    </div>
  );
}

/** Ctrl or ⌘ with Enter sends, wherever on the page. */
function useSendKey(place: { readonly current: HTMLElement | null }): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
      if (document.querySelector("dialog[open]")) return;
      event.preventDefault();
      place.current?.querySelector("form")?.requestSubmit();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** The pool of the first key, unless only the other one has credits. */
function usePoolWithCredits(): PoolName {
  const { accountId } = account.value;
  const { data } = useCall(UsageService.method.getForecast, { accountId }, { isLive: true });
  const filled = data?.forecasts.find(({ freeMicrocredits: free }) => free > 0n);
  return filled ? poolNameOf(filled.family) : "v1";
}

/** Nano-credits of a token. */
function outputPrice({ price }: Model): bigint {
  return price?.output ?? 0n;
}

const limitsOfUse = { least: 16n, most: 1_000n };

/** So many tokens cost half of the budget: two messages fit into it, whatever the model. */
function usualLimit(model: Model): string {
  const { least, most } = limitsOfUse;
  const price = outputPrice(model);
  const half = price > 0n ? (tryBudgetMicro * 1_000n) / 2n / price : most;
  return count(half < least ? least : half > most ? most : half);
}

/** The body of the call. Throws an error of the field that is wrong. */
function messageOf({ message, system, limit, isStream }: Fields, { modelId: id }: Model): Message {
  const tokens = parseCount(limit);
  if (message.trim() === "") throw fieldError("message", text.textMissing);
  if (!tokens) throw fieldError("max_tokens", text.limitWrong);
  return bodyOf({ id, message, system, tokens, isStream });
}

type Body = Pick<Fields, "message" | "system" | "isStream"> & {
  readonly id: string;
  readonly tokens: number;
};

function bodyOf({ id, message, system, tokens, isStream }: Body): Message {
  return {
    ...{ model: id, max_tokens: tokens, stream: isStream },
    ...(system.trim() !== "" && { system }),
    messages: [{ role: "user", content: message }],
  };
}

type FieldsProps = {
  readonly models: readonly Model[];
  readonly model: Model;
  readonly fields: Fields;
  readonly onModel: (id: string) => void;
  readonly onChange: (changes: Partial<Fields>) => void;
};

function MessageFields({ models, model, fields, onModel, onChange }: FieldsProps): JSX.Element {
  return (
    <div class="fields stack">
      <SelectField
        name="model"
        label={text.model}
        value={model.modelId}
        onInput={onModel}
        options={models.map(({ modelId: id, displayName }) => ({
          value: id,
          label: displayName || id,
        }))}
      />
      <SelectField
        name="pool"
        label={text.pool}
        value={fields.pool}
        onInput={(pool) => onChange({ pool })}
        options={[
          { value: "v1", label: words.families.v1 },
          { value: "v2", label: words.families.v2 },
        ]}
      />
      <TextField
        name="system"
        label={text.system}
        hint={text.systemHint}
        lines={2}
        value={fields.system}
        onInput={(system) => onChange({ system })}
      />
      <TextField
        name="message"
        label={text.text}
        hint={text.textHint}
        lines={5}
        value={fields.message}
        onInput={(message) => onChange({ message })}
      />
      <TextField
        name="max_tokens"
        label={text.limit}
        hint={text.limitHint}
        type="number"
        value={fields.limit}
        onInput={(limit) => onChange({ limit })}
      />
      <CheckField
        name="stream"
        label={text.stream}
        checked={fields.isStream}
        onInput={(isStream) => onChange({ isStream })}
      />
    </div>
  );
}

/** What the key of this page is, or will be. */
function KeyLine({ keys: { known } }: { readonly keys: TryKeys }): JSX.Element {
  if (!known) return <p class="hint">{text.keyNone}</p>;
  return (
    <p class="hint">
      {text.keyMade(credits(known.spentMicro, 4), clock(known.endsAt))}{" "}
      <a href={href(`keys/${known.keyId}`)}>{text.keyLink}</a>
    </p>
  );
}

type Attempts = {
  /** The newest one. */
  readonly attempt: Attempt | undefined;
  readonly send: (message: Message, family: (typeof familyOf)[PoolName]) => Promise<void>;
  readonly stop: () => void;
};

/** Sends messages, one at a time. What is left of one when somebody leaves is hung up. */
function useAttempt(keys: TryKeys): Attempts {
  const [attempt, setAttempt] = useState<Attempt>();
  const hangUp = useRef<AbortController>(undefined);
  const left = useRef(new AbortController());
  useEffect(
    () => () => {
      hangUp.current?.abort();
      left.current.abort();
    },
    [],
  );
  const change = (requestId: string, changesOf: (before: Attempt) => Partial<Attempt>) =>
    setAttempt((before) =>
      before?.requestId === requestId ? { ...before, ...changesOf(before) } : before,
    );
  const readCharge = async (requestId: string, keyId: string, isRefused: boolean) => {
    const receipt = await findReceipt(requestId, { isRefused, signal: left.current.signal });
    if (receipt) keys.spend(keyId, receipt.chargedMicrocredits);
    change(requestId, () => ({ receipt: receipt ?? null }));
  };
  const send: Attempts["send"] = async (message, family) => {
    const requestId = `req_${crypto.randomUUID()}`;
    const stopping = new AbortController();
    const { signal } = stopping;
    hangUp.current = stopping;
    setAttempt({ requestId, state: "key", answer: "" });
    const key = await keys.take(family).catch((thrown: unknown) => {
      setAttempt(undefined);
      throw thrown;
    });
    if (signal.aborted) return setAttempt(undefined);
    change(requestId, () => ({ state: "waiting" }));
    let hasText = false;
    const onText = (piece: string) => {
      if (piece === "" || signal.aborted) return;
      hasText = true;
      change(requestId, ({ answer }) => ({ state: "coming", answer: answer + piece }));
    };
    const { secret, keyId } = key;
    const end = await sendMessage(message, { secret, requestId, signal, onText }).then(
      (state) => ({ state }),
      (thrown: unknown) => failureOf(thrown, hasText),
    );
    const isLost = end.state === "cut" && !hasText;
    const isStopped = signal.aborted && end.state === "cut";
    change(requestId, () =>
      isStopped ? { state: "stopped" } : isLost ? { ...end, state: "lost" } : end,
    );
    const error = "error" in end ? end.error : undefined;
    if (error) afterFailure(error, keys);
    const isRefused = error?.isRefusal === true;
    if (!isRefused) keys.use(keyId);
    void readCharge(requestId, keyId, isRefused);
  };
  return { attempt, send, stop: () => hangUp.current?.abort() };
}

type Failure = { readonly state: "cut" | "refused"; readonly error: PublicError };

function failureOf(thrown: unknown, hasText: boolean): Failure {
  const error = thrown instanceof PublicError ? thrown : new PublicError("offline");
  return { state: hasText || error.reason === "offline" ? "cut" : "refused", error };
}

const keyReasons = ["invalid_key", "revoked_key", "key_expired", "authentication_error"];

function afterFailure({ reason }: PublicError, keys: TryKeys): void {
  if (keyReasons.includes(reason)) keys.end();
  if (reason === "model_not_found") invalidate(InferenceService.method.listModels);
}

const receiptTries = 30;
const receiptEveryMs = 1_000;

type Finding = {
  /** True: it is not awaited. A request that was admitted is known before its error is. */
  readonly isRefused: boolean;
  readonly signal: AbortSignal;
};

/** The receipt of a request that has ended. Undefined: it did not come within half a minute. */
async function findReceipt(
  requestId: string,
  { isRefused, signal }: Finding,
): Promise<Receipt | undefined> {
  const request = { requestId, accountId: account.value.accountId };
  for (let tries = 0; tries < receiptTries && !signal.aborted; tries++) {
    try {
      const { receipt } = await call(UsageService.method.getReceipt, request, {
        ...{ signal, isByItself: true },
      });
      if (receipt && receipt.outcome !== Outcome.RUNNING) return receipt;
    } catch (thrown) {
      if (isRefused && toCallError(thrown).reason === "not_found") return undefined;
    }
    await new Promise((resolve) => setTimeout(resolve, receiptEveryMs));
  }
  return undefined;
}

type AnswerProps = {
  readonly attempt: Attempt | undefined;
  readonly keys: TryKeys;
  readonly onStop: () => void;
  readonly onNewKey: () => void;
};

function AnswerCard({ attempt, keys, onStop, onNewKey }: AnswerProps): JSX.Element {
  const card = useRef<HTMLElement>(null);
  const { requestId, state, answer = "", error } = attempt ?? {};
  const isRunning = state !== undefined && running.includes(state);
  useEffect(() => {
    if (requestId) card.current?.scrollIntoView({ block: "nearest" });
  }, [requestId]);
  return (
    <Card
      place={card}
      title={text.answer}
      tools={
        isRunning && (
          <Button kind="danger" icon="close" onClick={onStop}>
            {text.stop}
          </Button>
        )
      }
    >
      <div class="stack">
        <p role="status" class="hint">
          {state ? text.states[state] : text.none}
        </p>
        {isRunning && <p class="hint">{text.stopHint}</p>}
        {answer !== "" && (
          <pre class="answer" dir="auto">
            {answer}
            {state === "cut" && <span class="answer-cut"> […]</span>}
          </pre>
        )}
        {error && <Failure error={error} keys={keys} onNewKey={onNewKey} />}
        {attempt && !isRunning && <Charged attempt={attempt} />}
      </div>
    </Card>
  );
}

type FailureProps = Pick<AnswerProps, "keys" | "onNewKey"> & { readonly error: PublicError };

/** Why there is no answer, or no more of it, and the next step. */
function Failure({ error, keys, onNewKey }: FailureProps): JSX.Element {
  const { reason, message } = error;
  const isSpent = budgetReasons.includes(reason) && keys.known?.isUsed === true;
  const action = isSpent ? (
    <Button onClick={onNewKey}>{text.newKey}</Button>
  ) : reason === "credits_exhausted" && canBuy() ? (
    <LinkButton href={href("credits/buy")}>{words.banner.buy}</LinkButton>
  ) : undefined;
  return (
    <Notice tone="warn" action={action}>
      <span dir="auto">{message}</span> {adviceOf(error, isSpent)}
    </Notice>
  );
}

const budgetReasons = ["budget_reached", "monthly_cap_reached"];
const laterReasons = ["api_error", "overloaded_error", "upstream_error", "timeout_error"];

function adviceOf({ reason, retryAfterSeconds }: PublicError, isSpent: boolean): string {
  const { advice } = text;
  if (reason === "offline" || reason === "other") return advice[reason];
  if (budgetReasons.includes(reason)) return isSpent ? advice.spent : advice.tooLarge;
  if (keyReasons.includes(reason)) return advice.keyEnded;
  if (reason === "model_not_found") return advice.model;
  if (reason === "request_too_large") return advice.long;
  if (retryAfterSeconds !== undefined) return advice.in(retryAfterSeconds);
  if (laterReasons.includes(reason)) return advice.later;
  return refusalOf(reasonOf(reason)).advice;
}

/** The receipt of a message, in short. */
function Charged({ attempt }: { readonly attempt: Attempt }): JSX.Element {
  const { receipt, requestId, error } = attempt;
  if (receipt === undefined) return <p class="hint">{text.receiptComes}</p>;
  const isFree = receipt ? receipt.chargedMicrocredits === 0n : error?.isRefusal === true;
  const whole = receipt && <a href={href(`requests/${requestId}`)}>{text.whole}</a>;
  if (isFree && error)
    return (
      <p class="hint">
        {text.receiptFree} {whole}
      </p>
    );
  if (!receipt) return <p class="hint">{text.receiptMissing}</p>;
  const { chargedMicrocredits: amount, usage } = receipt;
  return (
    <section class="stack" aria-label={text.receipt}>
      <h3>{text.receipt}</h3>
      <Facts>
        {[
          [text.charged, text.amount(credits(amount, 4), smallDollars(amount, 4))],
          ...tokenCategories.map((category): [string, string] | undefined => {
            const tokens = usage?.[category] ?? 0;
            return tokens > 0
              ? [words.usage.categories[category], text.tokens(count(tokens))]
              : undefined;
          }),
          [words.receipt.model, receipt.model],
        ]}
      </Facts>
      <p>{whole}</p>
    </section>
  );
}

/** More than this, in characters, no shell takes as one argument. */
const snippetMax = 100_000;

type SameCallProps = { readonly fields: Fields; readonly model: Model };

function SameCall({ fields, model }: SameCallProps): JSX.Element {
  const { file: list, isMissing } = useTools();
  const { message, system, limit, isStream } = fields;
  const { modelId: id } = model;
  const snippet = useMemo(() => {
    if (message.length + system.length > snippetMax) return undefined;
    const tokens = parseCount(limit) ?? 0;
    const place = { origin: location.origin, grpc: "", key: "YOUR_KEY" };
    return list?.curlThatSends(bodyOf({ id, message, system, tokens, isStream }), place);
  }, [list, id, message, system, limit, isStream]);
  return (
    <Card
      title={text.snippet}
      about={text.snippetAbout}
      tools={<LinkButton href={href("connect")}>{text.otherTools}</LinkButton>}
    >
      {snippet && <Snippet text={snippet} />}
      {list && !snippet && <p class="muted">{text.snippetLong}</p>}
      {!list && (isMissing ? <FileMissing /> : <Skeleton rows={4} />)}
    </Card>
  );
}
