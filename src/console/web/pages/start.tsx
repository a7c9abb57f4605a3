// The way from a link to the first paid request, in three steps.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { BillingService, type Receipt } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { call, invalidate, useStream } from "../api.ts";
import { credits } from "../format.ts";
import { LinkButton } from "../parts/button.tsx";
import { ChoiceField, Form, TextField } from "../parts/form.tsx";
import { Brand, Icon } from "../parts/icon.tsx";
import { Secret, SecretSnippets } from "../parts/secret.tsx";
import { TroubleLine } from "../parts/trouble.tsx";
import { href } from "../router.ts";
import { account, session } from "../session.ts";
import { words } from "../words.ts";

type StepsProps = {
  title: string;
  lead?: string;
  step: 1 | 2 | 3;
  isDone?: boolean;
  /** The content of this step. */
  children: ComponentChildren;
  /** What stands below the steps before. */
  before?: readonly ComponentChildren[];
};

export function Steps({ title, lead, step, isDone, children, before }: StepsProps): JSX.Element {
  useEffect(() => {
    document.title = words.common.documentTitle(title);
  }, [title]);
  const steps = [words.start.signInStep, words.start.keyStep, words.start.requestStep];
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

/** The second and the third step. */
export function Start(): JSX.Element {
  const [secret, setSecret] = useState<{ keyId: string; text: string }>();
  const [receipt, setReceipt] = useState<Receipt>();
  const signedIn = <p class="muted">{words.start.signedInAs(session.value.person?.login ?? "")}</p>;
  // Only the first request counts: what follows is seen on the page of the requests.
  useStream(
    BillingService.method.watchCharges,
    secret && !receipt
      ? { accountId: account.value.accountId, filter: { keyId: secret.keyId } }
      : undefined,
    ({ charges }) => charges[0] && setReceipt(charges[0]),
  );
  if (!secret)
    return (
      <Steps title={words.start.title} step={2} before={[signedIn]}>
        <p class="muted">{words.start.keyLead}</p>
        <FirstKey onCreated={setSecret} />
      </Steps>
    );
  return (
    <Steps title={words.start.title} step={3} isDone={receipt !== undefined} before={[signedIn]}>
      <Secret secret={secret.text} />
      <p class="muted">{words.start.requestLead}</p>
      <SecretSnippets secret={secret.text} />
      <div class={receipt ? "waiting seen" : "waiting"} role="status">
        {receipt ? <Icon name="done" /> : <span class="dot" />}
        <span>
          {receipt
            ? words.start.seen(receipt.model, credits(receipt.amountMicrocredits, 4))
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

type FirstKeyProps = { onCreated: (secret: { keyId: string; text: string }) => void };

function FirstKey({ onCreated }: FirstKeyProps): JSX.Element {
  const [name, setName] = useState<string>(words.start.keyName);
  const [family, setFamily] = useState<"v1" | "v2">("v1");
  const create = async () => {
    const { key, secret } = await call(KeysService.method.createKey, {
      accountId: account.value.accountId,
      family: family === "v1" ? Family.V1 : Family.V2,
      name,
    });
    invalidate(KeysService.method.listKeys);
    onCreated({ keyId: key?.keyId ?? "", text: secret });
  };
  return (
    <Form submit={words.start.create} fields={["name", "family"]} onSubmit={create}>
      <TextField name="name" label={words.keyForm.name} value={name} onInput={setName} />
      <ChoiceField
        name="family"
        label={words.keyForm.family}
        value={family}
        onInput={setFamily}
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
