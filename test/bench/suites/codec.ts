// The codecs alone, in this process: a long conversation read and written. The native one against
// JSON doing the same, that of the Responses format against that of chat.

import { isDeepStrictEqual } from "node:util";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import * as chat from "../../../src/formats/chat/chat.ts";
import { parseJson, stringifyJson } from "../../../src/formats/json.ts";
import { decodeRequest, encodeRequest } from "../../../src/formats/native/native.ts";
import * as responses from "../../../src/formats/responses/responses.ts";
import { spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const rounds = 9;
const repeats = 15;
const target = { model: "bench", stream: false };

export async function codec(): Promise<Result> {
  const bytes = Buffer.from(JSON.stringify(conversation()));
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const json = () => JSON.stringify(JSON.parse(decoder.decode(bytes)));
  const gateway = () =>
    stringifyJson(
      encodeRequest(decodeRequest(parseJson(bytes), { version: "2023-06-01", beta: "" }), target),
    );

  const request = decodeRequest(conversation(), { version: "2023-06-01", beta: "" });
  const chatBytes = Buffer.from(JSON.stringify(chat.encodeRequest(request, target)));
  const chatCodec = () =>
    stringifyJson(chat.encodeRequest(chat.decodeRequest(parseJson(chatBytes)), target));
  const responsesBytes = Buffer.from(JSON.stringify(responses.encodeRequest(request, target)));
  const responsesCodec = () =>
    stringifyJson(
      responses.encodeRequest(responses.decodeRequest(parseJson(responsesBytes)), target),
    );

  const [jsonMs, gatewayMs, chatMs, responsesMs]: number[][] = [[], [], [], []];
  for (let round = 0; round <= rounds; round++) {
    const one = {
      json: timeMs(json),
      gateway: timeMs(gateway),
      chat: timeMs(chatCodec),
      responses: timeMs(responsesCodec),
    };
    if (round === 0) continue;
    jsonMs?.push(one.json);
    gatewayMs?.push(one.gateway);
    chatMs?.push(one.chat);
    responsesMs?.push(one.responses);
  }
  const same = isDeepStrictEqual(JSON.parse(gateway()), { ...conversation(), ...target });
  return {
    rows: [
      {
        measure: "decode + encode ÷ JSON.parse + JSON.stringify",
        value: spreadOf(
          (gatewayMs ?? []).map((one, round) => one / (jsonMs?.[round] ?? Number.NaN)),
        ),
        must: "≤ 3",
      },
      {
        measure: `decode + encode of ${Math.round(bytes.length / 1000)} KB`,
        value: spreadOf(gatewayMs ?? []),
        unit: "ms",
      },
      { measure: "JSON.parse + JSON.stringify", value: spreadOf(jsonMs ?? []), unit: "ms" },
      {
        measure: "Responses: decode + encode ÷ chat",
        value: spreadOf(
          (responsesMs ?? []).map((one, round) => one / (chatMs?.[round] ?? Number.NaN)),
        ),
        must: "≤ 1.2",
      },
      { measure: "chat: decode + encode", value: spreadOf(chatMs ?? []), unit: "ms" },
    ],
    faults: same ? [] : ["the encoded request differs from the decoded one"],
  };
}

/** Milliseconds that one call of `work` takes. */
function timeMs(work: () => string): number {
  const started = performance.now();
  let length = 0;
  for (let repeat = 0; repeat < repeats; repeat++) length += work().length;
  if (length === 0) throw new Error("nothing was written");
  return (performance.now() - started) / repeats;
}

/** A coding session of 1 MB: 200 messages with tool calls and their results, 20 tools. */
function conversation(): JsonObject {
  const source =
    'const total = items.reduce((sum, { amount }) => sum + amount, 0); // "é" \\n\n'.repeat(100);
  const messages: JsonValue[] = [];
  for (let turn = 0; turn < 100; turn++) {
    const id = `toolu_${String(turn).padStart(24, "0")}`;
    const result: JsonValue =
      turn === 0
        ? { type: "text", text: source }
        : {
            type: "tool_result",
            tool_use_id: `toolu_${String(turn - 1).padStart(24, "0")}`,
            content: source,
          };
    messages.push({ role: "user", content: [result] });
    messages.push({
      role: "assistant",
      content: [
        { type: "text", text: source.slice(0, 1_500) },
        {
          type: "tool_use",
          id,
          name: `tool_${turn % 20}`,
          input: { path: `src/part-${turn}.ts`, lines: [1, turn], all: true },
        },
      ],
    });
  }
  const tools = Array.from({ length: 20 }, (_, index) => ({
    name: `tool_${index}`,
    description: source.slice(0, 1_000),
    input_schema: {
      type: "object",
      properties: {
        path: { type: "string" },
        lines: { type: "array", items: { type: "integer" } },
        all: { type: "boolean" },
      },
      required: ["path"],
    },
  }));
  return { model: "opus", max_tokens: 4096, system: source.slice(0, 4_000), tools, messages };
}
