// The first start of a gateway: it creates an account with credits in both pools, a key for each
// pool and an admin token, so that a first request can be paid. Every step is idempotent, so the
// next start completes one that was interrupted.

import { link, mkdir, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { CallOptions } from "@connectrpc/connect";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { randomSecret, timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { asService, type Core } from "../contract/contract.ts";
import type { Installation } from "../people/people.ts";

/** The content of `first-keys.json`. All but the admin token are absent if nothing was seeded. */
export type FirstKeys = {
  v1?: string;
  v2?: string;
  adminToken?: string;
  accountId?: string;
  /** Makes its first holder the operator and owner of the account, within 24 hours. */
  ownerLink?: string;
};

/** What the first start works with. */
export type SeedParts = {
  readonly core: Core;
  /** Empty: there is none. */
  readonly adminToken: string;
  /** False: the file does not keep the token, so that it ends with the setting ADMIN_TOKEN. */
  readonly savesToken?: boolean;
  readonly dataDir: string;
  readonly installation: Installation;
  /** Creates an account with this id, unless it exists. */
  ensureAccount(accountId: string, name: string): Promise<void>;
};

const accountName = "default";
const creditsMicro = 1_000n * 1_000_000n;
const families = [
  { family: Family.V1, name: "v1", keyName: "first v1 key", idempotencyKey: "first-start-v1" },
  { family: Family.V2, name: "v2", keyName: "first v2 key", idempotencyKey: "first-start-v2" },
] as const;

/**
 * The admin token: the configured one, or the one in the file, or a new one, which `seed` or
 * `saveAdminToken` writes to the file. Processes that start at once find the same one.
 */
export async function findAdminToken(
  dataDir: string,
  configured: string | undefined,
): Promise<string> {
  if (configured !== undefined) return configured;
  const known = (await readKeysFile(firstKeysPath(dataDir)))?.adminToken;
  if (known !== undefined) return known;
  const path = stagedPath(dataDir);
  const staged = await readStagedKeys(dataDir);
  if (staged?.adminToken !== undefined) return staged.adminToken;
  // A torn file of an interrupted start.
  if (staged === undefined) await rm(path, { force: true });
  const adminToken = randomSecret(32);
  const draft = await writeDraft(dataDir, { ...staged, adminToken });
  try {
    // Fails where another process was first.
    await link(draft, path);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    return findAdminToken(dataDir, configured);
  } finally {
    await rm(draft, { force: true });
  }
  // One that was even faster has given its file the final name by now.
  const published = (await readKeysFile(firstKeysPath(dataDir)))?.adminToken;
  if (published === undefined) return adminToken;
  await rm(path, { force: true });
  return published;
}

/**
 * Writes a generated admin token to the file if it is not there: after a start that seeds nothing,
 * or when the file was lost.
 */
export async function saveAdminToken(dataDir: string, adminToken: string, log: Log): Promise<void> {
  const file = await readKeysFile(firstKeysPath(dataDir));
  if (file?.adminToken === adminToken) return;
  await stageFirstKeys(dataDir, { ...file, adminToken });
  await publishFirstKeys(dataDir);
  log.warn(
    { code: "admin_token_made", file: firstKeysPath(dataDir) },
    "no admin token was found: a new one is in this file, and earlier generated ones are not valid",
  );
}

/**
 * Creates what the first start needs and is still missing. The file appears at the end, complete.
 * Resolves with the keys, or with undefined if nothing was missing.
 */
export async function seed(parts: SeedParts): Promise<FirstKeys | undefined> {
  const { core, adminToken, savesToken = true, dataDir, installation } = parts;
  const call: BootstrapCall =
    adminToken === ""
      ? { contextValues: asService("bootstrap") }
      : { headers: { authorization: `Bearer ${adminToken}` } };
  const accountId = await openAccount(parts);
  // The transfers are the last step of the services: if they are there, all earlier steps are done.
  const transferred = await listIdempotencyKeys(core, call, accountId);
  const missing = families.filter(({ idempotencyKey }) => !transferred.has(idempotencyKey));
  const staged = await readStagedKeys(dataDir);
  // A start that was interrupted at its very end left the complete file under the other name.
  if (missing.length === 0 && !hasKeysOf(accountId, staged)) return undefined;

  const found = [await readKeysFile(firstKeysPath(dataDir)), staged].find((file) =>
    hasKeysOf(accountId, file),
  );
  const keys = found ?? (await createKeys(core, call, accountId));
  const ownerLink = found?.ownerLink ?? (await installation.makeOwnerLink());
  const saved = savesToken ? { adminToken } : {};
  const file: FirstKeys = { ...keys, ...saved, accountId, ownerLink };
  await stageFirstKeys(dataDir, file);
  for (const { family, idempotencyKey } of missing) {
    const transfer = {
      accountId,
      family,
      kind: TransferKind.BONUS,
      amountMicrocredits: creditsMicro,
      idempotencyKey,
    };
    // As the gateway itself: nobody else may take these idempotency keys.
    const contextValues = asService("bootstrap");
    await core.billing.createTransfer({ ...transfer, reason: "first start" }, { contextValues });
  }
  await publishFirstKeys(dataDir);
  return file;
}

function hasKeysOf(accountId: string, file: FirstKeys | undefined): boolean {
  return file?.v1 !== undefined && file.v2 !== undefined && file.accountId === accountId;
}

type BootstrapCall = Pick<CallOptions, "headers" | "contextValues">;

/**
 * The account of the first start. The installation knows it by its id: an account of a customer may
 * have any name, and this one may be renamed.
 */
async function openAccount({ installation, ensureAccount }: SeedParts): Promise<string> {
  const accountId =
    (await installation.findFirstAccount()) ??
    (await installation.claimFirstAccount(timeOrderedId("acc_")));
  await ensureAccount(accountId, accountName);
  return accountId;
}

async function listIdempotencyKeys(
  core: Core,
  call: BootstrapCall,
  accountId: string,
): Promise<Set<string>> {
  const found = new Set<string>();
  let pageToken = "";
  do {
    const page = await core.billing.listTransfers({ accountId, pageSize: 1000, pageToken }, call);
    for (const { idempotencyKey } of page.transfers) found.add(idempotencyKey);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}

// A key of an interrupted start gets a new secret: the old one was never shown.
async function createKeys(
  core: Core,
  call: BootstrapCall,
  accountId: string,
): Promise<{ v1: string; v2: string }> {
  const { keys } = await core.keys.listKeys({ accountId, pageSize: 1000 }, call);
  const secretOf = async ({ family, keyName }: (typeof families)[number]) => {
    const found = keys.find((key) => key.name === keyName && key.state !== KeyState.REVOKED);
    const { secret } = found
      ? await core.keys.rotateKey({ keyId: found.keyId, overlap: { seconds: 0n } }, call)
      : await core.keys.createKey({ accountId, family, settings: { name: keyName } }, call);
    return secret;
  };
  return { v1: await secretOf(families[0]), v2: await secretOf(families[1]) };
}

/** How an operator comes to be on a machine that has none. */
export const signInLinkAdvice =
  "`npm run sign-in-link` on this machine prints a link that makes one " +
  "(without npm: node src/cli/sign-in-link.ts, with the same environment)";

/** The file to which the first start writes its keys. */
export function firstKeysPath(dataDir: string): string {
  return join(dataDir, "first-keys.json");
}

function stagedPath(dataDir: string): string {
  return `${firstKeysPath(dataDir)}.new`;
}

/** Undefined if there is no staged file, or if the start was interrupted while it wrote it. */
function readStagedKeys(dataDir: string): Promise<FirstKeys | undefined> {
  return readKeysFile(stagedPath(dataDir)).catch(() => undefined);
}

/** Undefined if there is no such file. */
async function readKeysFile(path: string): Promise<FirstKeys | undefined> {
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    // Without the cause: its message may quote a secret from the file.
    throw new Error(`${path} is not valid JSON; correct it, or move it away`);
  }
  const members: Map<string, unknown> = new Map(Object.entries(value ?? {}));
  const names = ["v1", "v2", "adminToken", "accountId", "ownerLink"] as const;
  const file: FirstKeys = {};
  for (const name of names) {
    const member = members.get(name);
    if (typeof member === "string") file[name] = member;
  }
  return file;
}

/** Writes the file under another name. It survives a crash of the machine. */
async function stageFirstKeys(dataDir: string, keys: FirstKeys): Promise<void> {
  await rename(await writeDraft(dataDir, keys), stagedPath(dataDir));
}

/** Writes a file that no other process knows. Returns its path. */
async function writeDraft(dataDir: string, keys: FirstKeys): Promise<string> {
  const path = `${stagedPath(dataDir)}-${randomSecret(6)}`;
  const { v1, v2, adminToken, accountId, ownerLink } = keys;
  await mkdir(dataDir, { recursive: true });
  const text = `${JSON.stringify({ v1, v2, adminToken, accountId, ownerLink }, null, 2)}\n`;
  await writeFile(path, text, { mode: 0o600, flush: true });
  return path;
}

/** Gives the staged file its name, so that a reader finds the whole file or none. */
async function publishFirstKeys(dataDir: string): Promise<void> {
  await rename(stagedPath(dataDir), firstKeysPath(dataDir));
  const folder = await open(dataDir, "r");
  await folder.sync().finally(() => folder.close());
}

/**
 * The text that the first start prints. `isTerminal` false: without a secret, since what is printed
 * is kept in a log or a journal.
 */
export function renderBanner(
  keys: FirstKeys,
  address: string,
  dataDir: string,
  isTerminal: boolean,
): string {
  if (!isTerminal)
    return `The model gateway runs at ${address}
The first keys, the admin token and the link to sign in are in ${firstKeysPath(dataDir)}`;
  return `
  The model gateway runs at ${address}

  v1 key       ${keys.v1}
  v2 key       ${keys.v2}
  admin token  ${keys.adminToken ?? "that of ADMIN_TOKEN"}
  sign in      ${keys.ownerLink}
               it makes you the operator and owner, once, within 24 hours

  They are saved in ${firstKeysPath(dataDir)} and not printed again.
  Each key's pool has 1,000 credits. A first paid request:

  curl ${address}/v1/messages \\
    -H 'x-api-key: ${keys.v1}' -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' \\
    -d '{"model":"haiku","max_tokens":100,"messages":[{"role":"user","content":"Hello"}]}'
`;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * the admin token that the first start made was lost; take the new one from the file that the
     * line names
     */
    admin_token_made: true;
  }
}
