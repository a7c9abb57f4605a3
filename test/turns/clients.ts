// Clients of the three formats: each keeps its conversation as the gateway answers it, and returns
// it with the next request.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../../src/formats/json.ts";
import { joinNative } from "../formats/dialects/read-answer.ts";
import type { ProviderFormat } from "../support/gateway-with-provider.ts";
import { parseObject } from "../support/provider.ts";
import { readStream } from "../support/samples/chat-bodies.ts";
import { objectsOf, textOf } from "./json.ts";

/** How a request is sent. */
export type Way = {
  readonly model: string;
  readonly stream?: boolean;
  /** Members beside the usual ones. */
  readonly more?: JsonObject;
  /** The key. Default: that of the conversation. */
  readonly key?: string;
};

const parameters = {
  type: "object",
  properties: { path: { type: "string" }, lines: { type: "array", items: { type: "integer" } } },
};
const toolNames = ["read_file", "grep"];
const description = "Reads.";

export class Conversation {
  readonly format: ProviderFormat;
  readonly #address: string;
  readonly #key: string;
  /** Messages or items. A test may change them. */
  history: JsonObject[] = [];
  /** The calls that wait for their results. */
  #open: string[] = [];

  constructor(format: ProviderFormat, address: string, key: string) {
    this.format = format;
    this.#address = address;
    this.#key = key;
  }

  /** The ids of all calls of the conversation. */
  get callIds(): string[] {
    return this.history.flatMap(callIdsOf);
  }

  say(text: string): void {
    this.history.push({ role: "user", content: text });
  }

