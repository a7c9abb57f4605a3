// The requests that hold credits of a pool now: what is behind the second part of its bar.

import type { JSX } from "preact";
import type { Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import { InferenceService } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { credits } from "../format.ts";
import { href } from "../router.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";
import { Button } from "./button.tsx";
import { Dialog } from "./dialog.tsx";
import { hintOf, useKeys } from "./key-names.ts";
import { notify } from "./messages.ts";
import { poolOf, poolsChanged } from "./pools.ts";
import { Time } from "./small.tsx";
import { Empty, Skeleton, View } from "./view.tsx";

type RunningProps = { readonly family: Family; readonly onClose: () => void };

export function RunningRequests({ family, onClose }: RunningProps): JSX.Element {
  const { accountId } = account.value;
  const { listRunningRequests } = UsageService.method;
  const running = useCall(listRunningRequests, { accountId }, { isLive: true });
  const requests = (running.data?.requests ?? []).filter((one) => one.family === family);
  const keys = useKeys(requests.map(({ keyId }) => keyId));
  const text = words.running;
  const end = async ({ requestId }: Receipt) => {
    await call(InferenceService.method.endRequest, { accountId, requestId });
    invalidate(listRunningRequests, UsageService.method.listCharges);
    poolsChanged();
    notify(text.ended);
  };
  return (
    <Dialog title={text.title(poolOf(family).inText)} onClose={onClose} wide>
      <p class="muted">{text.lead}</p>
      <View
        call={running}
        skeleton={<Skeleton rows={3} />}
        empty={() => (requests.length === 0 ? <Empty>{text.none}</Empty> : undefined)}
      >
        {({ nextPageToken }) => (
          <ul class="endings stack">
            {requests.map((one) => (
              <li class="spread" key={one.requestId}>
                <div>
                  <h3>
                    <a href={href(`requests/${one.requestId}`)} dir="auto">
                      {keys.get(one.keyId)?.name || hintOf(keys.get(one.keyId)) || one.keyId}
                    </a>
                  </h3>
                  <p class="muted">
                    {one.model} · {words.common.amount(credits(one.holdMicrocredits))} ·{" "}
                    <Time at={one.admittedAt} />
                  </p>
                </div>
                {can("owner") && (
                  <Button label={text.endOf(one.requestId)} onClick={() => end(one)}>
                    {text.end}
                  </Button>
                )}
              </li>
            ))}
            {nextPageToken !== "" && <li class="faint">{text.more}</li>}
          </ul>
        )}
      </View>
    </Dialog>
  );
}
