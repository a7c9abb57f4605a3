// Stand-ins for vendors, one for each row of `src/config/dialects.ts` and each kind of endpoint.
// Each answers with what the real one answers, and refuses what the real one refuses. What is known
// of the real ones stands in docs/decisions/0072-what-belongs-to-a-turn.md.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { DialectName } from "../../src/config/catalog.ts";
import { isObject } from "../../src/formats/json.ts";
import { canonical } from "../support/canonical-json.ts";
import type { ProviderFormat } from "../support/gateway-with-provider.ts";
import { type FakeProvider, type Script, startFakeProvider } from "../support/provider.ts";
import { objectsOf } from "./json.ts";
import { chatScript, nativeScript, responsesScript } from "./scripts.ts";

/** What a turn of a model says. */
export type Said = {
  readonly thought: string;
  readonly text: string;
  readonly calls: readonly Called[];
};

export type Called = { readonly id: string; readonly name: string; readonly input: JsonObject };

export type Vendor = {
  /** The name of the provider, and of its model. */
  readonly name: string;
  readonly dialect: DialectName;
  readonly api: ProviderFormat;
  /** The turn in the vendor's own form: a message, `{content}`, or `{output}`. */
  readonly turn: (said: Said) => JsonObject;
  /** The id of call number `count` of a conversation. */
  readonly idOf: (count: number, name: string) => string;
  /** The turn as it comes back through clients of other formats. Default: as it was. */
  readonly wanted?: (turn: JsonObject) => JsonObject;
  /** The same through clients of its own format. */
  readonly wantedOfOwn?: (turn: JsonObject) => JsonObject;
  /** Why it refuses a body; `given` are the turns that it wrote. */
  readonly refuse?: (body: JsonObject, given: readonly JsonObject[]) => string | undefined;
};

/** The turns of the model in a body, in the form of `Vendor.turn`. */
export function turnsIn(api: ProviderFormat, body: JsonObject): JsonObject[] {
  if (api === "chat") return assistantsOf(body);
  if (api === "native") return assistantsOf(body).map(({ content = [] }) => ({ content }));
  const turns: JsonObject[][] = [];
  let open: JsonObject[] | undefined;
  for (const item of objectsOf(body.input)) {
    const isOutput = item.type === "function_call_output" || item.role === "user";
    if (isOutput) open = undefined;
    else if (open) open.push(item);
    else {
      open = [item];
      turns.push(open);
    }
  }
  return turns.map((output) => ({ output }));
}

function assistantsOf(body: JsonObject): JsonObject[] {
  return objectsOf(body.messages).filter(({ role }) => role === "assistant");
}

/** The calls of a turn, by their ids. */
export function callIdsOf(turn: JsonObject): string[] {
  const calls = [
    ...objectsOf(turn.tool_calls).map(({ id }) => id),
    ...objectsOf(turn.content).flatMap(({ type, id }) => (type === "tool_use" ? [id] : [])),
    ...objectsOf(turn.output).flatMap(({ type, call_id: id }) =>
      type === "function_call" ? [id] : [],
    ),
  ];
  return calls.filter((id) => typeof id === "string");
}

function resultIdsOf(entry: JsonObject): JsonValue[] {
  if (entry.role === "tool") return [entry.tool_call_id ?? null];
  if (entry.type === "function_call_output") return [entry.call_id ?? null];
  if (entry.role !== "user") return [];
  return objectsOf(entry.content).flatMap(({ type, tool_use_id: id }) =>
    type === "tool_result" ? [id ?? null] : [],
  );
}

/** Every vendor refuses a result without its call, and a call without its result. */
function refusePairs(body: JsonObject): string | undefined {
  const open: JsonValue[] = [];
  for (const entry of objectsOf(body.messages ?? body.input)) {
    for (const id of resultIdsOf(entry)) {
      const at = open.indexOf(id);
      if (at < 0) return `no call has the id ${JSON.stringify(id)}`;
      open.splice(at, 1);
    }
    const isAnswer = entry.role === "assistant" || entry.type === "function_call";
    if (!isAnswer) continue;
    if (open.length > 0 && entry.role === "assistant") return `no result for ${open.join()}`;
    open.push(...callIdsOf(entry.type === "function_call" ? { output: [entry] } : entry));
  }
  return open.length > 0 ? `no result for ${open.join()}` : undefined;
}

