// Downloads of the console: all data of an account, as lines of JSON. They are streamed: neither
// the service nor this listener ever holds more than a page of it.

import { Readable } from "node:stream";
import { toJson } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import type { FastifyReply, FastifyRequest } from "fastify";
import {
  type ExportAccountResponse,
  ExportAccountResponseSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import { ApiError } from "../base/errors.ts";
import { closed, described, text } from "../base/json-schema.ts";
import { dropOperatorRole, nameClient } from "../contract/callers.ts";
import type { Core } from "../contract/contract.ts";
import type { createSessionCookie } from "./session-cookie.ts";

export type AccountExportParts = {
  readonly core: Core;
  readonly cookies: Pick<ReturnType<typeof createSessionCookie>, "tokenOfDownload">;
  /** Throws if the credential is not good, or not good here. */
  readonly identify: (
    attempt: { authorization: string; address: string },
    call: CallOptions,
  ) => Promise<unknown>;
  /** False: operators are here what they are in their accounts, and nothing else. */
  readonly adminMethods: boolean;
  /** Throws for a client that has too many requests in progress. */
  checkRequest(request: FastifyRequest): void;
  isDraining(): boolean;
};

/** What the public description says of the export. */
export function describedAccountExport(path: string) {
  return {
    method: "GET",
    path,
    credential: "cookie",
    operation: {
      id: "exportAccount",
      summary: "Downloads all data of an account, as lines of JSON",
      description:
        "Each line is an object with one member, which says what it is. The last line is `end`: a " +
        "file without it is not whole.",
      query: { account: described("The account.", text) },
      answer: { "application/x-ndjson": text },
      failures: { default: closed({ error: closed({ code: text, message: text }) }) },
    },
  } as const;
}

type Download = { readonly headers: Record<string, string>; readonly body: Readable };

/**
 * `?account=` names the account. Each line is an object with one member, which says what it is:
 * `account`, `pool`, `transfer`, `key`, `managementKey`, `member`, `invitation`, `auditEvent`,
 * `order`, `document`, `charge`, and `archived` if older charges are; the last line is `end`. An
 * export that fails is cut off, so it has no last line.
 */
export async function getAccountExport(
  parts: AccountExportParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<Download> {
  const stopped = new AbortController();
  reply.raw.once("close", () => stopped.abort());
  const call = await callOf(parts, request, stopped.signal);
  const accountId = String(Reflect.get(Object(request.query), "account") ?? "");
  const pages = parts.core.billing.exportAccount({ accountId }, call)[Symbol.asyncIterator]();
  // The status line waits for the first page: until then the call can fail as any other.
  const first = await pages.next();
  const named = first.value?.account?.accountId ?? "";
  return {
    headers: {
      "content-type": "application/x-ndjson; charset=utf-8",
      "content-disposition": `attachment; filename="account-${named}.ndjson"`,
    },
    body: Readable.from(linesOf(first, pages), { objectMode: false, highWaterMark: 65_536 }),
  };
}

async function callOf(
  { cookies, identify, adminMethods, checkRequest, isDraining }: AccountExportParts,
  request: FastifyRequest,
  signal: AbortSignal,
): Promise<CallOptions> {
  if (isDraining()) throw new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
  checkRequest(request);
  const token = cookies.tokenOfDownload(request.headers);
  const authorization =
    request.headers.authorization ?? (token === undefined ? "" : `Session ${token}`);
  if (authorization === "") throw new ApiError("missing_key", { message: "Sign in first." });
  const headers = new Headers({ authorization });
  if (!adminMethods) dropOperatorRole(headers);
  nameClient(headers, { address: request.ip, agent: request.headers["user-agent"] ?? "" });
  const call = { headers, signal };
  await identify({ authorization, address: request.ip }, call);
  return call;
}

async function* linesOf(
  first: IteratorResult<ExportAccountResponse>,
  pages: AsyncIterator<ExportAccountResponse>,
): AsyncGenerator<string, void> {
  try {
    let lines = 0;
    for (let read = first; !read.done; read = await pages.next()) {
      const page = linesOfPage(read.value);
      lines += page.length;
      yield page.join("");
    }
    yield `${JSON.stringify({ end: { lines } })}\n`;
  } finally {
    // The reader may have left.
    await pages.return?.();
  }
}

/** What one entry of a list is called. */
const entryNames = {
  pools: "pool",
  transfers: "transfer",
  keys: "key",
  managementKeys: "managementKey",
  members: "member",
  invitations: "invitation",
  auditEvents: "auditEvent",
  charges: "charge",
  orders: "order",
  documents: "document",
  alerts: "alert",
} as const satisfies Partial<Record<keyof ExportAccountResponse, string>>;

function linesOfPage(page: ExportAccountResponse): string[] {
  const json = Object(toJson(ExportAccountResponseSchema, page));
  const lines: string[] = [];
  if (json.account) lines.push(lineOf("account", json.account));
  for (const [list, name] of Object.entries(entryNames))
    for (const entry of json[list] ?? []) lines.push(lineOf(name, entry));
  if (json.archivedBefore) lines.push(lineOf("archived", { before: json.archivedBefore }));
  return lines;
}

function lineOf(name: string, entry: unknown): string {
  return `${JSON.stringify({ [name]: entry })}\n`;
}
