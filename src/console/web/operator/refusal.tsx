// A refused request, by the id that its client was shown.

import type { JSX } from "preact";
import { type RefusedRequest, UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { useCall } from "../api.ts";
import { Card, Head } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { Facts, Notice, Time } from "../parts/small.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { hrefOf, type PageProps } from "../router.ts";
import { operatorPart } from "../session.ts";
import { AccountLink } from "./common.tsx";
import { words } from "./words.ts";

export function RefusalPage({ params }: PageProps): JSX.Element {
  const { requestId = "" } = params;
  const found = useCall(UsageService.method.findRequests, { requestId });
  return (
    <>
      <Head
        title={words.refusal.title}
        detail={<code>{requestId}</code>}
        back={{ href: hrefOf(operatorPart, ""), label: words.account.back }}
      />
      <View
        call={found}
        skeleton={<Skeleton rows={5} />}
        empty={({ refusals }) =>
          refusals.length === 0 ? <Empty>{words.refusal.gone}</Empty> : undefined
        }
      >
        {({ refusals }) => (
          <>
            {refusals.map((one) => (
              <Refused key={one.accountId} request={one} />
            ))}
          </>
        )}
      </View>
    </>
  );
}

/** `limit_name` as `Limit name`. */
function sentence(name: string): string {
  const text = name.replaceAll("_", " ");
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function Refused({ request }: { readonly request: RefusedRequest }): JSX.Element {
  const { accountId, keyId, occurredAt: at, reason, model, facts } = request;
  const { label, advice } = refusalOf(reason);
  const { names } = words.refusal;
  return (
    <Card>
      <div class="stack">
        <Notice tone="warn">
          {label} <span class="muted">{advice}</span>
        </Notice>
        <Facts>
          {[
            [names.at, <Time key="at" at={at} as="moment" />],
            [names.account, <AccountLink key="account" accountId={accountId} />],
            [
              names.key,
              <a key="key" href={hrefOf(accountId, `keys/${keyId}`)}>
                {keyId}
              </a>,
            ],
            [names.model, <bdi key="model">{model || words.none}</bdi>],
            ...Object.entries(facts).map(([name, value]): [string, JSX.Element] => [
              sentence(name),
              <bdi key={name}>{value}</bdi>,
            ]),
          ]}
        </Facts>
      </div>
    </Card>
  );
}
