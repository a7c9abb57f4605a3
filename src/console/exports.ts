// Files that people download: `GET /console/export/charges.csv?account=…&from=…&to=…&key=…`,
// `usage.csv`, `orders.csv`, `documents.csv`, `transfers.csv`, and `keys.csv` in `keys-file.ts`;
// those of operators are in `sales-files.ts`. The browser sends the session as a cookie, since a
// link has no headers. Both
// call the services, so a facade serves the same files.

import { Readable } from "node:stream";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import { codeToHttpStatus } from "@connectrpc/connect/protocol-connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { Bucket, UsageGroup, type UsageRow } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { csvLine, textCell } from "../base/csv.ts";
import { ApiError, errorCatalog, invalidField, shuttingDown, toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { closed, described, oneOf, type Schema, text } from "../base/json-schema.ts";
import { credits, parseCredits, usd } from "../base/money.ts";
import {
  asParam,
  choiceOf,
  listParam,
  type Query,
  rangeParams,
  readQuery,
  textParam,
} from "../base/query.ts";
import { reportRowsMax } from "../base/shown-figures.ts";
import { parseTags } from "../base/tags.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import { dropOperatorRole, nameClient } from "../contract/callers.ts";
import type { Core } from "../contract/contract.ts";
import { keysFile } from "./keys-file.ts";
import { salesFiles } from "./sales-files.ts";
import type { createSessionCookie } from "./session-cookie.ts";

export type ExportParts = {
  readonly core: Core;
  readonly cookies: ReturnType<typeof createSessionCookie>;
  /** False: operators are here what they are in their accounts, and nothing else. */
  readonly adminMethods: boolean;
  /** Throws for a client that has too many requests in progress. */
  checkRequest(request: FastifyRequest): void;
  /** True after the listener has stopped accepting requests. */
  readonly isDraining: () => boolean;
};

/** The lines of a file. */
type Lines = (core: Core, query: Query, options: CallOptions) => AsyncIterable<string>;

/** A file, with the parameters of its query and what the public description says of it. */
export type ExportFile = {
  readonly id: string;
  readonly summary: string;
  readonly parameters: Readonly<Record<string, Schema>>;
  readonly lines: Lines;
};

const buckets = { hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH };
const ofBoth = {
  account: described("The account. May be absent for a member of one account.", text),
  from: described("A day, or a time with its offset: the first time of admission.", text),
  to: described("The end of the range, exclusive.", text),
  key: described("Only these keys, separated by commas.", text),
};

const ofMoney = {
  account: ofBoth.account,
  all: described("`true`: of all accounts. Operators only.", text),
  from: described("A day, or a time with its offset: the first time.", text),
  to: ofBoth.to,
};

const files: Readonly<Record<string, ExportFile>> = {
  "charges.csv": {
    id: "downloadCharges",
    summary: "Downloads the charges of an account, a line for each",
    parameters: { ...ofBoth, key: described("Only this key.", text) },
    lines: chargeLines,
  },
  "usage.csv": {
    id: "downloadUsage",
    summary: "Downloads sums of charges by time, key, model and family",
    parameters: {
      ...ofBoth,
      model: described("Only these models, separated by commas.", text),
      bucket: described("The time that one line covers. Default: a day.", {
        ...oneOf(...Object.keys(buckets)),
      }),
      tag: described("Only requests with this tag, such as `team=a`.", text),
      group_by_tag: described("The key of a tag: each of its values gets lines of its own.", text),
    },
    lines: usageLines,
  },
  "orders.csv": {
    id: "downloadOrders",
    summary: "Downloads orders of credits, newest first, a line for each",
    parameters: {
      ...ofMoney,
      state: described("Only orders in these states, separated by commas.", text),
      attention: described("`true`: only orders that wait for a person.", text),
      processor: described("Only orders of this processor.", text),
      asset: described("Only orders of this coin, such as `BTC`.", text),
      least_usd: described("Only orders of this many dollars or more.", text),
    },
    lines: orderLines,
  },
  "documents.csv": {
    id: "downloadDocuments",
    summary: "Downloads receipts and credit notes, oldest first, a line for each",
    parameters: ofMoney,
    lines: documentLines,
  },
  "transfers.csv": {
    id: "downloadTransfers",
    summary: "Downloads transfers of credits, newest first, a line for each",
    parameters: ofMoney,
    lines: transferLines,
  },
  "keys.csv": keysFile,
  ...salesFiles,
};

const orderStates = {
  open: OrderState.OPEN,
  seen: OrderState.SEEN,
  partly_paid: OrderState.PARTLY_PAID,
  paid: OrderState.PAID,
  expired: OrderState.EXPIRED,
  cancelled: OrderState.CANCELLED,
  closed: OrderState.CLOSED,
};

/** Of which account, and when. */
function ownedParams(query: Query) {
  const allAccounts = textParam(query, "all") === "true";
  return { accountId: textParam(query, "account"), allAccounts };
}

async function* orderLines(core: Core, query: Query, options: CallOptions): AsyncGenerator<string> {
  const least = textParam(query, "least_usd");
  // Dollars have six places, as credits have.
  const dollars = least === "" ? 0n : parseCredits(least);
  if (dollars === undefined) throw invalidField("least_usd", "is an amount of dollars");
  const filter = {
    ...rangeParams(query),
    states: listParam(query, "state").map((name) => choiceOf(orderStates, "state", name)),
    needsAttention: textParam(query, "attention") === "true",
    processor: textParam(query, "processor"),
    asset: textParam(query, "asset"),
    minMicrodollars: dollars,
  };
  const request = { ...ownedParams(query), filter };
  for await (const { csv } of core.payments.exportOrders(request, options)) yield csv;
}

async function* documentLines(
  core: Core,
  query: Query,
  options: CallOptions,
): AsyncGenerator<string> {
  const request = { ...rangeParams(query), ...ownedParams(query) };
  for await (const { csv } of core.payments.exportDocuments(request, options)) yield csv;
}

async function* transferLines(
  core: Core,
  query: Query,
  options: CallOptions,
): AsyncGenerator<string> {
  const request = { ...rangeParams(query), ...ownedParams(query) };
  for await (const { csv } of core.billing.exportTransfers(request, options)) yield csv;
}

/** Of every answer of the console that is an error. */
const errorSchema = closed({ error: closed({ reason: text, message: text }, { field: text }) });

async function* chargeLines(
  core: Core,
  query: Query,
  options: CallOptions,
): AsyncGenerator<string> {
  const keyId = textParam(query, "key");
  const request = { ...rangeParams(query), accountId: textParam(query, "account"), keyId };
  for await (const { csv } of core.billing.exportCharges(request, options)) yield csv;
}

const usageColumns = [
  ...["from", "key_id", "model", "family", "requests", "completed", "failed", "cut"],
  ...tokenCategories.map((category) => categoryColumns[category]),
  "web_searches",
  "charge_credits",
];

/**
 * A line for each key, model and family in each bucket, and for each value of a tag if one is
 * named. A day is the default.
 */
async function* usageLines(core: Core, query: Query, options: CallOptions): AsyncGenerator<string> {
  const request = {
    ...rangeParams(query),
    accountId: textParam(query, "account"),
    bucket: choiceOf(buckets, "bucket", textParam(query, "bucket") || "day"),
    groupBy: [UsageGroup.KEY, UsageGroup.MODEL, UsageGroup.FAMILY],
    keyIds: listParam(query, "key"),
    models: listParam(query, "model"),
    tags: parseTags(textParam(query, "tag"), "tag"),
    groupByTag: textParam(query, "group_by_tag"),
    pageSize: reportRowsMax,
  };
  const byTag = request.groupByTag !== "";
  let pageToken = "";
  const added = ["key_name", "charge_usd"];
  let head = csvLine([...usageColumns, ...(byTag ? ["tag_value"] : []), ...added]);
  do {
    const page = await core.billing.queryUsage({ ...request, pageToken }, options);
    const names = new Map(page.keys.map(({ keyId, name }) => [keyId, name]));
    yield head + page.rows.map((row) => usageLine(row, byTag, names)).join("");
    head = "";
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

function usageLine(
  { startAt: from, keyId, model, family, sums, tagValue }: UsageRow,
  byTag: boolean,
  names: ReadonlyMap<string, string>,
): string {
  const { usage } = sums ?? {};
  return csvLine([
    from ? timestampDate(from).toISOString() : "",
    keyId,
    textCell(model),
    familyName(family) ?? "",
    ...[sums?.requests ?? 0n, sums?.completed ?? 0n, sums?.failed ?? 0n, sums?.cut ?? 0n],
    ...tokenCategories.map((category) => usage?.[category] ?? 0n),
    usage?.webSearches ?? 0n,
    credits(sums?.chargedMicrocredits ?? 0n),
    ...(byTag ? [textCell(tagValue)] : []),
    textCell(names.get(keyId) ?? ""),
    usd(sums?.chargedMicrocredits ?? 0n),
  ]);
}

/** Adds the route of each file. `withHeaders` sets the headers of every answer of the console. */
export function registerExports(
  app: FastifyInstance,
  parts: ExportParts,
  withHeaders: (reply: FastifyReply) => FastifyReply,
): void {
  for (const [name, { id, summary, parameters, lines }] of Object.entries(files)) {
    const path = `/console/export/${name}`;
    const operation = {
      ...{ id, summary, query: parameters },
      answer: { "text/csv": text },
      failures: { default: errorSchema },
    };
    app.route({
      method: "GET",
      url: path,
      // A HEAD would write the whole file, for nobody.
      exposeHeadRoute: false,
      config: {
        isVariant: true,
        described: { method: "GET", path, credential: "cookie", operation },
      },
      handler: async (request, reply) => {
        withHeaders(reply);
        try {
          if (parts.isDraining()) throw shuttingDown();
          const options = callOf(request, reply, parts);
          const file = lines(
            parts.core,
            readQuery(request.query, Object.keys(parameters)),
            options,
          );
          const body = await begun(file);
          return reply
            .header("content-type", "text/csv; charset=utf-8")
            .header("content-disposition", `attachment; filename="${name}"`)
            .send(Readable.from(body, { objectMode: false, highWaterMark: 65_536 }));
        } catch (error) {
          return sendError(reply, asParam(toApiError(error), request.query));
        }
      },
    });
  }
}

/** The call of a signed-in person, which ends when the browser hangs up. */
function callOf(
  request: FastifyRequest,
  reply: FastifyReply,
  { cookies, adminMethods, checkRequest }: ExportParts,
): CallOptions {
  checkRequest(request);
  const token = cookies.tokenOfDownload(request.headers);
  if (token === undefined) throw new ApiError("invalid_session");
  const headers = new Headers({ authorization: `Session ${token}` });
  if (!adminMethods) dropOperatorRole(headers);
  nameClient(headers, { address: request.ip, agent: request.headers["user-agent"] ?? "" });
  const hangUp = new AbortController();
  reply.raw.once("close", () => hangUp.abort());
  return { headers, signal: hangUp.signal };
}

/** The same lines, of which the first have come: an error before them has a status of its own. */
async function begun(lines: AsyncIterable<string>): Promise<AsyncIterable<string>> {
  const iterator = lines[Symbol.asyncIterator]();
  const first = await iterator.next();
  return (async function* () {
    try {
      for (let next = first; !next.done; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  })();
}

function sendError(reply: FastifyReply, error: ApiError): FastifyReply {
  const { reason, message, facts } = error;
  if (facts.retryAfterMs !== undefined)
    reply.header("retry-after", String(Math.ceil(facts.retryAfterMs / 1000)));
  const field = facts.field === undefined ? {} : { field: facts.field };
  return reply
    .code(codeToHttpStatus(errorCatalog[reason].rpc))
    .send({ error: { reason, message, ...field } });
}
