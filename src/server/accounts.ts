// Callers and payers: keys, the ledger and people. Each uses those above it here; what the
// ledger and people use of later services they get when they start.

import { MisplacedUses } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";
import { budgetsOfKeys, budgetsOfMembers, createBilling } from "../billing/billing.ts";
import type { Authenticate } from "../contract/contract.ts";
import { createKeys } from "../keys/keys.ts";
import {
  createInstallation,
  createPeople,
  isOfPeople,
  membersOfAccount,
} from "../people/people.ts";
import { hintsOn } from "../redis/redis.ts";
import { findAdminToken } from "./bootstrap.ts";
import type { Data } from "./data.ts";
import type { GatewayParts } from "./parts.ts";
import type { SettingsInUse } from "./settings.ts";

/** The use of the admin token is noted so often at most. */
const adminUseEveryMs = 50_000;

export type Accounts = Awaited<ReturnType<typeof createAccounts>>;

export async function createAccounts(
  parts: GatewayParts,
  data: Data,
  settings: SettingsInUse,
  contentKeys: readonly Uint8Array[],
) {
  const { config, env, log, metrics, clock, outbound } = parts;
  const { postgres, hints, mailer } = data;
  const { approvalLimit, publicUrl } = settings;
  // Where the database is elsewhere, the environment alone gives the token. Empty: there is none.
  const adminToken =
    config.databaseUrl === undefined
      ? await findAdminToken(config.dataDir, config.adminToken)
      : (config.adminToken ?? "");
  const misplaced = new MisplacedUses(clock);
  const keys = createKeys({
    postgres,
    budgets: budgetsOfKeys,
    cell: config.cell,
    adminToken,
    resolveModel: (name) => settings.catalog.find(name)?.model.id,
    ...membersOfAccount,
    keysMax: () => settings.file.people.limits.keys,
    onMisplaced(use) {
      misplaced.note(use);
      billing.countRejected({ ...use, keyId: use.id }, new ApiError("address_not_allowed"));
    },
    onAdminUse: noteAdminUse(parts, data, settings),
    log,
    hints,
    maxWaitMs: config.ledgerMaxWaitMs,
    clock,
    metrics,
  });
  const billing = createBilling({
    postgres,
    hints,
    priceOf: (model, facts, list) => settings.catalog.priceOf(model, facts, list),
    offered: (model, list) => settings.catalog.offered(model, list),
    priceLists: settings.priceLists,
    file: () => settings.file,
    log,
    keys: keys.ofAccount,
    members: membersOfAccount,
    hasManagementKey: keys.ofAccount.hasManagementKey,
    approvalLimit,
    ownersMove: () => settings.file.payments?.ownersMove ?? false,
    maxWaitMs: config.ledgerMaxWaitMs,
    parent: parts.shared?.nodes,
    clock,
    metrics,
  });
  keys.onChanged(({ keyId }) => billing.onPricesChanged(keyId));
  const people = createPeople({
    postgres,
    cell: config.cell,
    contentKeys,
    approvalLimit,
    hasAdminToken: adminToken !== "",
    publicUrl,
    grpcAddress: settings.grpcAddress,
    keys: keys.managed,
    budgets: budgetsOfMembers,
    hints: hints && hintsOn(hints, "gateway:people-changed"),
    mailer,
    settings: settings.file.people,
    env,
    outbound,
    ensureAccount: billing.ensureAccount,
    forecastsOf: billing.forecastsOf,
    onMisplaced: (use) => misplaced.note(use),
    clock,
    log,
  });
  const authenticate = identifyBy(keys.authenticate, people.authenticate);
  return { adminToken, keys, billing, people, authenticate, misplaced };
}

function noteAdminUse(
  { config, log, metrics }: GatewayParts,
  { postgres }: Data,
  { publicUrl }: SettingsInUse,
): () => void {
  const installation = createInstallation({ postgres, publicUrl, cell: config.cell });
  let usedAtMs: number | undefined;
  metrics?.readOne("gateway_admin_token_used_seconds", () =>
    usedAtMs === undefined ? undefined : usedAtMs / 1_000,
  );
  return () => {
    const nowMs = Date.now();
    if (usedAtMs !== undefined && nowMs - usedAtMs <= adminUseEveryMs) return;
    usedAtMs = nowMs;
    installation.noteAdminToken().catch((err: unknown) => {
      log.debug({ err }, "the use of the admin token is not noted");
    });
  };
}

/**
 * Finds callers by each kind of credential: `Session …` is a person's, `Bearer adm-gw2-…` an admin
 * token of `people`, and any other is left to `keys`. So a session is never a key, nor a key a
 * session.
 */
export function identifyBy(keys: Authenticate, people: Authenticate): Authenticate {
  return (requestHeader, origin) =>
    isOfPeople(requestHeader.get("authorization") ?? "")
      ? people(requestHeader, origin)
      : keys(requestHeader, origin);
}