/** One call of a chat turn. */
function chatCalls(calls: readonly Called[], more: (index: number) => JsonObject = () => ({})) {
  if (calls.length === 0) return {};
  return {
    tool_calls: calls.map(({ id, name, input }, index) => ({
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(input) },
      ...more(index),
    })),
  };
}

function chatTurn({ text, calls }: Said, more: JsonObject = {}): JsonObject {
  const content = text === "" ? null : text;
  return { role: "assistant", content, ...more, ...chatCalls(calls) };
}

function without(...names: string[]) {
  return (turn: JsonObject): JsonObject =>
    Object.fromEntries(Object.entries(turn).filter(([name]) => !names.includes(name)));
}

const plainId = (count: number) => `call_${count}_${"0123456789abcdef".repeat(2).slice(count % 9)}`;

/** Refuses a turn with calls whose reasoning is missing or blank. */
function needsReasoning(body: JsonObject): string | undefined {
  const turns = objectsOf(body.messages);
  const at = turns.findIndex(
    ({ role, tool_calls: calls, reasoning_content: reasoning }) =>
      role === "assistant" &&
      Array.isArray(calls) &&
      (typeof reasoning !== "string" || reasoning.trim() === ""),
  );
  return at < 0 ? undefined : `Missing reasoning_content at message index ${at}`;
}

/** Refuses parts of a type that only one vendor knows, and members that none of them has. */
function refuseMembers(names: readonly string[], parts = ["text", "image_url", "file"]) {
  return (body: JsonObject): string | undefined => {
    for (const [at, message] of objectsOf(body.messages).entries()) {
      const places = [message, ...objectsOf(message.tool_calls), ...objectsOf(message.content)];
      const member = places.flatMap(Object.keys).find((name) => names.includes(name));
      if (member !== undefined) return `messages.${at}: property '${member}' is unsupported`;
      const part = objectsOf(message.content).find(({ type }) => !parts.includes(String(type)));
      if (part) return `messages.${at}: unknown part ${String(part.type)}`;
    }
    return undefined;
  };
}

function onlyMembers(known: readonly string[], knownInCalls: readonly string[]) {
  return (body: JsonObject): string | undefined => {
    for (const [at, message] of objectsOf(body.messages).entries()) {
      const inCalls = objectsOf(message.tool_calls).flatMap(Object.keys);
      const extra =
        Object.keys(message).find((name) => !known.includes(name)) ??
        inCalls.find((name) => !knownInCalls.includes(name));
      if (extra !== undefined) return `messages.${at}.${extra}: Extra inputs are not permitted`;
    }
    return undefined;
  };
}

function refuseIds(pattern: RegExp) {
  return (body: JsonObject): string | undefined => {
    const wrong = assistantsOf(body)
      .flatMap(callIdsOf)
      .find((id) => !pattern.test(id));
    return wrong === undefined ? undefined : `the id ${wrong} of a call does not match ${pattern}`;
  };
}

function refuseNames(pattern: RegExp) {
  return (body: JsonObject): string | undefined => {
    const tools = objectsOf(body.tools).map((tool) =>
      isObject(tool.function) ? tool.function : tool,
    );
    const called = assistantsOf(body).flatMap(({ tool_calls: calls }) =>
      objectsOf(calls).map((call) => (isObject(call.function) ? call.function : {})),
    );
    const wrong = [...tools, ...called].find(({ name }) => !pattern.test(String(name)));
    return wrong && `the name ${String(wrong.name)} does not match ${pattern}`;
  };
}

type Refuse = NonNullable<Vendor["refuse"]>;

function firstOf(...checks: Refuse[]): Refuse {
  return (body, given) => {
    for (const check of checks) {
      const reason = check(body, given);
      if (reason !== undefined) return reason;
    }
    return undefined;
  };
}

