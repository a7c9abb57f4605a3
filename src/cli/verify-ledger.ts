// `npm run verify-ledger`: checks every invariant of the ledger and prints what does not hold. Exit
// status 1 if anything does not.

import { createLog } from "../base/log.ts";
import { createBilling } from "../billing/billing.ts";
import { readConfig } from "../config/environment.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { migrate } from "../postgres/migrate.ts";
import { connectPostgres } from "../postgres/postgres.ts";
import { startupErrorMessage } from "../server/startup-error.ts";

// Nothing here asks the gateway itself, so the admin token is not needed.
const config = readConfig({ ADMIN_TOKEN: "not-needed-to-verify", ...process.env });
const log = createLog("warn");

try {
  const embedded =
    config.databaseUrl === undefined ? await startEmbedded(config.dataDir, log) : undefined;
  const url = config.databaseUrl ?? embedded?.url ?? "";
  await migrate(url);
  const postgres = connectPostgres(url);
  const { service } = createBilling({ postgres, priceOf: () => undefined, log, onLost: () => {} });
  const call = {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller: { kind: "admin" as const },
  };
  const { violations } = await service.verifyLedger(
    { $typeName: "gateway.billing.v1.VerifyLedgerRequest" },
    call,
  );
  await postgres.close();
  await embedded?.stop();
  for (const { invariant, subject, detail } of violations)
    console.log(`${invariant}: ${subject}: ${detail}`);
  console.log(
    violations.length === 0 ? "the ledger is in order" : `${violations.length} violations`,
  );
  process.exitCode = violations.length === 0 ? 0 : 1;
} catch (error) {
  console.error(startupErrorMessage(error, config));
  process.exitCode = 1;
}
