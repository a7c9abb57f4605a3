// `npm run reconcile -- LOG… [--post] [--apply]`: lists the charges that gateways have logged and
// the ledger lacks, after a failover that lost commits or from a restored backup, and what was
// revoked, suspended or disabled and is in use again. `--post` books one adjustment for each pool
// and day, `--apply` withdraws again; a repeat does nothing twice. Exit status: 0 when nothing is
// missing or all of it was done, 1 otherwise, 64 for wrong arguments.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { getOption } from "@bufbuild/protobuf";
import { BillingService, TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { createLog } from "../base/log.ts";
import {
  type Billing,
  type Correction,
  compareCharges,
  correctionsFor,
  createBilling,
  type Difference,
  type LoggedCharge,
  parseLogLine,
} from "../billing/billing.ts";
import { readCommandConfig } from "../config/environment.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { openLedger } from "../postgres/open-ledger.ts";
import { checkDatabase } from "../postgres/preflight.ts";
import { startupErrorMessage } from "../server/startup-error.ts";
import { type Act, parseAuditLine, withdrawAgain } from "./withdrawals.ts";

// EX_USAGE of sysexits.h.
const exitUsage = 64;
/** Charges are looked up so many at a time. */
const pageSize = 1_000;

const args = process.argv.slice(2);
const posts = args.includes("--post");
const applies = args.includes("--apply");
const files = args.filter((arg) => arg !== "--post" && arg !== "--apply");
if (files.length === 0 || files.some((file) => file.startsWith("-"))) {
  console.error("usage: npm run reconcile -- LOG… [--post] [--apply]");
  process.exit(exitUsage);
}

const config = readCommandConfig(process.env);
const log = createLog("warn");

try {
  await using stack = new AsyncDisposableStack();
  const { logged, acts, faults } = await readLogs(files);
  const url = config.databaseUrl ?? (await startDatabase(stack));
  if (config.databaseUrl !== undefined) await checkDatabase(url);
  const { migrationDatabaseUrl: ownerUrl } = config;
  const ledger = await openLedger({ url, ownerUrl }, log);
  const postgres = stack.adopt(ledger.postgres, (one) => one.close());
  const billing = createBilling({ postgres, priceOf: () => undefined, log });

  const found = await findDifferences(billing, logged);
  const archived = new Set(
    await billing.findArchived(found.filter((one) => one.ledgerMicro === undefined)),
  );
  const differences = found.filter((one) => !archived.has(one));
  if (archived.size > 0)
    console.log(`charges of archived months, which are not compared: ${archived.size}`);
  for (const difference of differences) console.log(describe(difference));
  console.log(`charges in the logs: ${logged.length}, not in the ledger: ${differences.length}`);
  const running = await countRunning(billing, differences);
  if (running > 0)
    faults.push(
      `${running} of these requests hold credits: start a gateway, which charges them within 15 ` +
        "seconds, and repeat this command; until then nothing is booked",
    );
  let isBooked = true;
  for (const correction of running > 0 ? [] : correctionsFor(differences))
    if (!(await book(billing, correction))) isBooked = false;
  const inUse = await withdrawAgain(acts, { postgres, log, applies });
  for (const fault of faults) console.error(fault);
  process.exitCode = isBooked && inUse === 0 && faults.length === 0 ? 0 : 1;
} catch (error) {
  console.error(startupErrorMessage(error, config));
  process.exitCode = 1;
}

/** The charges of all files, each request once; acts; and the lines that cannot be understood. */
async function readLogs(
  paths: readonly string[],
): Promise<{ logged: LoggedCharge[]; acts: Act[]; faults: string[] }> {
  const logged = new Map<string, LoggedCharge>();
  const acts: Act[] = [];
  const faults: string[] = [];
  for (const path of paths) {
    let number = 0;
    for await (const text of createInterface({ input: createReadStream(path) })) {
      number += 1;
      try {
        const charge = parseLogLine(text);
        if (charge) logged.set(`${charge.accountId}/${charge.requestId}`, charge);
        const act = parseAuditLine(text);
        if (act) acts.push(act);
      } catch (error) {
        faults.push(`${path}:${number}: ${error instanceof Error ? error.message : error}`);
      }
    }
  }
  return { logged: [...logged.values()], acts, faults };
}

async function findDifferences(
  billing: Billing,
  logged: readonly LoggedCharge[],
): Promise<Difference[]> {
  const differences: Difference[] = [];
  for (let from = 0; from < logged.length; from += pageSize) {
    const page = logged.slice(from, from + pageSize);
    differences.push(...compareCharges(page, await billing.findAmounts(page)));
  }
  return differences;
}

// A restored ledger has the holds of the requests that ran then. A gateway will charge them.
async function countRunning(billing: Billing, differences: readonly Difference[]): Promise<number> {
  let running = 0;
  for (let from = 0; from < differences.length; from += pageSize)
    running += await billing.countRunning(differences.slice(from, from + pageSize));
  return running;
}

function describe(difference: Difference): string {
  const { accountId, family, requestId, amountMicro, ledgerMicro } = difference;
  const found = ledgerMicro === undefined ? "lost" : `the ledger has ${ledgerMicro}`;
  return `${accountId}/${family} ${requestId}: ${amountMicro} micro-credits, ${found}`;
}

/** Prints what a pool lacks, and books it if asked to. False when it is not booked. */
async function book(billing: Billing, correction: Correction): Promise<boolean> {
  const { accountId, family, amountMicro, idempotencyKey, requests } = correction;
  const pool = `${accountId}/${familyName(family)}`;
  const what = `${pool}: ${amountMicro} micro-credits for ${requests} charges`;
  if (!posts) {
    console.log(`to book with --post: ${what}`);
    return false;
  }
  const call = {
    signal: new AbortController().signal,
    requestHeader: new Headers(),
    caller: { kind: "internal", service: "reconcile" } as const,
    allowed: getOption(BillingService.method.createTransfer, callers),
    accountId,
  };
  try {
    await billing.service.createTransfer(
      {
        $typeName: "gateway.billing.v1.CreateTransferRequest",
        accountId,
        family,
        idempotencyKey,
        kind: TransferKind.ADJUSTMENT,
        amountMicrocredits: amountMicro,
        reason: `reconcile: ${requests} charges that the ledger lacked`,
      },
      call,
    );
    console.log(`booked as ${idempotencyKey}: ${what}`);
    return true;
  } catch (error) {
    const { reason, message } = toApiError(error);
    const hint =
      reason === "idempotency_key_reused"
        ? "this day was reconciled with other logs; give the logs of all gateways at once"
        : message;
    console.log(`NOT booked: ${what}: ${hint}`);
    return false;
  }
}

async function startDatabase(stack: AsyncDisposableStack): Promise<string> {
  const { url } = stack.adopt(await startEmbedded(config.dataDir, log), (one) => one.stop());
  return url;
}
