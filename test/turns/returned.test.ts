// What clients return changed, lost, or to another model, provider or account: it is left out, and
// the conversation goes on.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isObject } from "../../src/formats/json.ts";
import { type ProviderFormat, providerFormats } from "../support/gateway-with-provider.ts";
import { scrape } from "../support/metrics.ts";
import { Conversation } from "./clients.ts";
import { objectsOf, textOf } from "./json.ts";
import { turnsIn, type Vendor, vendors } from "./vendors.ts";
import { otherModel, startWorld } from "./world.ts";

let world: Awaited<ReturnType<typeof startWorld>>;
/** The key of another account. */
let otherKey: string;
beforeAll(async () => {
  world = await startWorld();
  otherKey = await world.keyOfOther();
});
afterAll(() => world.stop());
beforeEach(() => world.stand.reset());

const startConversation = (format: ProviderFormat) => {
  const conversation = new Conversation(format, world.gateway.address, world.gateway.v1);
  conversation.say("What is in the files?");
  return conversation;
};

/** A copy in which `change` has been made to every text. */
function mapTexts(value: JsonValue, change: (text: string) => string): JsonValue {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((entry) => mapTexts(entry, change));
  if (!isObject(value)) return value;
  const entries = Object.entries(value).map(
    ([name, member]) => [name, mapTexts(member, change)] as const,
  );
  return Object.fromEntries(entries);
}

function changeHistory(conversation: Conversation, change: (text: string) => string): void {
  conversation.history = conversation.history.map((entry) => {
    const changed = mapTexts(entry, change);
    return isObject(changed) ? changed : entry;
  });
}

/** The last body that a vendor got, as text. */
const sent = () => JSON.stringify(world.stand.provider.requests.at(-1)?.body ?? {});

/**
 * Signatures and encrypted reasoning of a vendor's turns that the client cannot see. Those of the
 * native format and of Gemini pass chat clients in the clear, as at the vendors.
 */
function secretsIn({ history }: Conversation, name: string): string[] {
  const seen = JSON.stringify(history);
  const found: string[] = [];
  const find = (value: JsonValue): void => {
    if (Array.isArray(value)) value.forEach(find);
    if (!isObject(value)) return;
    for (const [member, inner] of Object.entries(value)) {
      const isSecret = ["signature", "data", "encrypted_content", "thought_signature"];
      if (typeof inner === "string" && inner !== "" && isSecret.includes(member)) found.push(inner);
      else find(inner);
    }
  };
  for (const turn of world.stand.given(name)) find(turn);
  return found.filter((secret) => !seen.includes(secret));
}

/** Two turns with calls, plain and streamed, and their results. */
async function begin(format: ProviderFormat, { name }: Vendor): Promise<Conversation> {
  const conversation = startConversation(format);
  for (const stream of [false, true]) {
    await conversation.next({ model: name, stream });
    conversation.reply();
  }
  return conversation;
}