/** Members with reasoning, under all the names in use. */
const reasoningNames = ["reasoning_content", "reasoning", "reasoning_details", "reasoning_text"];
const openaiMembers = [
  ...["role", "content", "name", "refusal", "audio", "tool_calls", "tool_call_id"],
  ...["function_call", "annotations"],
];
const refusedByOpenai = firstOf(
  onlyMembers(openaiMembers, ["id", "type", "function"]),
  refuseMembers([]),
  refuseIds(/^.{1,64}$/),
  refuseNames(/^[a-zA-Z0-9_-]{1,64}$/),
);

const skipsSignature = "skip_thought_signature_validator";

/** The signature of Gemini's first call; the turn is refused without it. */
function refuseUnsigned(body: JsonObject, given: readonly JsonObject[]): string | undefined {
  const known = new Set([skipsSignature, ...given.flatMap(signaturesOf)]);
  for (const [at, turn] of assistantsOf(body).entries()) {
    const [signature] = signaturesOf(turn);
    if (!objectsOf(turn.tool_calls)[0]) continue;
    if (signature === undefined) return `Function call is missing a thought_signature, turn ${at}`;
    if (!known.has(signature)) return `Corrupted thought signature, turn ${at}`;
  }
  return undefined;
}

function signaturesOf(turn: JsonObject): string[] {
  const [call] = objectsOf(turn.tool_calls);
  const extra = isObject(call?.extra_content) ? call.extra_content : {};
  const { thought_signature: signature } = isObject(extra.google) ? extra.google : {};
  return typeof signature === "string" ? [signature] : [];
}

/** OpenRouter takes a list of its own back in its order, unchanged. */
function refuseDetails(body: JsonObject, given: readonly JsonObject[]): string | undefined {
  const known = new Set(given.map((turn) => canonical(turn.reasoning_details ?? null)));
  const own = new Set(
    given.flatMap((turn) => objectsOf(turn.reasoning_details)).map((entry) => canonical(entry)),
  );
  const changed = assistantsOf(body).some(
    ({ reasoning_details: details }) =>
      objectsOf(details).some((entry) => own.has(canonical(entry))) &&
      !known.has(canonical(details ?? null)),
  );
  return changed ? "reasoning_details were changed" : undefined;
}

function nativeTurn({ thought, text, calls }: Said, thinking: JsonObject[]): JsonObject {
  return {
    content: [
      ...thinking.map((block) =>
        block.type === "thinking" ? { ...block, thinking: thought } : block,
      ),
      ...(text === "" ? [] : [{ type: "text", text }]),
      ...calls.map((call) => ({ type: "tool_use", ...call })),
    ],
  };
}

/** The vendor of the native format: thinking only with its own signatures, ids in its alphabet. */
function refuseNative(body: JsonObject, given: readonly JsonObject[]): string | undefined {
  const own = given.flatMap(({ content }) => objectsOf(content));
  const known = new Set(own.flatMap(({ signature, data }) => [signature, data]));
  const seen = new Set<JsonValue>();
  for (const [at, { role, content }] of objectsOf(body.messages).entries()) {
    for (const block of objectsOf(content)) {
      const { type, id, signature, data } = block;
      if (type === "thinking" && !known.has(signature))
        return `messages.${at}: Invalid \`signature\` in \`thinking\``;
      if (type === "redacted_thinking" && !known.has(data))
        return `messages.${at}: Invalid \`data\` in \`redacted_thinking\` block`;
      if (type !== "tool_use") continue;
      if (!/^[a-zA-Z0-9_-]+$/.test(String(id))) return `messages.${at}.id: wrong pattern`;
      if (seen.has(id ?? null)) return "`tool_use` ids must be unique";
      seen.add(id ?? null);
    }
    if (role !== "user" && role !== "assistant") return `messages.${at}: role`;
  }
  return undefined;
}

/** DeepSeek's and Kimi's native endpoints: the thinking of every turn with calls. */
function refuseUnthought(body: JsonObject): string | undefined {
  const missing = assistantsOf(body).some(({ content }) => {
    const blocks = objectsOf(content);
    const thought = blocks.find(({ type }) => type === "thinking")?.thinking;
    return (
      blocks.some(({ type }) => type === "tool_use") &&
      (typeof thought !== "string" || thought.trim() === "")
    );
  });
  return missing
    ? "The `content[].thinking` in the thinking mode must be passed back to the API."
    : undefined;
}