  /** Sends the conversation. Returns the answer, which is now a part of it. */
  async next(way: Way): Promise<JsonObject> {
    const response = await this.send(way);
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.status} ${text}`);
    const answer = way.stream === true ? this.#join(text) : parseObject(text);
    const turn = this.#turnOf(answer);
    this.history.push(...turn);
    this.#open = turn.flatMap(callIdsOf);
    return answer;
  }

  /** Answers the calls of the last turn; without calls, asks on. */
  reply(): void {
    const ids = this.#open;
    this.#open = [];
    if (ids.length === 0) this.say("Go on.");
    else if (this.format === "native")
      this.history.push({
        role: "user",
        content: ids.map((id) => ({ type: "tool_result", tool_use_id: id, content: "42" })),
      });
    else
      for (const id of ids)
        this.history.push(
          this.format === "chat"
            ? { role: "tool", tool_call_id: id, content: "42" }
            : { type: "function_call_output", call_id: id, output: "42" },
        );
  }

  send({ model, stream = false, more = {}, key = this.#key }: Way): Promise<Response> {
    const { format, history } = this;
    return fetch(this.#address + paths[format], {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(format === "native"
          ? { "x-api-key": key, "anthropic-version": "2023-06-01" }
          : { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify({
        model,
        stream,
        ...usual[format],
        ...more,
        ...listOf(format, history),
      }),
    });
  }

  #join(text: string): JsonObject {
    if (this.format === "native") return joinNative(text);
    return this.format === "chat" ? joinChat(text) : joinResponse(text);
  }

  #turnOf(answer: JsonObject): JsonObject[] {
    switch (this.format) {
      case "native":
        return [{ role: "assistant", content: objectsOf(answer.content).map(withoutJson) }];
      case "chat": {
        const [choice] = objectsOf(answer.choices);
        return isObject(choice?.message) ? [choice.message] : [];
      }
      case "responses":
        return objectsOf(answer.output);
    }
  }
}

const paths: Readonly<Record<ProviderFormat, string>> = {
  native: "/v1/messages",
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
};

const usual: Readonly<Record<ProviderFormat, JsonObject>> = {
  native: {
    max_tokens: 8000,
    thinking: { type: "adaptive" },
    tools: toolNames.map((name) => ({ name, description, input_schema: parameters })),
  },
  chat: {
    reasoning_effort: "medium",
    tools: toolNames.map((name) => ({
      type: "function",
      function: { name, description, parameters },
    })),
  },
  responses: {
    store: false,
    include: ["reasoning.encrypted_content"],
    reasoning: { effort: "medium", summary: "auto" },
    tools: toolNames.map((name) => ({ type: "function", name, description, parameters })),
  },
};

function listOf(format: ProviderFormat, history: JsonObject[]): JsonObject {
  return format === "responses" ? { input: history } : { messages: history };
}

function callIdsOf(entry: JsonObject): string[] {
  const calls =
    entry.type === "function_call"
      ? [entry.call_id]
      : [...objectsOf(entry.tool_calls), ...objectsOf(entry.content)].flatMap(({ type, id }) =>
          type === "tool_use" || type === "function" ? [id] : [],
        );
  return calls.filter((id) => typeof id === "string");
}

/** Without what `joinNative` keeps beside. */
function withoutJson({ json, ...block }: JsonObject): JsonObject {
  return block;
}

/** The completion that a client accumulates; members that it does not know come last. */
function joinChat(text: string): JsonObject {
  const message: JsonObject = {};
  const calls: JsonObject[] = [];
  let parts: JsonObject[] = [];
  let details: JsonObject[] = [];
  for (const chunk of readStream(text)) {
    if (chunk === "[DONE]") continue;
    const [choice] = objectsOf(chunk.choices);
    const delta = isObject(choice?.delta) ? choice.delta : {};
    const { content, tool_calls, reasoning_details, ...others } = delta;
    if (typeof content === "string" && content !== "")
      parts = addPart(parts, { type: "text", text: content });
    for (const part of objectsOf(content)) parts = addPart(parts, part);
    for (const entry of objectsOf(reasoning_details)) details = addDetail(details, entry);
    for (const call of objectsOf(tool_calls)) addCall(calls, call);
    for (const [name, value] of Object.entries(others)) {
      const before = message[name];
      const grows = name.startsWith("reasoning") && typeof before === "string";
      message[name] = grows ? before + textOf(value) : value;
    }
  }
  const [only, second] = parts;
  const content = !only ? null : second || only.type !== "text" ? parts : textOf(only.text);
  const whole = {
    ...message,
    content,
    ...(details.length > 0 && { reasoning_details: details }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
  return { choices: [{ index: 0, message: whole }] };
}

function addPart(parts: JsonObject[], part: JsonObject): JsonObject[] {
  const last = parts.at(-1);
  if (!last || last.type !== part.type) return [...parts, part];
  const joined =
    part.type === "text"
      ? { ...last, text: textOf(last.text) + textOf(part.text) }
      : { ...last, thinking: [{ type: "text", text: innerOf(last) + innerOf(part) }] };
  return [...parts.slice(0, -1), joined];
}

function innerOf(part: JsonObject): string {
  return objectsOf(part.thinking)
    .map(({ text }) => textOf(text))
    .join("");
}

function addDetail(details: JsonObject[], entry: JsonObject): JsonObject[] {
  const last = details.at(-1);
  if (!last || last.index === undefined || last.index !== entry.index) return [...details, entry];
  const text = textOf(last.text) + textOf(entry.text);
  return [...details.slice(0, -1), { ...last, ...entry, text }];
}

function addCall(calls: JsonObject[], { index, ...call }: JsonObject): void {
  const at = typeof index === "number" ? index : calls.length;
  const known = calls[at];
  const called = isObject(call.function) ? call.function : {};
  if (!known) calls[at] = call;
  else {
    const before = isObject(known.function) ? known.function : {};
    const joined = textOf(before.arguments) + textOf(called.arguments);
    Object.assign(known, call, { function: { ...before, arguments: joined } });
  }
}

/** The response of the last event. */
function joinResponse(text: string): JsonObject {
  let last: JsonValue | undefined;
  for (const line of text.split("\n"))
    if (line.startsWith("data: {")) last = parseObject(line.slice(6)).response ?? last;
  return isObject(last) ? last : {};
}