describe.for(providerFormats)("a %s client", (format) => {
  test.for(vendors)("whose packs of $name are changed goes on without them", async (vendor) => {
    const { name } = vendor;
    const flip = (at: number) => (text: string) => {
      if (!text.startsWith("gw1.")) return text;
      const place = 4 + Math.floor((text.length - 5) * at);
      const other = text[place] === "A" ? "B" : "A";
      return text.slice(0, place) + other + text.slice(place + 1);
    };
    for (const at of [0, 0.5, 0.99]) {
      world.stand.reset();
      const conversation = await begin(format, vendor);
      const secrets = secretsIn(conversation, name);
      changeHistory(conversation, flip(at));
      await conversation.next({ model: name });
      expect(world.stand.refusals).toEqual([]);
      for (const secret of secrets) expect(sent()).not.toContain(secret);
      expect(sent()).not.toContain("gw1.");
    }
  });

  test.for(vendors)("of whose packs of $name one is changed goes on", async (vendor) => {
    const conversation = await begin(format, vendor);
    let isFirst = true;
    changeHistory(conversation, (text) => {
      if (!text.startsWith("gw1.") || !isFirst) return text;
      isFirst = false;
      return `${text}A`;
    });
    await conversation.next({ model: vendor.name });
    expect(world.stand.refusals).toEqual([]);
    expect(sent()).not.toContain("gw1.");
  });

  test.for(vendors)("goes on with another model of $name", async (vendor) => {
    const conversation = await begin(format, vendor);
    await conversation.next({ model: otherModel(vendor.name) });
    expect(world.stand.refusals).toEqual([]);
    expect(sent()).not.toContain("gw1.");
  });

  test.for(vendors)("with another account gets nothing of $name", async (vendor) => {
    const { name } = vendor;
    const conversation = await begin(format, vendor);
    const secrets = secretsIn(conversation, name);
    await conversation.next({ model: name, key: otherKey });
    expect(world.stand.refusals).toEqual([]);
    expect(sent()).not.toContain("gw1.");
    for (const secret of secrets) expect(sent()).not.toContain(secret);
  });

  test.for(vendors)("that loses all reasoning goes on with $name", async (vendor) => {
    const conversation = await begin(format, vendor);
    conversation.history = conversation.history.flatMap(withoutReasoning);
    await conversation.next({ model: vendor.name });
    expect(world.stand.refusals).toEqual([]);
  });

  test("goes through all vendors in one conversation, twice, and none refuses it", async () => {
    const conversation = startConversation(format);
    // What nobody knows goes through chat clients as it came, and strict vendors refuse it.
    const known = vendors.filter(({ name }) => name !== "generic");
    for (const round of [0, 1])
      for (const [index, { name }] of known.entries()) {
        await conversation.next({ model: name, stream: (index + round) % 2 === 0 });
        conversation.reply();
      }
    expect(world.stand.refusals).toEqual([]);
  });
});

/** An entry of a history without thinking and without members that only its vendor knows. */
function withoutReasoning(entry: JsonObject): JsonObject[] {
  if (entry.type === "reasoning") return [];
  const { role, content, tool_calls: calls, ...others } = entry;
  if (role !== "assistant" || others.type === "message") return [entry];
  const kept = Array.isArray(content)
    ? objectsOf(content).filter(({ type }) => !textOf(type).includes("thinking"))
    : content;
  const isEmpty = Array.isArray(kept) && kept.length === 0;
  return [
    {
      role,
      content: isEmpty ? null : (kept ?? null),
      ...(calls !== undefined && {
        tool_calls: objectsOf(calls).map(({ id, type, function: called }) => ({
          id: id ?? "",
          type: type ?? "",
          function: called ?? {},
        })),
      }),
    },
  ];
}

test("a text stands in for lost reasoning, another one for each turn", async () => {
  const conversation = startConversation("chat");
  for (let turn = 0; turn < 3; turn++) {
    await conversation.next({ model: "openai" });
    conversation.reply();
  }
  await conversation.next({ model: "deepseek" });
  const turns = turnsIn("chat", world.stand.provider.requests.at(-1)?.body ?? {});
  expect(turns.map(({ reasoning_content: text }) => text)).toEqual([
    "Calling read_file.",
    "Calling grep, then read_file.",
    undefined,
  ]);
});

test("a metric counts what became of what clients returned", async () => {
  const count = async (result: string) =>
    (await scrape(world.gateway.metricsAddress)).sum("gateway_carried_total", { result });
  const results = ["back", "foreign", "model", "changed", "placeholder"] as const;
  const before = await Promise.all(results.map(count));
  const vendor = "openai-responses";
  const conversation = startConversation("native");
  await conversation.next({ model: vendor });
  conversation.reply();
  for (const model of [vendor, otherModel(vendor), "openai"])
    expect((await conversation.send({ model })).status).toBe(200);
  const lost = startConversation("native");
  await lost.next({ model: "openai" });
  lost.reply();
  expect((await lost.send({ model: "deepseek" })).status).toBe(200);
  changeHistory(conversation, (text) => (text.startsWith("gw1.") ? `${text}A` : text));
  expect((await conversation.send({ model: vendor })).status).toBe(200);
  const after = await Promise.all(results.map(count));
  expect(results.filter((_, at) => (after[at] ?? 0) === (before[at] ?? 0))).toEqual([]);
});
