// The checklist's line for proxies: a peer may be a client who made the header up, and the line
// must not make the gateway believe a client.

import { expect, test } from "vitest";
import { SetupPart, SetupState } from "../../gen/gateway/operations/v1/operations_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readSetup } from "../../src/operations/setup.ts";
import { defaultCatalogWithoutPauses } from "../support/catalog.ts";

const placeholder = "ADDRESS_OF_YOUR_PROXY";

for (const [peers, trustedProxies, value] of [
  [["203.0.113.9"], [], placeholder],
  [["2001:db8::9", "203.0.113.9"], ["10.0.0.0/8"], `10.0.0.0/8,${placeholder}`],
  [["203.0.113.9", "172.16.0.3", "192.168.7.1"], ["10.0.0.0/8"], "10.0.0.0/8,172.16.0.3"],
  [["fd00::7"], [], "fd00::7"],
  [["172.32.0.1"], [], placeholder],
] as const)
  test(`of ${peers.join(", ")}, TRUSTED_PROXIES=${value} is offered`, async () => {
    const steps = await readSetup(
      {
        publicUrl: () => new URL("http://localhost:8080"),
        trustedProxies,
        mailFrom: undefined,
        alertChannels: async () => [],
        database: { isEmbedded: true },
        file: () => readCatalogFile(defaultCatalogWithoutPauses()),
        ledger: { latestVerification: async () => ({ latest: undefined, cleanAt: undefined }) },
      },
      [{ unnamedProxies: [...peers] }],
    );
    expect(steps.find(({ part }) => part === SetupPart.PROXIES)).toMatchObject({
      state: SetupState.DEFAULT,
      facts: peers.toSorted(),
      line: `TRUSTED_PROXIES=${value}`,
    });
  });
