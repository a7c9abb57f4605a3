// Events → the events of a Responses stream. Each item and each part is opened before it is filled,
// and closed once.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  Format,
  type ImageBlock,
  type TextBlock,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Cost,
  Event,
  MessageStart,
  ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { Carrier } from "../carry.ts";
import { mergeUsage } from "../chat/usage-and-endings.ts";
import { type EventEncoder, encodeCost } from "../codec.ts";
import { escapeLineSeparators, isObject, parseJsonText, stringifyJson } from "../json.ts";
import { readStartContent } from "../native/decode-block.ts";
import { runOf } from "../text-run.ts";
import { fromNativeId } from "../tool-ids.ts";
import { type ClientTool, customInput } from "../tool-names.ts";
import { type ClientToolType, clientToolOf, isClientToolType } from "./client-tools.ts";
import { type Ending, endingOf, headOf, type ResponseContext } from "./ending.ts";
import { newItemId } from "./item-ids.ts";
import { isRelayed, ResponseRelay } from "./relay.ts";

/** Encodes one stream, from `response.created` to `response.completed` or its like. */
export function createEventEncoder(context: ResponseContext): EventEncoder {
  return new ResponseEncoder(context);
}

/**
 * The stream of a request that fails before its answer, as OpenAI writes it: `error` has the whole
 * error, for SDKs. `response.failed` has the one code after which a client must not repeat it.
 */
export function encodeFailure(context: ResponseContext, body: JsonObject): string {
  return new ResponseEncoder(context).failAtOnce(isObject(body.error) ? body.error : {});
}

const keepAlive = ": keep-alive\n\n";

/** The open item of the output. All texts in it are JSON strings without their quotes. */
type OpenItem = {
  readonly id: string;
  readonly kind: Block["kind"];
  /** Of a message: its closed parts, as JSON. */
  readonly parts: string[];
  /** Of a message: the kind of its open part. */
  part: PartKind | undefined;
  /** The text of the open part, the summary, or the arguments. */
  text: string;
  /** Notes on the text of the open part, as JSON. */
  annotations: string[];
  /** What the client returns with its next request. */
  sealed: string;
};

type PartKind = "output_text" | "refusal";

function newOpenItem(id: string, kind: Block["kind"]): OpenItem {
  const part = undefined;
  return { id, kind, parts: [], part, text: "", annotations: [], sealed: "" };
}

export class ResponseEncoder implements EventEncoder {
  readonly #context: ResponseContext;
  readonly #carrier: Carrier;
  /** Writes the answer of a provider of this format. */
  #relay: ResponseRelay | undefined;
  readonly #head: string;
  readonly #echo: string;
  /** The closed items, as JSON. */
  readonly #output: string[] = [];
  #sequence = 0;
  #isStarted = false;
  #isClosed = false;
  #open: OpenItem | undefined;
  /** What stands before the text of the next delta of the open part. */
  #deltaHead = "";
  #usage: ReportedUsage | undefined;
  #stopReason: string | undefined;
  #isRefusal = false;
  #cost: Cost | undefined;

  constructor(context: ResponseContext) {
    this.#context = context;
    const { wishes, sealing } = context;
    const form = { format: Format.RESPONSES, toClientId: fromNativeId, hidesText: true };
    this.#carrier = new Carrier(form, wishes.includeSealed ? sealing : undefined);
    this.#head = stringifyJson(headOf(context)).slice(0, -1);
    this.#echo = stringifyJson(wishes.echo).slice(1);
  }

