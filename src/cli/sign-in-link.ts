// `npm run sign-in-link [-- --person ID]`: prints a one-time link. Without a person, it makes its
// holder an operator, who owns the account of the first start. With one, it lets a person in who
// has lost every way in. Exit status: 0, or 1 if no link could be made.

import { parseArgs } from "node:util";
import { plainCell } from "../base/cells.ts";
import { toApiError } from "../base/errors.ts";
import { createLog } from "../base/log.ts";
import { readCommandConfig } from "../config/environment.ts";
import { createInstallation } from "../people/people.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { openLedger } from "../postgres/open-ledger.ts";
import { startupErrorMessage } from "../server/startup-error.ts";

const config = readCommandConfig(process.env);
const log = createLog("warn");

try {
  // Its link would lead to this machine.
  if (!config.publicUrl && (config.role !== "all" || config.cell !== plainCell))
    throw new Error("configuration:\n  PUBLIC_URL: is required with ROLE or CELL");
  const { person } = parseArgs({ options: { person: { type: "string" } } }).values;
  await using stack = new AsyncDisposableStack();
  const url = config.databaseUrl ?? (await startDatabase(stack));
  const { migrationDatabaseUrl: ownerUrl } = config;
  const ledger = await openLedger({ url, ownerUrl }, log);
  const postgres = stack.adopt(ledger.postgres, (one) => one.close());
  const publicUrl = config.publicUrl ?? new URL(`http://localhost:${config.port}`);
  const installation = createInstallation({
    postgres,
    publicUrl: () => publicUrl,
    cell: config.cell,
  });
  await installation.claimCell();
  const link =
    person === undefined
      ? await installation.makeOwnerLink()
      : await installation.makeSignInLink(person);
  console.log(`Open this link within 24 hours. It works once:\n\n${link}\n`);
} catch (error) {
  const isNotFound = toApiError(error).reason === "not_found";
  console.error(isNotFound ? "there is no such person" : startupErrorMessage(error, config));
  process.exitCode = 1;
}

async function startDatabase(stack: AsyncDisposableStack): Promise<string> {
  const { url } = stack.adopt(await startEmbedded(config.dataDir, log), (one) => one.stop());
  return url;
}
