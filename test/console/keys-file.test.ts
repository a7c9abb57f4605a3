// The file of keys, from keys whose figures all differ: each cell is what its column says.

import { create, type Message } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  KeyAttention,
  KeySchema,
  KeyState,
  ListKeysRequestSchema,
  ListKeysResponseSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { readQuery } from "../../src/base/query.ts";
import { keysFile } from "../../src/console/keys-file.ts";
import { localCore } from "../../src/contract/contract.ts";
import { callersByKind, scriptedServices } from "../support/scripted-services.ts";

const atMs = (hour: number) => Date.UTC(2026, 10, 22, hour);
const at = (hour: number) => timestampFromMs(atMs(hour));
const time = (hour: number) => new Date(atMs(hour)).toISOString();

const full = create(KeySchema, {
  ...{ keyId: "key_1", name: "=sum", family: Family.V2, state: KeyState.PAUSED },
  secrets: [
    { hint: "sk-new", createdAt: at(2) },
    { hint: "sk-old", createdAt: at(1) },
  ],
  ...{ tags: { team: "a" }, requestsPerMinute: 1, requestsAtOnce: 2 },
  ...{ allowedModels: ["haiku", "sonnet"], allowedAddresses: ["10.0.0.1", "10.1.0.0/16"] },
  ...{ dailyCapMicrocredits: 3_000_000n, weeklyCapMicrocredits: 4_000_000n },
  ...{ monthlyCapMicrocredits: 5_000_000n, totalCapMicrocredits: 6_000_000n },
  ...{ monthSpentMicrocredits: 7_000_001n, monthHeldMicrocredits: 8_000_000n },
  ...{ lastUsedAt: at(3), expiresAt: at(4), createdAt: at(5), revokedAt: at(6) },
  ...{ createdBy: toActor("person:per_1"), managedBy: toActor("mgmt:mgt_1") },
});
const bare = create(KeySchema, { keyId: "key_2", name: "bare", createdAt: at(7) });

/** The lines of a file, and the requests that it made. The second key is on a page of its own. */
async function download(query: Readonly<Record<string, string>>) {
  const asked: Message[] = [];
  const core = localCore(
    scriptedServices({
      async unary(_, request) {
        asked.push(request);
        const isFirst = asked.length === 1;
        return create(ListKeysResponseSchema, {
          keys: [isFirst ? full : bare],
          nextPageToken: isFirst ? "next" : "",
        });
      },
      async *stream() {},
    }),
  );
  const options = { headers: { authorization: callersByKind["admin token"].credential } };
  const parameters = readQuery(query, Object.keys(keysFile.parameters));
  let text = "";
  for await (const lines of keysFile.lines(core, parameters, options)) text += lines;
  return { lines: text.split("\r\n").slice(0, -1), asked };
}

test("each cell of the file of keys is that of its key, and a page follows the other", async () => {
  const { lines } = await download({ account: "acc_1" });
  const [head = "", first = "", ...others] = lines.map((line) => line.split(","));
  expect(Object.fromEntries([...head].map((name, index) => [name, first[index]]))).toEqual({
    ...{ key_id: "key_1", name: "'=sum", hint: "sk-new", family: "v2", status: "paused" },
    ...{ tags: "team=a", requests_per_minute: "1", requests_at_once: "2" },
    ...{ allowed_models: "haiku sonnet", allowed_addresses: "10.0.0.1 10.1.0.0/16" },
    ...{ daily_cap_credits: "3", weekly_cap_credits: "4" },
    ...{ monthly_cap_credits: "5", total_cap_credits: "6" },
    ...{ month_spent_credits: "7.000001", last_used_at: time(3), expires_at: time(4) },
    ...{ created_at: time(5), created_by: "person:per_1", managed_by: "mgmt:mgt_1" },
    revoked_at: time(6),
  });
  expect(others).toHaveLength(1);
  expect(others[0]).toHaveLength(head.length);
  expect(others[0]?.filter((cell) => cell !== "")).toEqual([...["key_2", "bare", "0", time(7)]]);
});

test("the file of keys asks for the keys that its query names", async () => {
  const { asked } = await download({
    ...{ account: "acc_1", key: "key_1,key_2", status: "active,revoked", query: "dep" },
    ...{ tag: "team=a", without_tag: "env", attention: "near_budget" },
  });
  const request = {
    ...{ accountId: "acc_1", keyIds: ["key_1", "key_2"], query: "dep", tags: { team: "a" } },
    ...{ states: [KeyState.ACTIVE, KeyState.REVOKED], withoutTag: "env" },
    ...{ attention: KeyAttention.NEAR_BUDGET, pageSize: 1_000 },
  };
  expect(asked).toEqual([
    create(ListKeysRequestSchema, request),
    create(ListKeysRequestSchema, { ...request, pageToken: "next" }),
  ]);
});
