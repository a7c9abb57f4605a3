// A tool loop of three turns for every client and every vendor: the vendor gets back what it gave.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isObject } from "../../src/formats/json.ts";
import { toNativeId } from "../../src/formats/tool-ids.ts";
import { canonical } from "../support/canonical-json.ts";
import { type ProviderFormat, providerFormats } from "../support/gateway-with-provider.ts";
import { Conversation } from "./clients.ts";
import { textOf } from "./json.ts";
import { callIdsOf, turnsIn, type Vendor, vendors } from "./vendors.ts";
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

/** What the vendor got last, as the turns of its model. */
function received({ api }: Vendor): JsonObject[] {
  return turnsIn(api, world.stand.provider.requests.at(-1)?.body ?? {});
}

/**
 * A turn without what says nothing: empty content, null, lists without entries, and ids and states
 * of items; arguments as values.
 */
function essence(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(essence);
  if (!isObject(value)) return value;
  const isItem = ["reasoning", "message", "function_call"].includes(textOf(value.type));
  const entries = Object.entries(value).flatMap(([name, member]): [string, JsonValue][] => {
    if (isItem && (name === "id" || name === "status")) return [];
    if (member === null || member === "" || (Array.isArray(member) && member.length === 0))
      return [];
    if (name === "arguments") return [[name, JSON.parse(textOf(member))]];
    return [[name, essence(member)]];
  });
  return Object.fromEntries(entries);
}

function essences(turns: readonly JsonObject[]): string[] {
  return turns.map((turn) => canonical(essence(turn)));
}

describe.for(providerFormats)("a %s client", (format) => {
  test.for(vendors)("and $name", async (vendor) => {
    const { name, api } = vendor;
    const wanted = (api === format ? vendor.wantedOfOwn : vendor.wanted) ?? ((turn) => turn);
    for (const streams of [
      [false, true, false, true],
      [true, false, true, false],
    ]) {
      world.stand.reset();
      const conversation = startConversation(format);
      for (const stream of streams) {
        await conversation.next({ model: name, stream });
        conversation.reply();
      }
      expect(world.stand.refusals).toEqual([]);
      const given = world.stand.given(name).slice(0, 3);
      expect(essences(received(vendor))).toEqual(essences(given.map(wanted)));
      // The ids of calls are the provider's, where the client's format has the letters for them.
      const { callIds } = conversation;
      const ofVendor = world.stand.given(name).flatMap(callIdsOf);
      expect(callIds).toEqual(format === "native" ? ofVendor.map(toNativeId) : ofVendor);
    }
  });
});
