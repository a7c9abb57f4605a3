// The codecs alone, in this process: a long conversation read and written. The native one against
// JSON doing the same, that of the Responses format against that of chat.

import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import * as chat from "../../../src/formats/chat/chat.ts";
import { parseJson, parseRequest, stringifyJson } from "../../../src/formats/json.ts";
import { decodeRequest, encodeRequest } from "../../../src/formats/native/native.ts";
import { attachedOf, type Sealing, sealPack } from "../../../src/formats/packs.ts";
import * as responses from "../../../src/formats/responses/responses.ts";
import { SealedContent } from "../../../src/http/sealed-content.ts";
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
      ...packs(),
    ],
    faults: same ? [] : ["the encoded request differs from the decoded one"],
  };
}

type Decode = (body: JsonValue, sealing: Sealing) => unknown;
const headers = { version: "2023-06-01", beta: "" };
const decodes: Readonly<Record<"native" | "chat" | "responses", Decode>> = {
  native: (body, sealing) => decodeRequest(body, headers, sealing),
  chat: (body, sealing) => chat.decodeRequest(body, sealing),
  responses: (body, sealing) => responses.decodeRequest(body, sealing),
};

/** Decoding the bodies of a tool loop of 20 turns, with packs and without them. */
function packs(): Result["rows"] {
  const sealing = new SealedContent([randomBytes(32)]).sealingOf("acc_bench");
  return (["native", "chat", "responses"] as const).map((format) => {
    const decode = decodes[format];
    const bodies = [toolLoop(format, sealing), toolLoop(format)].map((body) =>
      Buffer.from(JSON.stringify(body)),
    );
    const ratios: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      const [withPacks = Number.NaN, without = Number.NaN] = bodies.map((body) =>
        timeMs(() => {
          decode(parseRequest(body).value, sealing);
          return "decoded";
        }, 200),
      );
      if (round > 0) ratios.push(withPacks / without);
    }
    return {
      measure: `${format}: decoding a tool loop of 20 turns, with packs ÷ without`,
      value: spreadOf(ratios),
      must: "≤ 1.3",
    };
  });
}

/**
 * A conversation of 20 turns with 20 tools; each turn has a call and a result of 8 KB. With
 * `sealing`, it has the encrypted reasoning of 1 KB that its provider wants back, too.
 */
function toolLoop(format: keyof typeof decodes, sealing?: Sealing): JsonObject {
  const result = "const total = items.reduce((sum, item) => sum + item.amount, 0);\n".repeat(125);
  const turns = Array.from({ length: 20 }, (_, index) => {
    const members = {
      encrypted_content: randomBytes(768).toString("base64"),
      summary: [{ type: "summary_text", text: 40 }],
    };
    const writer = { format: Format.RESPONSES, dialect: "openai", model: "bench" };
    const pack = sealing && sealPack({ block: attachedOf(writer, { members }) }, sealing);
    const call = { id: `call_${index}`, name: "read_file", input: { path: `src/${index}.ts` } };
    return { thought: "I read this file before I change it. ".repeat(3), pack, call };
  });
  const textOf = (input: JsonObject) => JSON.stringify(input);
  const tools = toolsOf(result);
  switch (format) {
    case "native":
      return {
        model: "opus",
        max_tokens: 4096,
        tools,
        messages: [
          { role: "user", content: "Go." },
          ...turns.flatMap(({ thought, pack, call }): JsonObject[] => [
            {
              role: "assistant",
              content: [
                { type: "thinking", thinking: thought, signature: pack ?? "own" },
                { type: "tool_use", ...call },
              ],
            },
            {
              role: "user",
              content: [{ type: "tool_result", tool_use_id: call.id, content: result }],
            },
          ]),
        ],
      };
    case "chat":
      return {
        model: "opus",
        tools: tools.map(({ input_schema: parameters, ...tool }) => ({
          type: "function",
          function: { ...tool, parameters },
        })),
        messages: [
          { role: "user", content: "Go." },
          ...turns.flatMap(({ thought, pack, call }): JsonObject[] => [
            {
              role: "assistant",
              content: null,
              reasoning_content: thought,
              ...(pack !== undefined && {
                reasoning_details: [{ type: "reasoning.encrypted", data: pack }],
              }),
              tool_calls: [
                {
                  id: call.id,
                  type: "function",
                  function: { name: call.name, arguments: textOf(call.input) },
                },
              ],
            },
            { role: "tool", tool_call_id: call.id, content: result },
          ]),
        ],
      };
    case "responses":
      return {
        model: "opus",
        tools: tools.map(({ input_schema: parameters, ...tool }) => ({
          type: "function",
          ...tool,
          parameters,
        })),
        input: [
          { role: "user", content: "Go." },
          ...turns.flatMap(({ thought, pack, call }): JsonObject[] => [
            {
              type: "reasoning",
              summary: [{ type: "summary_text", text: thought }],
              ...(pack !== undefined && { encrypted_content: pack }),
            },
            {
              type: "function_call",
              call_id: call.id,
              name: call.name,
              arguments: textOf(call.input),
            },
            { type: "function_call_output", call_id: call.id, output: result },
          ]),
        ],
      };
  }
}

/** Milliseconds of processor time that one call of `work` takes. */
function timeMs(work: () => string, times = repeats): number {
  const started = process.threadCpuUsage();
  let length = 0;
  for (let time = 0; time < times; time++) length += work().length;
  if (length === 0) throw new Error("nothing was written");
  const { user, system } = process.threadCpuUsage(started);
  return (user + system) / 1000 / times;
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
  const tools = toolsOf(source);
  return { model: "opus", max_tokens: 4096, system: source.slice(0, 4_000), tools, messages };
}

function toolsOf(source: string) {
  return Array.from({ length: 20 }, (_, index) => ({
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
}
