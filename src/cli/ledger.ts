// What the commands that work on the ledger have in common.

import { createLog } from "../base/log.ts";
import { readCommandConfig } from "../config/environment.ts";
import { HistoryError } from "../history/history.ts";
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

/** Opens the ledger as a gateway does, and runs `work`. Prints what fails, and sets the status. */
export async function onLedger(work: (ledger: OpenLedger) => Promise<void>): Promise<void> {
  const config = readCommandConfig(process.env);
  const log = createLog("warn");
  try {
    await using stack = new AsyncDisposableStack();
    let url = config.databaseUrl;
    if (url !== undefined) await checkDatabase(url);
    else {
      const embedded = stack.adopt(await startEmbedded(config.dataDir, log), (one) => one.stop());
      ({ url } = embedded);
    }
    const { migrationDatabaseUrl: ownerUrl } = config;
    const ledger = await openLedger({ url, ownerUrl }, log);
    stack.adopt(ledger.postgres, (one) => one.close());
    await work(ledger);
  } catch (error) {
    const message =
      error instanceof HistoryError ? error.message : startupErrorMessage(error, config);
    console.error(message);
    process.exitCode = 1;
  }
}
