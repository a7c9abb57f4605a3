// `npm run verify-ledger`: checks every invariant of the ledger and prints each violation. Exit
// status: 0 without violations, 1 with violations or if the check cannot run.

import { getOption } from "@bufbuild/protobuf";
import { BillingService } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { createLog } from "../base/log.ts";
import { createBilling } from "../billing/billing.ts";
import { readCommandConfig } from "../config/environment.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { openLedger } from "../postgres/open-ledger.ts";
import { checkDatabase } from "../postgres/preflight.ts";
import { startupErrorMessage } from "../server/startup-error.ts";

const config = readCommandConfig(process.env);
const log = createLog("warn");

try {
  await using stack = new AsyncDisposableStack();
  const url = config.databaseUrl ?? (await startDatabase(stack));
  if (config.databaseUrl !== undefined) await checkDatabase(url);
  const { migrationDatabaseUrl: ownerUrl } = config;
  const ledger = await openLedger({ url, ownerUrl }, log);
  const postgres = stack.adopt(ledger.postgres, (one) => one.close());
  const { service } = createBilling({ postgres, priceOf: () => undefined, log, onLost: () => {} });
  const call = {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller: { kind: "internal" as const, service: "verify-ledger" },
    allowed: getOption(BillingService.method.verifyLedger, callers),
    accountId: "",
  };
  const { violations } = await service.verifyLedger(
    { $typeName: "gateway.billing.v1.VerifyLedgerRequest" },
    call,
  );
  for (const { invariant, subject, detail } of violations)
    console.log(`${invariant}: ${subject}: ${detail}`);
  console.log(
    violations.length === 0 ? "the ledger is consistent" : `violations: ${violations.length}`,
  );
  process.exitCode = violations.length === 0 ? 0 : 1;
} catch (error) {
  console.error(startupErrorMessage(error, config));
  process.exitCode = 1;
}

async function startDatabase(stack: AsyncDisposableStack): Promise<string> {
  const { url } = stack.adopt(await startEmbedded(config.dataDir, log), (one) => one.stop());
  return url;
}
