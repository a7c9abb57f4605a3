// What the commands that work on the ledger have in common.

import { getOption } from "@bufbuild/protobuf";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { VerificationService } from "../../gen/gateway/verification/v1/verification_pb.ts";
import type { PartName } from "../base/actors.ts";
import { createLog } from "../base/log.ts";
import { createBilling } from "../billing/billing.ts";
import { readCommandConfig } from "../config/environment.ts";
import { HistoryError } from "../history/history.ts";
import { BackupError } from "../postgres/backup.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { type OpenLedger, openLedger } from "../postgres/open-ledger.ts";
import { checkDatabase } from "../postgres/preflight.ts";
import { startupErrorMessage } from "../server/startup-error.ts";

/** EX_USAGE of sysexits.h. */
export const exitUsage = 64;

/** The values of `--name value`, each once. Undefined for all of them if there is anything else. */
export function readArguments<Name extends string>(
  args: readonly string[],
  names: readonly Name[],
): Partial<Record<Name, string>> {
  const values: Partial<Record<Name, string>> = {};
  for (let index = 0; index < args.length; index += 2) {
    const name = names.find((one) => args[index] === `--${one}`);
    const value = args[index + 1];
    if (name === undefined || value === undefined || value === "" || name in values) return {};
    values[name] = value;
  }
  return values;
}

const log = createLog("warn");

/** The addresses of the gateway's database: `owner` may migrate it. */
export type Database = { readonly url: string; readonly owner: string };

/**
 * Starts the embedded database if there is no other, and runs `work`. Prints what fails, and sets
 * the exit status to 1.
 */
export async function onDatabase(work: (database: Database) => Promise<void>): Promise<void> {
  const config = readCommandConfig(process.env);
  try {
    await using stack = new AsyncDisposableStack();
    let url = config.databaseUrl;
    if (url !== undefined) await checkDatabase(url);
    else {
      const embedded = stack.adopt(await startEmbedded(config.dataDir, log), (one) => one.stop());
      ({ url } = embedded);
    }
    await work({ url, owner: config.migrationDatabaseUrl ?? url });
  } catch (error) {
    const isSentence = error instanceof HistoryError || error instanceof BackupError;
    console.error(isSentence ? error.message : startupErrorMessage(error, config));
    process.exitCode = 1;
  }
}

/** As `onDatabase`, with the ledger opened as a gateway does, which migrates it. */
export function onLedger(work: (ledger: OpenLedger) => Promise<void>): Promise<void> {
  return onDatabase((database) => withLedger(database, work));
}

/** Opens the ledger as a gateway does, which migrates it, and runs `work`. */
export async function withLedger(
  { url, owner }: Database,
  work: (ledger: OpenLedger) => Promise<void>,
): Promise<void> {
  const ledger = await openLedger({ url, ownerUrl: owner === url ? undefined : owner }, log);
  try {
    await work(ledger);
  } finally {
    await ledger.postgres.close();
  }
}

/** Checks every invariant of the ledger and prints each violation. Sets the exit status to 1. */
export async function verify({ postgres }: OpenLedger, service: PartName): Promise<void> {
  const billing = createBilling({ postgres, priceOf: () => undefined, log });
  const call = {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller: { kind: "internal" as const, service },
    allowed: getOption(VerificationService.method.verifyLedger, callers),
    accountId: "",
  };
  const { violations } = await billing.service.verifyLedger(
    { $typeName: "gateway.verification.v1.VerifyLedgerRequest" },
    call,
  );
  for (const { invariant, subject, detail } of violations)
    console.log(`${invariant}: ${subject}: ${detail}`);
  console.log(
    violations.length === 0 ? "the ledger is consistent" : `violations: ${violations.length}`,
  );
  if (violations.length > 0) process.exitCode = 1;
}
