// What an installation needs before customers come: the first page of operators until all is done,
// or somebody has seen enough of it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  OperationsService,
  SetupPart,
  SetupState,
  type SetupStep,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { useCall } from "../api.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { Card, Head } from "../parts/page.tsx";
import { Snippet, Tag, type Tone } from "../parts/small.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { hrefOf } from "../router.ts";
import { operatorPart } from "../session.ts";
import { Accounts } from "./accounts.tsx";
import { checklistWords as text } from "./words-checklist.ts";

const dismissed = "gateway-checklist-dismissed";

/** The checklist, and the accounts once nobody needs it. */
export function FirstPage(): JSX.Element {
  const [isDismissed, setDismissed] = useState(localStorage.getItem(dismissed) !== null);
  const status = useCall(OperationsService.method.getStatus, isDismissed ? undefined : {});
  const isDone = status.data?.setup.every(({ state }) => state !== SetupState.OPEN);
  if (isDismissed || isDone) return <Accounts />;
  const dismiss = () => {
    localStorage.setItem(dismissed, "1");
    setDismissed(true);
  };
  return <List onDismiss={dismiss} />;
}

export function Checklist(): JSX.Element {
  return <List />;
}

function List({ onDismiss }: { readonly onDismiss?: () => void }): JSX.Element {
  const status = useCall(OperationsService.method.getStatus, {});
  const steps = status.data?.setup ?? [];
  const left = steps.filter(({ state }) => state === SetupState.OPEN).length;
  return (
    <>
      <Head
        title={text.title}
        detail={status.data && text.counted(left)}
        tools={
          <>
            {onDismiss && (
              <Button kind="quiet" onClick={onDismiss}>
                {text.dismiss}
              </Button>
            )}
            <Button onClick={status.refresh}>{text.again}</Button>
          </>
        }
      />
      <p class="intro muted">{text.intro}</p>
      <Card>
        <View call={status} skeleton={<Skeleton rows={9} />}>
          {({ setup }) => (
            <ol class="checklist stack">
              {setup.map((step) => (
                <Row key={step.part} step={step} />
              ))}
            </ol>
          )}
        </View>
      </Card>
    </>
  );
}

const tones: Readonly<Partial<Record<SetupState, Tone>>> = {
  [SetupState.OPEN]: "warn",
  [SetupState.DONE]: "good",
};

function Row({ step: { part, state, facts, line } }: { readonly step: SetupStep }): JSX.Element {
  const { title, done, open, lines, page } = textOf(SetupPart, text.parts, part);
  const isDone = state === SetupState.DONE;
  const tone = tones[state];
  return (
    <li class="stack">
      <div class="spread">
        <h2>{title}</h2>
        <Tag {...(tone && { tone })}>{textOf(SetupState, text.states, state)}</Tag>
      </div>
      <p class="muted">{isDone ? done(facts.join(", ")) : open(facts.join(", "))}</p>
      {!isDone && lines && <Snippet text={lines(line)} />}
      {!isDone && page && (
        <div>
          <LinkButton href={hrefOf(operatorPart, page.path)}>{page.label}</LinkButton>
        </div>
      )}
    </li>
  );
}