function responsesTurn({ thought, text, calls }: Said, name: string): JsonObject {
  return {
    output: [
      {
        type: "reasoning",
        id: `rs_${thought.length}`,
        // Two parts, which stay two.
        summary: [
          { type: "summary_text", text: thought },
          { type: "summary_text", text: `More: ${thought}` },
        ],
        encrypted_content: `gAAAA-${name}-${Buffer.from(thought).toString("base64url")}`,
      },
      ...(text === ""
        ? []
        : [
            {
              type: "message",
              id: `msg_${thought.length}`,
              role: "assistant",
              status: "completed",
              phase: calls.length > 0 ? "commentary" : "final_answer",
              content: [{ type: "output_text", text, annotations: [], logprobs: [] }],
            },
          ]),
      ...calls.map((call) => ({
        type: "function_call",
        id: `fc_${call.id}`,
        call_id: call.id,
        name: call.name,
        arguments: JSON.stringify(call.input),
        status: "completed",
      })),
    ],
  };
}

/** Encrypted content of others does not decrypt, and none is not accepted. */
function refuseItems(body: JsonObject, given: readonly JsonObject[]): string | undefined {
  const known = new Set(
    given.flatMap(({ output }) => objectsOf(output).map((item) => item.encrypted_content)),
  );
  for (const item of objectsOf(body.input)) {
    if (item.type === "reasoning" && !known.has(item.encrypted_content))
      return "The encrypted content could not be verified.";
    if (item.type === "function_call" && String(item.call_id).length > 64)
      return "call_id: string too long";
  }
  return undefined;
}

/** The name of its thinking, as an open server has it. */
const openServer = (dialect: "vllm" | "sglang" | "llamacpp", names: string[]): Vendor => ({
  name: dialect,
  dialect,
  api: "chat",
  turn: (said) => chatTurn(said, Object.fromEntries(names.map((name) => [name, said.thought]))),
  idOf: (count) => `chatcmpl-tool-${count}`,
});

