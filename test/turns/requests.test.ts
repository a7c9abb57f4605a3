// What requests ask for, as providers of the three formats get it.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isObject } from "../../src/formats/json.ts";
import { type ProviderFormat, providerFormats } from "../support/gateway-with-provider.ts";
import { Conversation } from "./clients.ts";
import { objectsOf } from "./json.ts";
import { startWorld } from "./world.ts";

let world: Awaited<ReturnType<typeof startWorld>>;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.stop());
beforeEach(() => world.stand.reset());

const startConversation = (format: ProviderFormat) => {
  const conversation = new Conversation(format, world.gateway.address, world.gateway.v1);
  conversation.say("What is in the files?");
  return conversation;
};

const calls = () => world.stand.provider.requests.length;
const sent = () => world.stand.provider.requests.at(-1)?.body ?? {};

async function refusal(response: Response): Promise<JsonObject> {
  expect(response.status).toBe(400);
  const body: JsonObject = JSON.parse(await response.text());
  return isObject(body.error) ? body.error : {};
}

describe.each(["chat", "responses"] as const)("a %s request", (format) => {
  const moderation = { model: "omni-moderation-latest", policy: { mode: "block" } };

  test.each(["openai", "generic", "openai-responses"])(
    "has its moderation at %s",
    async (model) => {
      await startConversation(format).next({ model, more: { moderation } });
      expect(sent().moderation).toEqual(moderation);
    },
  );

  test("with moderation is refused for a native model: a block policy is never dropped", async () => {
    for (const stream of [false, true]) {
      const before = calls();
      const conversation = startConversation(format);
      const error = await refusal(
        await conversation.send({ model: "anthropic", stream, more: { moderation } }),
      );
      expect(error).toMatchObject({ param: "moderation", code: "feature_not_offered" });
      expect(calls()).toBe(before);
    }
  });

  test("has the default tier for auto, and other tiers are refused", async () => {
    const own = format === "chat" ? "openai" : "openai-responses";
    for (const tier of ["auto", "default"]) {
      await startConversation(format).next({ model: own, more: { service_tier: tier } });
      expect(sent().service_tier).toBe("default");
    }
    for (const tier of ["flex", "priority", "scale", 5]) {
      const before = calls();
      const error = await refusal(
        await startConversation(format).send({ model: own, more: { service_tier: tier } }),
      );
      expect(error).toMatchObject({ param: "service_tier" });
      expect(calls()).toBe(before);
    }
  });
});

test("members of a Responses request reach a provider of this format, and no other", async () => {
  const more = { truncation: "auto", top_logprobs: 2, safety_identifier: "u", tomorrow: { a: 1 } };
  await startConversation("responses").next({ model: "openai-responses", more });
  expect(sent()).toMatchObject(more);
  for (const model of ["openai", "anthropic"]) {
    await startConversation("responses").next({ model, more });
    expect(Object.keys(sent())).not.toContain("tomorrow");
  }
});

test("members of a chat request that choose a price or a secret reach no provider", async () => {
  const more = {
    models: ["another"],
    provider: { order: ["x"] },
    plugins: [{ id: "web" }],
    web_search_options: {},
    api_key: "sk-1",
    extra_body: { google: { thinking_config: { include_thoughts: true }, other: 1 } },
    min_p: 0.1,
    of_tomorrow: true,
  };
  await startConversation("chat").next({ model: "generic", more });
  for (const name of Object.keys(more)) expect(name in sent()).toBe(name === "min_p");
  await startConversation("chat").next({ model: "gemini", more });
  expect(sent().extra_body).toEqual({ google: { thinking_config: { include_thoughts: true } } });
  await startConversation("chat").next({ model: "openai", more });
  expect("min_p" in sent()).toBe(false);
});

describe.each(["openai", "openai-responses", "generic"])("a name of 100 letters at %s", (model) => {
  test.each([false, true])(
    "is shorter there, and the client's own in the answer (%s)",
    async (stream) => {
      const name = "long_name_".repeat(10);
      const other = "long_name_".repeat(10).replace(/_$/, "x");
      const more = {
        tools: [name, other].map((one) => ({ name: one, input_schema: { type: "object" } })),
        tool_choice: { type: "tool", name },
      };
      const conversation = startConversation("native");
      const { content } = await conversation.next({ model, stream, more });
      expect(objectsOf(content).find(({ type }) => type === "tool_use")?.name).toBe(name);
      const tools = objectsOf(sent().tools).map((tool) =>
        isObject(tool.function) ? tool.function.name : tool.name,
      );
      expect(new Set(tools).size).toBe(2);
      for (const one of tools) expect(one).toMatch(/^[a-z_]{55}_[0-9a-f]{8}$/);
      expect(JSON.stringify(sent().tool_choice)).toContain(String(tools[0]));
      conversation.reply();
      await conversation.next({ model, stream, more });
      expect(world.stand.refusals).toEqual([]);
    },
  );
});

describe.each(providerFormats)("neighbours of one role in a %s request", (format) => {
  const own = { native: "anthropic", chat: "openai", responses: "openai-responses" }[format];

  test("stay apart at a provider of this format, and at no other one are lost", async () => {
    for (const model of ["anthropic", "openai", "openai-responses"]) {
      const conversation = startConversation(format);
      conversation.say("And what is not?");
      await conversation.next({ model });
      const entries = objectsOf(sent().messages ?? sent().input);
      expect(JSON.stringify(entries)).toMatch(/What is in.*And what is not/s);
      if (model === own) expect(entries).toHaveLength(2);
    }
  });
});
