// A gateway before stand-ins of all vendors: a model for each, and a second one.

import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type Stand, startVendors, vendors } from "./vendors.ts";

/** The name of the second model of a vendor. */
export const otherModel = (vendor: string) => `${vendor}-other`;

export type World = {
  readonly gateway: TestGateway;
  readonly stand: Stand;
  /** A key of another account. */
  keyOfOther(): Promise<string>;
  stop(): Promise<void>;
};

export async function startWorld(settings: Readonly<Record<string, string>> = {}): Promise<World> {
  const stand = await startVendors();
  const gateway = await startTestGateway({
    env: { METRICS_PORT: "0" },
    catalog: readCatalogFile(catalogOf(stand.provider.url, settings)),
  });
  return {
    gateway,
    stand,
    async keyOfOther() {
      const { core, call } = gateway.admin;
      const { account } = await core.billing.createAccount({ settings: { name: "Other" } }, call);
      const { accountId = "" } = account ?? {};
      const bonus = { kind: TransferKind.BONUS, amountMicrocredits: 1_000_000_000n };
      await core.billing.createTransfer(
        { accountId, family: Family.V1, ...bonus, idempotencyKey: "bonus" },
        call,
      );
      const { secret } = await core.keys.createKey(
        { accountId, family: Family.V1, settings: { name: "other" } },
        call,
      );
      return secret;
    },
    async stop() {
      await gateway.stop();
      await stand.stop();
    },
  };
}

/** `settings`: further settings of a vendor, in YAML flow style. */
function catalogOf(url: string, settings: Readonly<Record<string, string>>): string {
  const model = (id: string, vendor: string) =>
    `  - { id: ${id}, display_name: ${id}, tier: opus, created_at: 2026-02-05T00:00:00Z, ` +
    "context_tokens: 1000000, max_output_tokens: 64000, thinking: adaptive, " +
    `price: { input: 3.50, output: 17.50 }, routes: [[{ provider: ${vendor}, model: ${id} }]] }`;
  const providers = vendors.map(({ name, api, dialect }) => {
    const [kind, path] = api === "native" ? ["anthropic", ""] : ["openai", "/v1"];
    const more = [
      ...(api === "responses" ? ["api: responses"] : []),
      ...(settings[name] === undefined ? [] : [settings[name]]),
    ];
    return `  ${name}: { ${[`kind: ${kind}`, `base_url: ${url}/${name}${path}`, `dialect: ${dialect}`, ...more].join(", ")} }`;
  });
  return [
    "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }",
    "models:",
    ...vendors.flatMap(({ name }) => [model(name, name), model(otherModel(name), name)]),
    "providers:",
    ...providers,
    "",
  ].join("\n");
}