export const vendors: readonly Vendor[] = [
  {
    name: "anthropic",
    dialect: "anthropic",
    api: "native",
    turn: (said) => {
      const signature = `EqQB${Buffer.from(said.thought).toString("base64")}`;
      const hidden = { type: "redacted_thinking", data: `Eo8B${signature}` };
      const thinking = { type: "thinking", thinking: "", signature };
      return nativeTurn(said, said.calls.length > 1 ? [thinking, hidden] : [thinking]);
    },
    idOf: (count) => `toolu_${count}`,
    refuse: refuseNative,
  },
  ...(["deepseek", "kimi"] as const).map(
    (dialect): Vendor => ({
      name: `${dialect}-native`,
      dialect,
      api: "native",
      turn: (said) => nativeTurn(said, [{ type: "thinking", thinking: "", signature: "" }]),
      idOf: (count, name) => (dialect === "kimi" ? `${name}_${count}` : `call_${count}`),
      refuse: refuseUnthought,
    }),
  ),
  ...["", "-xai"].map((suffix): Vendor => {
    const name = suffix === "" ? "openai-responses" : "xai-responses";
    return {
      name,
      dialect: suffix === "" ? "openai" : "xai",
      api: "responses",
      turn: (said) => responsesTurn(said, name),
      idOf: plainId,
      // No other format has a place for the phase of a message.
      wanted: ({ output }) => ({ output: objectsOf(output).map(without("phase")) }),
      refuse: refuseItems,
    };
  }),
  {
    name: "openai",
    dialect: "openai",
    api: "chat",
    turn: (said) => chatTurn(said, { refusal: null, annotations: [] }),
    idOf: plainId,
    refuse: refusedByOpenai,
  },
  {
    name: "azure",
    dialect: "azure",
    api: "chat",
    turn: (said) => chatTurn(said, { refusal: null }),
    idOf: plainId,
    refuse: firstOf(refusedByOpenai, (body) =>
      objectsOf(body.tools).some(({ function: tool }) => isObject(tool) && tool.description === "")
        ? "tools: the description is empty"
        : undefined,
    ),
  },
  {
    name: "deepseek",
    dialect: "deepseek",
    api: "chat",
    turn: (said) => chatTurn(said, { reasoning_content: said.thought }),
    idOf: (count) => `call_00_${count}`,
    refuse: firstOf(needsReasoning, refuseMembers([])),
  },
  {
    name: "kimi",
    dialect: "kimi",
    api: "chat",
    turn: (said) => chatTurn(said, { reasoning_content: said.thought }),
    idOf: (count, name) => `functions.${name}:${count}`,
    refuse: firstOf(needsReasoning, refuseIds(/^functions\.[\w-]+:\d+$/), (body) => {
      const ids = assistantsOf(body).flatMap(callIdsOf);
      return new Set(ids).size < ids.length ? "an id of a call is not the only one" : undefined;
    }),
  },
  {
    name: "gemini",
    dialect: "gemini",
    api: "chat",
    turn: (said) => {
      const google = { thought_signature: `AVSo${Buffer.from(said.thought).toString("base64")}` };
      const extra_content = { google };
      return {
        role: "assistant",
        ...(said.text === "" ? {} : { content: said.text }),
        ...chatCalls(said.calls, (index): JsonObject => (index === 0 ? { extra_content } : {})),
        ...(said.calls.length === 0 && { extra_content }),
      };
    },
    idOf: (count) => `function-call-${10_000 + count}`,
    refuse: firstOf(refuseUnsigned, refuseMembers(reasoningNames)),
  },
  {
    name: "openrouter",
    dialect: "openrouter",
    api: "chat",
    turn: (said) =>
      chatTurn(said, {
        refusal: null,
        reasoning: said.thought,
        reasoning_details: [
          {
            type: "reasoning.text",
            text: said.thought,
            signature: `sig-${said.thought}`,
            format: "google-gemini-v1",
            index: 0,
          },
          { type: "reasoning.summary", summary: "Short.", format: "openai-v1", index: 1 },
          {
            type: "reasoning.encrypted",
            data: `enc-${said.thought}`,
            id: "rs_1",
            format: "openai-v1",
            index: 2,
          },
        ],
      }),
    idOf: (count) => `toolu_vrtx_${count}`,
    // The list says it again.
    wanted: without("reasoning"),
    refuse: refuseDetails,
  },
  {
    name: "mistral",
    dialect: "mistral",
    api: "chat",
    turn: (said) => ({
      role: "assistant",
      content: [
        { type: "thinking", thinking: [{ type: "text", text: said.thought }] },
        ...(said.text === "" ? [] : [{ type: "text", text: said.text }]),
      ],
      ...chatCalls(said.calls),
    }),
    idOf: (count) => `aB${String(count).padStart(7, "0")}`,
    refuse: firstOf(
      onlyMembers(
        ["role", "content", "tool_calls", "prefix", "name", "tool_call_id"],
        ["id", "type", "function", "index"],
      ),
      refuseMembers([], ["text", "image_url", "thinking"]),
      refuseIds(/^[a-zA-Z0-9]{9}$/),
      (body) =>
        objectsOf(body.messages).some(({ role }) => role === "developer")
          ? "the role developer is unknown"
          : undefined,
    ),
  },
  {
    name: "qwen",
    dialect: "qwen",
    api: "chat",
    turn: (said) =>
      chatTurn(said, {
        reasoning_content: said.thought,
        encrypted_content: `qwen-${Buffer.from(said.thought).toString("base64")}`,
      }),
    idOf: plainId,
    refuse: refuseMembers([]),
  },
  {
    name: "xai",
    dialect: "xai",
    api: "chat",
    turn: (said) => chatTurn(said, { reasoning_content: said.thought, refusal: null }),
    idOf: plainId,
    wanted: without("reasoning_content"),
    refuse: (body) =>
      body.reasoning_effort !== undefined &&
      (body.stop !== undefined || body.presence_penalty !== undefined)
        ? "stop and penalties are not supported with reasoning"
        : undefined,
  },
  {
    name: "groq",
    dialect: "groq",
    api: "chat",
    turn: (said) => chatTurn(said, { reasoning: said.thought }),
    idOf: plainId,
    wanted: without("reasoning"),
    wantedOfOwn: without("reasoning"),
    refuse: refuseMembers([...reasoningNames, "extra_content", "images"]),
  },
  openServer("vllm", ["reasoning", "reasoning_content"]),
  openServer("sglang", ["reasoning_content"]),
  openServer("llamacpp", ["reasoning_content"]),
  {
    name: "generic",
    dialect: "generic",
    api: "chat",
    turn: (said) => ({
      ...chatTurn(said, { reasoning_text: said.thought, note: { of: "tomorrow" } }),
      ...chatCalls(said.calls, (index) => ({ step: index })),
    }),
    idOf: (count, name) => `${name} ${count}`,
    // Members that nobody knows go back through clients of the same format only.
    wanted: (turn) => ({
      ...without("note", "tool_calls")(turn),
      ...(turn.tool_calls !== undefined && {
        tool_calls: objectsOf(turn.tool_calls).map(without("step")),
      }),
    }),
  },
];