  encode(events: readonly Event[]): string {
    if (isRelayed(events[0])) this.#relay = new ResponseRelay(this.#context);
    if (this.#relay) return this.#relay.encode(events);
    let text = "";
    for (const event of this.#carrier.carry(events))
      if (!this.#isClosed) text += this.#encodeOne(event);
    return text;
  }

  /** A comment, which all parsers of event streams skip. */
  ping(): string {
    return keepAlive;
  }

  failure(body: JsonObject): string {
    if (this.#isClosed) return "";
    const { message, code, type } = isObject(body.error) ? body.error : {};
    const error = { code: code ?? type ?? "server_error", message: message ?? "" };
    if (this.#relay) return this.#relay.failure(error);
    const text = this.#start();
    this.#isClosed = true;
    return text + this.#lifecycle("response.failed", { status: "failed", members: { error } });
  }

  failAtOnce(error: JsonObject): string {
    const text = this.#start() + this.#event("error", { error });
    const failed = { code: "invalid_prompt", message: error.message ?? "" };
    const ending = { status: "failed", members: { error: failed } };
    return text + this.#lifecycle("response.failed", ending);
  }

  /** Empty if the events had their own end. */
  end(): string {
    if (this.#relay) return this.#relay.end();
    if (this.#isClosed) return "";
    const text = this.#start() + this.#closeItem();
    this.#isClosed = true;
    const ending = this.#ending();
    const cost = this.#context.showCost && this.#cost ? encodeCost(this.#cost) : undefined;
    return text + this.#lifecycle(`response.${ending.status}`, ending, cost);
  }

  /** The whole response, after its last event. */
  response(): string {
    return this.#response(this.#ending());
  }

  #encodeOne({ kind }: Event): string {
    switch (kind.case) {
      case "blockDelta":
        return this.#continueBlock(kind.value);
      case "blockStart":
        return this.#start() + this.#startBlock(kind.value.block);
      case "blockStop":
        return this.#stopBlock();
      case "messageStart":
        this.#usage = mergeUsage(this.#usage, kind.value.usage);
        return this.#start() + this.#wholeBlocks(kind.value);
      case "messageDelta":
        this.#stopReason = kind.value.stopReason ?? this.#stopReason;
        this.#cost = kind.value.cost;
        this.#usage = mergeUsage(this.#usage, kind.value.usage);
        return "";
      case "messageStop":
        return this.end();
      case "ping":
        return keepAlive;
      default:
        return "";
    }
  }

  #start(): string {
    if (this.#isStarted) return "";
    this.#isStarted = true;
    const begun = { status: "in_progress", members: {} };
    return (
      this.#lifecycle("response.created", begun) + this.#lifecycle("response.in_progress", begun)
    );
  }

  /** The content of an answer that starts complete. */
  #wholeBlocks(start: MessageStart): string {
    const { blocks, stopReason } = readStartContent(start);
    this.#stopReason = stopReason;
    return blocks.map((block) => this.#startBlock(block) + this.#stopBlock()).join("");
  }

  #startBlock(block: Block | undefined): string {
    const kind: Block["kind"] = block?.kind ?? { case: undefined };
    switch (kind.case) {
      case "text": {
        const { phase, refusal, text: given } = kind.value;
        const isNext = this.#open?.kind.case === "text" && this.#open.kind.value.phase === phase;
        const text = isNext ? this.#closePart() : this.#openMessage(kind);
        this.#isRefusal ||= refusal;
        return text + this.#openPart(refusal ? "refusal" : "output_text") + this.#text(given);
      }
      case "thinking": {
        const text = this.#openReasoning(kind);
        if (this.#open) this.#open.sealed = kind.value.signature;
        return text + this.#summary(kind.value.thinking);
      }
      case "redactedThinking": {
        const text = this.#openReasoning(kind);
        if (this.#open) this.#open.sealed = kind.value.data;
        return text;
      }
      case "image":
        return this.#closeItem() + this.#image(kind.value);
      case "toolUse":
        return this.#openCall(kind);
      default:
        // Its deltas have no counterpart either.
        return this.#closeItem();
    }
  }

  #continueBlock(delta: BlockDelta): string {
    const open = this.#open;
    if (!open) return "";
    const run = runOf(delta);
    if (run) return open.kind.case === "text" ? this.#run(run) : "";
    const { kind, attached } = delta;
    switch (open.kind.case) {
      case "text":
        if (attached) return this.#annotations(attached.members?.annotations);
        return kind.case === "text" ? this.#text(kind.value) : "";
      case "thinking":
        if (kind.case === "signature") open.sealed += kind.value;
        return kind.case === "thinking" ? this.#summary(kind.value) : "";
      case "toolUse":
        return kind.case === "inputJson" ? this.#arguments(kind.value) : "";
      default:
        return "";
    }
  }

  // A message stays open: the next block of text becomes its next part.
  #stopBlock(): string {
    return this.#open?.kind.case === "text" ? this.#closePart() : this.#closeItem();
  }

  #openItem(id: string, kind: Block["kind"], item: JsonObject): string {
    this.#open = newOpenItem(id, kind);
    return this.#event("response.output_item.added", { output_index: this.#index, item });
  }

  /** Number of the open item. */
  get #index(): number {
    return this.#output.length;
  }

  #openMessage(kind: Extract<Block["kind"], { case: "text" }>): string {
    const closed = this.#closeItem();
    const id = newItemId("msg");
    const members = { status: "in_progress", role: "assistant", content: [] };
    const item = { id, type: "message", ...members, ...phaseOf(kind.value) };
    return closed + this.#openItem(id, kind, item);
  }

  #openPart(kind: PartKind): string {
    const open = this.#open;
    if (!open) return "";
    open.part = kind;
    open.text = "";
    open.annotations = [];
    const place = {
      item_id: open.id,
      output_index: this.#index,
      content_index: open.parts.length,
    };
    const isText = kind === "output_text";
    this.#deltaHead = deltaHead(`response.${kind}.delta`, {
      ...place,
      ...(isText && { logprobs: [] }),
    });
    const part = isText
      ? { type: kind, annotations: [], logprobs: [], text: "" }
      : { type: kind, refusal: "" };
    return this.#event("response.content_part.added", { ...place, part });
  }

  #closePart(): string {
    const open = this.#open;
    if (!open?.part) return "";
    const kind = open.part;
    open.part = undefined;
    const place = `"item_id":"${open.id}","output_index":${this.#index},"content_index":${open.parts.length}`;
    const isText = kind === "output_text";
    const members = isText ? `"logprobs":[],"text":"${open.text}"` : `"refusal":"${open.text}"`;
    const annotations = isText ? `"annotations":[${open.annotations}],` : "";
    const part = `{"type":"${kind}",${annotations}${members}}`;
    open.parts.push(part);
    return (
      this.#raw(`response.${kind}.done`, `${place},${members}`) +
      this.#raw("response.content_part.done", `${place},"part":${part}`)
    );
  }

  /** Citations of the open text, as a provider of chat completions writes them. */
  #annotations(given: JsonValue | undefined): string {
    const open = this.#open;
    if (open?.part !== "output_text") return "";
    let text = "";
    for (const one of Array.isArray(given) ? given : []) {
      const { type, url_citation: cited } = isObject(one) ? one : {};
      if (type !== "url_citation" || !isObject(cited)) continue;
      const annotation = stringifyJson({ type, ...cited });
      const place = `"item_id":"${open.id}","output_index":${this.#index},"content_index":${open.parts.length},"annotation_index":${open.annotations.length}`;
      open.annotations.push(annotation);
      text += this.#raw(
        "response.output_text.annotation.added",
        `${place},"annotation":${annotation}`,
      );
    }
    return text;
  }

  /** An image that the model made. One that is only a URL has no place in this format. */
  #image({ source }: ImageBlock): string {
    if (source?.kind.case !== "base64") return "";
    const head = { id: newItemId("ig"), type: "image_generation_call" };
    const index = this.#index;
    const begun = { ...head, status: "in_progress", result: null };
    const item = { ...head, status: "completed", result: source.kind.value.data };
    this.#output.push(stringifyJson(item));
    return (
      this.#event("response.output_item.added", { output_index: index, item: begun }) +
      this.#event("response.output_item.done", { output_index: index, item })
    );
  }

  #openReasoning(kind: Block["kind"]): string {
    const closed = this.#closeItem();
    const id = newItemId("rs");
    const added = this.#openItem(id, kind, { id, type: "reasoning", summary: [] });
    if (kind.case !== "thinking" || !this.#context.wishes.includeSummary) return closed + added;
    const place = { item_id: id, output_index: this.#index, summary_index: 0 };
    this.#deltaHead = deltaHead("response.reasoning_summary_text.delta", place);
    const part = { type: "summary_text", text: "" };
    return (
      closed + added + this.#event("response.reasoning_summary_part.added", { ...place, part })
    );
  }

  #openCall(kind: Extract<Block["kind"], { case: "toolUse" }>): string {
    const closed = this.#closeItem();
    const { id: call_id, name } = kind.value;
    const tool = this.#context.wishes.clientTools.get(name);
    // Such a call comes whole, at its end.
    if (isClientToolType(tool?.kind)) {
      const { id: prefix } = clientToolOf(tool.kind);
      this.#open = newOpenItem(newItemId(prefix), kind);
      return closed;
    }
    const members = { status: "in_progress", call_id, ...namesOf(tool, name) };
    if (tool?.kind === "custom") {
      const id = newItemId("ctc");
      return (
        closed + this.#openItem(id, kind, { id, type: "custom_tool_call", ...members, input: "" })
      );
    }
    const id = newItemId("fc");
    const item = { id, type: "function_call", ...members, arguments: "" };
    const added = this.#openItem(id, kind, item);
    const place = { item_id: id, output_index: this.#index };
    this.#deltaHead = deltaHead("response.function_call_arguments.delta", place);
    return closed + added;
  }

  #closeItem(): string {
    const open = this.#open;
    if (!open) return "";
    const index = this.#index;
    const place = `"item_id":"${open.id}","output_index":${index}`;
    let text = this.#closePart();
    let item: string;
    switch (open.kind.case) {
      case "text":
        item = this.#closeMessage(open, open.kind.value);
        break;
      case "toolUse": {
        const [done, closed] = this.#closeCall(open, open.kind.value, place);
        text += done;
        item = closed;
        break;
      }
      default: {
        const [done, closed] = this.#closeReasoning(open, place);
        text += done;
        item = closed;
      }
    }
    this.#open = undefined;
    text += this.#raw("response.output_item.done", `"output_index":${index},"item":${item}`);
    this.#output.push(item);
    return text;
  }

  #closeMessage({ id, parts }: OpenItem, text: TextBlock): string {
    const phase = stringifyJson(phaseOf(text)).slice(1, -1);
    const head = `{"id":"${id}","type":"message","status":"${this.#itemStatus()}"`;
    return `${head},"role":"assistant","content":[${parts}]${phase && `,${phase}`}}`;
  }

  #itemStatus(): string {
    return this.#ending().status;
  }

  #closeReasoning(open: OpenItem, place: string): [text: string, item: string] {
    const { wishes } = this.#context;
    const isShown = wishes.includeSummary && open.kind.case === "thinking";
    const part = `{"type":"summary_text","text":"${open.text}"}`;
    const text = isShown
      ? this.#raw(
          "response.reasoning_summary_text.done",
          `${place},"summary_index":0,"text":"${open.text}"`,
        ) +
        this.#raw(
          "response.reasoning_summary_part.done",
          `${place},"summary_index":0,"part":${part}`,
        )
      : "";
    const sealed =
      wishes.includeSealed && open.sealed !== ""
        ? `,"encrypted_content":${stringifyJson(open.sealed)}`
        : "";
    const summary = isShown && open.text !== "" ? part : "";
    return [text, `{"id":"${open.id}","type":"reasoning","summary":[${summary}]${sealed}}`];
  }

  #closeCall(
    open: OpenItem,
    { id, name, input }: { id: string; name: string; input?: JsonObject | undefined },
    place: string,
  ): [text: string, item: string] {
    const tool = this.#context.wishes.clientTools.get(name);
    // The call arrived whole, or has no arguments.
    const isWhole = open.text === "";
    const given = isWhole ? quoted(JSON.stringify(input ?? {})) : open.text;
    const names = stringifyJson(namesOf(tool, name)).slice(1, -1);
    const members = `"status":"${this.#itemStatus()}","call_id":${stringifyJson(id)},${names}`;
    if (isClientToolType(tool?.kind)) return this.#closeOwnCall(open.id, id, tool.kind, given);
    if (tool?.kind === "custom") {
      const plain = quoted(customInput(JSON.parse(`"${given}"`)));
      const text =
        this.#raw("response.custom_tool_call_input.delta", `${place},"delta":"${plain}"`) +
        this.#raw("response.custom_tool_call_input.done", `${place},"input":"${plain}"`);
      return [text, `{"id":"${open.id}","type":"custom_tool_call",${members},"input":"${plain}"}`];
    }
    const delta = isWhole ? this.#delta(given) : "";
    const done = `${place},"name":${stringifyJson(tool?.name ?? name)},"arguments":"${given}"`;
    return [
      delta + this.#raw("response.function_call_arguments.done", done),
      `{"id":"${open.id}","type":"function_call",${members},"arguments":"${given}"}`,
    ];
  }

  /** A call with a form of its own; a plain one where its arguments lack what its type needs. */
  #closeOwnCall(
    itemId: string,
    call_id: string,
    name: ClientToolType,
    given: string,
  ): [text: string, item: string] {
    const text: string = JSON.parse(`"${given}"`);
    const input = parseJsonText(text);
    const own = isObject(input) ? clientToolOf(name).membersOf(input) : undefined;
    const type = own ? `${name}_call` : "function_call";
    const members = { call_id, ...(own ?? { name, arguments: text }) };
    const itemOf = (status: string) => ({ id: itemId, type, status, ...members });
    const place = { output_index: this.#index };
    const added = { ...place, item: itemOf("in_progress") };
    const done = { ...place, item_id: itemId, name, arguments: text };
    return [
      this.#event("response.output_item.added", added) +
        (own ? "" : this.#event("response.function_call_arguments.done", done)),
      stringifyJson(itemOf(this.#itemStatus())),
    ];
  }

  #text(text: string): string {
    if (text === "" || !this.#open) return "";
    const given = quoted(text);
    this.#open.text += given;
    return this.#delta(given);
  }

  #run(run: NonNullable<ReturnType<typeof runOf>>): string {
    let text = "";
    let whole = "";
    run.eachText((given) => {
      whole += given;
      text += this.#delta(given);
    });
    if (this.#open) this.#open.text += whole;
    return text;
  }

  #summary(text: string): string {
    if (text === "" || !this.#open) return "";
    const given = quoted(text);
    this.#open.text += given;
    return this.#context.wishes.includeSummary ? this.#delta(given) : "";
  }

  #arguments(text: string): string {
    if (text === "" || this.#open?.kind.case !== "toolUse") return "";
    const given = quoted(text);
    this.#open.text += given;
    const tool = this.#context.wishes.clientTools.get(this.#open.kind.value.name);
    const comesWhole = tool?.kind === "custom" || isClientToolType(tool?.kind);
    return comesWhole ? "" : this.#delta(given);
  }

  /** A delta of the open part. `given` is a JSON string without its quotes. */
  #delta(given: string): string {
    return `${this.#deltaHead}${this.#sequence++},"delta":"${given}"}\n\n`;
  }

  #event(type: string, members: JsonObject): string {
    return this.#raw(type, stringifyJson(members).slice(1, -1));
  }

  /** `members` are JSON without the braces. */
  #raw(type: string, members: string): string {
    return `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},${members}}\n\n`;
  }

  #lifecycle(type: string, ending: Ending, cost?: JsonObject): string {
    const gateway = cost === undefined ? "" : `,"gateway":${JSON.stringify(cost)}`;
    return this.#raw(type, `"response":${this.#response(ending)}${gateway}`);
  }

  #response({ status, members }: Ending): string {
    const state = { status, error: null, incomplete_details: null, usage: null, ...members };
    return `${this.#head},${stringifyJson(state).slice(1, -1)},"output":[${this.#output}],${this.#echo}`;
  }

  #ending(): Ending {
    // A refusal in words is an answer: SDKs take `content_filter` for one that was cut.
    const reason =
      this.#isRefusal && this.#stopReason === "refusal" ? "end_turn" : this.#stopReason;
    return endingOf(reason, this.#usage, this.#context.estimatedInputTokens);
  }
}

function phaseOf({ phase }: TextBlock): JsonObject {
  return phase === undefined ? {} : { phase };
}

/** The members of a call that name its tool as the client does. `name` is the model's name. */
function namesOf(tool: ClientTool | undefined, name: string): JsonObject {
  if (!tool) return { name };
  return { name: tool.name, ...(tool.namespace !== undefined && { namespace: tool.namespace }) };
}

/** The text before the number and the text of a delta. `place` are members that never change. */
function deltaHead(type: string, place: JsonObject): string {
  const members = stringifyJson(place).slice(1, -1);
  return `event: ${type}\ndata: {"type":"${type}",${members},"sequence_number":`;
}

/** A text as a JSON string without its quotes. */
function quoted(text: string): string {
  return escapeLineSeparators(JSON.stringify(text)).slice(1, -1);
}
