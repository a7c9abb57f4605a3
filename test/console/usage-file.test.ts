// The file of usage, from a row whose figures all differ: each cell is what its column says.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import fastify from "fastify";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { SessionGrantSchema } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  Bucket,
  QueryUsageRequestSchema,
  QueryUsageResponseSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { reportRowsMax } from "../../src/base/shown-figures.ts";
import { registerExports } from "../../src/console/exports.ts";
import { createSessionCookie } from "../../src/console/session-cookie.ts";
import { localCore } from "../../src/contract/contract.ts";
import { leastAccountId } from "../support/samples/messages.ts";
import { scriptedServices } from "../support/scripted-services.ts";

const at = Date.UTC(2026, 10, 22);
const day = (text: string) => timestampFromDate(new Date(`${text}T00:00:00Z`));

test("each cell of the file of usage is that of its row, and a page follows the other", async () => {
  const asked: unknown[] = [];
  const core = localCore(
    scriptedServices({
      async unary(_, request) {
        asked.push(request);
        return create(QueryUsageResponseSchema, {
          rows: [
            {
              ...{ startAt: timestampFromMs(at), keyId: "key_1", model: "=m", family: Family.V2 },
              sums: {
                ...{ requests: 60n, completed: 10n, failed: 20n, cut: 30n },
                ...{ chargedMicrocredits: 7_000_001n },
                usage: {
                  ...{ input: 1n, output: 2n, thinking: 3n, cacheWrite5m: 4n, cacheWrite1h: 5n },
                  ...{ cacheRead: 6n, webSearches: 8n },
                },
              },
              tagValue: "blue",
            },
          ],
          keys: [{ keyId: "key_1", name: "deploy" }],
          nextPageToken: asked.length === 1 ? "next" : "",
        });
      },
      async *stream() {},
    }),
  );
  const cookies = createSessionCookie(() => new URL("https://gateway.example"));
  const app = fastify();
  const parts = { core, cookies, adminMethods: true, checkRequest() {}, isDraining: () => false };
  registerExports(app, parts, (reply) => reply);
  const grant = create(SessionGrantSchema, { token: "owner", expiresAt: day("2100-01-01") });
  const answer = await app.inject({
    url: "/console/export/usage.csv",
    query: {
      ...{ account: leastAccountId, from: "2026-11-01", to: "2026-12-01", bucket: "hour" },
      ...{ key: "key_1,key_2", model: "m1,m2", tag: "team=a", group_by_tag: "colour" },
    },
    headers: { cookie: cookies.begin(grant, null).split(";")[0] ?? "", "sec-fetch-site": "none" },
  });
  await app.close();
  expect(answer.statusCode).toBe(200);
  const [head = [], first = [], second, ...others] = answer.body
    .split("\r\n")
    .map((line) => line.split(","));
  expect(Object.fromEntries(head.map((name, index) => [name, first[index]]))).toEqual({
    ...{ from: new Date(at).toISOString(), key_id: "key_1", model: "'=m", family: "v2" },
    ...{ requests: "60", completed: "10", failed: "20", cut: "30", web_searches: "8" },
    ...{ input: "1", output: "2", thinking: "3", cache_write_5m: "4", cache_write_1h: "5" },
    ...{ cache_read: "6", charge_credits: "7.000001", charge_usd: "0.035000005" },
    ...{ tag_value: "blue", key_name: "deploy" },
  });
  expect([second, others]).toEqual([first, [[""]]]);
  const request = {
    ...{ accountId: leastAccountId, startAt: day("2026-11-01"), endAt: day("2026-12-01") },
    ...{ bucket: Bucket.HOUR, keyIds: ["key_1", "key_2"], models: ["m1", "m2"] },
    ...{ tags: { team: "a" }, groupByTag: "colour", pageSize: reportRowsMax },
  };
  const groupBy = [expect.any(Number), expect.any(Number), expect.any(Number)];
  expect(asked).toEqual(
    ["", "next"].map((pageToken) => ({
      ...create(QueryUsageRequestSchema, { ...request, pageToken }),
      groupBy,
    })),
  );
});
