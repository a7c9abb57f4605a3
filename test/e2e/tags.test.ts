// Tags as a customer uses them, in every format: from the request to its receipt, the sums, the
// lists and the files. With separate roles, so that tags also pass between processes.

import { create } from "@bufbuild/protobuf";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { clientOver } from "../support/bindings.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ split: true });
});
afterAll(() => gateway.stop());

const messages = [{ role: "user", content: "Hello" }];
const formats = {
  native: { path: "/v1/messages", body: { model: "haiku", max_tokens: 10, messages } },
  chat: { path: "/v1/chat/completions", body: { model: "haiku", messages } },
  responses: { path: "/v1/responses", body: { model: "haiku", input: "Hello" } },
};
type FormatName = keyof typeof formats;
const names = Object.keys(formats) as FormatName[];

function ask(name: FormatName, metadata: unknown, header?: string): Promise<Response> {
  const { path, body } = formats[name];
  return fetch(gateway.address + path, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(name === "native"
        ? { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" }
        : { authorization: `Bearer ${gateway.v1}` }),
      ...(header !== undefined && { "x-gateway-tags": header }),
    },
    body: JSON.stringify({ ...body, ...(metadata !== undefined && { metadata }) }),
  });
}

async function get(path: string) {
  const answer = await fetch(`${gateway.address}/v1/${path}`, {
    headers: { "x-api-key": gateway.v1 },
  });
  return { status: answer.status, body: Object(await answer.json()) };
}

const tagsOf = async (requestId: string | null) => (await get(`receipts/${requestId}`)).body.tags;

for (const name of names) {
  test(`${name}: the tags of header and metadata are on the receipt`, async () => {
    const answer = await ask(
      name,
      { "tag.team": "größe", "tag.kind": name, user_id: "u_1" },
      "team=other,env=ci",
    );
    expect(answer.status).toBe(200);
    expect(await tagsOf(answer.headers.get("request-id"))).toEqual({
      env: "ci",
      kind: name,
      team: "größe",
    });
  });

  test(`${name}: what is no tag is neither stored nor refused`, async () => {
    const metadata = { user_id: "u_1", team: "a", "tag.count": 5, note: "x".repeat(10_000) };
    const answer = await ask(name, metadata);
    expect(answer.status).toBe(200);
    const { body } = await get(`receipts/${answer.headers.get("request-id")}`);
    expect(body.tags).toEqual({});
    expect(JSON.stringify(body)).not.toContain("u_1");
  });

  test(`${name}: bad tags are refused with their place, and cost nothing`, async () => {
    const before = (await get("credits")).body;
    const many = Array.from({ length: 11 }, (_, n) => `k${n}=v`).join();
    const cases: readonly [metadata: unknown, header: string | undefined, place: string][] = [
      [{ "tag.team": "a,b" }, undefined, "metadata.tag.team"],
      [{ "tag.team": "a\nb" }, undefined, "metadata.tag.team"],
      [{ "tag.team": "x".repeat(10_240) }, undefined, "metadata.tag.team"],
      [undefined, "team", "x-gateway-tags"],
      [undefined, many, "x-gateway-tags"],
    ];
    for (const [metadata, header, place] of cases) {
      const answer = await ask(name, metadata, header);
      const { error } = Object(await answer.json());
      expect([answer.status, error.type]).toEqual([400, "invalid_request_error"]);
      expect(error.message).toContain(place);
      if (name !== "native") expect(error.param).toBe(place);
    }
    expect((await get("credits")).body).toEqual(before);
  });
}

test("gRPC and Connect have a field for tags", async () => {
  const transport = createConnectTransport({ baseUrl: gateway.address, httpVersion: "1.1" });
  const connect = clientOver(serviceTypes.inference, transport);
  const content = [{ kind: { case: "text" as const, value: { text: "Hello" } } }];
  const request = create(GenerateRequestSchema, {
    model: "haiku",
    maxTokens: 10,
    messages: [{ role: Role.USER, content }],
    tags: { team: "rpc" },
  });
  const call = { headers: { authorization: `Bearer ${gateway.v1}` } };
  for (const client of [gateway.admin.core.inference, connect]) {
    let tags: unknown;
    for await (const { kind } of client.generate(request, call))
      if (kind.case === "receipt") tags = kind.value.tags;
    expect(tags).toEqual({ team: "rpc" });
    const wrong = { ...request, tags: { team: "" } };
    const read = async () => {
      for await (const _ of client.generate(wrong, call)) expect.unreachable("an answer");
    };
    await expect(read()).rejects.toThrow("tags: the value of an entry has fewer than 1 character");
  }
});

test("usage by a tag and lists by tags find the requests", async () => {
  const { body } = await get("usage?group_by_tag=kind");
  const rows = Object.fromEntries(
    body.data.map((row: Record<string, unknown>) => [row.tag_value, row.requests]),
  );
  expect(rows).toMatchObject({ native: 1, chat: 1, responses: 1 });
  expect(rows.null).toBe(body.totals.requests - 3);
  const one = await get(`usage?tag=${encodeURIComponent("team=größe")}&group_by=model`);
  expect(one.body.data).toMatchObject([{ requests: 3 }]);
  expect(one.body.totals.requests).toBe(3);
  const listed = await get("receipts?tag=env=ci,kind=chat");
  expect(listed.body.data).toMatchObject([{ tags: { kind: "chat" } }]);
  for (const [path, place] of [
    ["usage?tag=team", "tag"],
    ["usage?tag=a=b,c=d", "tags"],
    ["usage?group_by_tag=a%20b", "group_by_tag"],
    ["receipts?tag=team=", "tag"],
  ]) {
    const wrong = await get(path ?? "");
    expect([wrong.status, wrong.body.error.param]).toEqual([400, place]);
  }
});
