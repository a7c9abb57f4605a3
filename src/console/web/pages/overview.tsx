import type { JSX } from "preact";
import { BillingService } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { useCall } from "../api.ts";
import { credits } from "../format.ts";
import { familyName } from "../names.ts";
import { Figure, Figures, Head } from "../parts/page.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { account } from "../session.ts";
import { words } from "../words.ts";

export function Overview(): JSX.Element {
  const { accountId } = account.value;
  const pools = useCall(BillingService.method.getPools, { accountId });
  return (
    <>
      <Head title={words.shell.overview} />
      <View call={pools} skeleton={<Skeleton figures={2} />}>
        {(data) => (
          <Figures>
            {data.pools.map(({ family, freeMicrocredits }) => (
              <Figure
                key={family}
                label={familyName(family)}
                value={credits(freeMicrocredits)}
                unit={words.common.credits}
              />
            ))}
          </Figures>
        )}
      </View>
    </>
  );
}