/** The running stand-ins. */
export type Stand = {
  readonly provider: FakeProvider;
  /** The turns that each vendor wrote in this conversation. */
  given(name: string): readonly JsonObject[];
  /** Why a request was refused, since the start of the conversation. */
  readonly refusals: string[];
  /** Begins a new conversation. */
  reset(): void;
  stop(): Promise<void>;
};

/**
 * Starts all stand-ins on one port, each below a path of its own. Of the turns of each, the first
 * has one call, the second two, the third none, and so on.
 */
export async function startVendors(): Promise<Stand> {
  const provider = await startFakeProvider();
  const given = new Map<string, JsonObject[]>();
  const refusals: string[] = [];
  provider.always(({ path, body }): Script => {
    const vendor = vendors.find(({ name }) => path.startsWith(`/${name}/`));
    if (!vendor) return { status: 404 };
    const turns = given.get(vendor.name) ?? [];
    const reason = refusePairs(body) ?? vendor.refuse?.(body, turns);
    if (reason !== undefined) {
      refusals.push(`${vendor.name}: ${reason}`);
      const error = { message: reason, type: "invalid_request_error" };
      const text = JSON.stringify({ type: "error", error });
      return { status: 400, headers: { "content-type": "application/json" }, writes: [text] };
    }
    const turn = vendor.turn(saidNext(vendor, turns.length, body));
    given.set(vendor.name, [...turns, turn]);
    return scriptOf(vendor.api, turn, body.stream === true);
  });
  return {
    provider,
    given: (name) => given.get(name) ?? [],
    refusals,
    reset: () => {
      given.clear();
      refusals.length = 0;
    },
    stop: () => provider.stop(),
  };
}

function saidNext({ api, name, idOf }: Vendor, number: number, body: JsonObject): Said {
  const before = turnsIn(api, body).flatMap(callIdsOf).length;
  const [first = "read_file", second = "grep"] = toolNamesIn(body);
  const names = [[first], [second, first], []][number % 3] ?? [];
  return {
    thought: `Thought ${number} of ${name}. ${"So. ".repeat(number)}`,
    text: number % 3 === 0 ? "" : `Text ${number} of ${name}.`,
    calls: names.map((called, index) => ({
      id: idOf(before + index, called),
      name: called,
      input: { path: `${number}.txt`, lines: [1, 2] },
    })),
  };
}

function toolNamesIn(body: JsonObject): string[] {
  return objectsOf(body.tools)
    .map(({ name, function: tool }) => (isObject(tool) ? tool.name : name))
    .filter((name) => typeof name === "string");
}

function scriptOf(api: ProviderFormat, turn: JsonObject, isStream: boolean): Script {
  if (api === "native") return nativeScript(turn, isStream);
  return api === "chat" ? chatScript(turn, isStream) : responsesScript(turn, isStream);
}
