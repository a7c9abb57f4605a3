// The answer of a provider of this format as its client gets it: event by event as it came, but for
// the id, the model, the usage and what only its provider may read.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Cost, Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { mergeUsage } from "../chat/usage-and-endings.ts";
import { encodeCost } from "../codec.ts";
import { escapeLineSeparators, isObject, stringifyJson } from "../json.ts";
import { attachedOf, sealPack, type Writer } from "../packs.ts";
import { pieceOf, textOfPiece } from "../pieces.ts";
import { endingOf, headOf, type ResponseContext } from "./ending.ts";
import { newItemId } from "./item-ids.ts";

/** True for the first event of an answer that a provider of this format streams. */
export function isRelayed(start: Event | undefined): boolean {
  return start?.kind.case === "messageStart" && start.wireForm?.format === Format.RESPONSES;
}

/** An item of the output, as far as it came. */
type Item = {
  readonly item: JsonObject;
  readonly isDone: boolean;
  /** What deltas added to it: one text for each place in it. The last one grows. */
  readonly texts: ItemText[];
};
type ItemText = {
  /** The type of its deltas. */
  readonly type: JsonValue | undefined;
  readonly content: JsonValue | undefined;
  readonly summary: JsonValue | undefined;
  text: string;
};

/** Writes the events of one answer. */
export class ResponseRelay {
  readonly #context: ResponseContext;
  readonly #head: JsonObject;
  #writer: Writer | undefined;
  #sequence = 0;
  #isClosed = false;
  /** The response as its provider wrote it last. */
  #response: JsonObject = {};
  #hasEnd = false;
  /** By their numbers. */
  readonly #items = new Map<number, Item>();
  /** The parts that were announced, by the numbers of item and part. */
  readonly #parts = new Set<string>();
  /** What was sealed, by what it was. */
  readonly #sealed = new Map<string, string | undefined>();
  readonly #seals = new Set<string>();
  #usage: ReportedUsage | undefined;
  #stopReason: string | undefined;
  #cost: Cost | undefined;
  /** Web searches, where the provider reports them. */
  #searches: number | undefined;

  constructor(context: ResponseContext) {
    this.#context = context;
    this.#head = headOf(context);
  }

  encode(events: readonly Event[]): string {
    let text = "";
    for (const event of events) {
      if (this.#isClosed) break;
      this.#note(event);
      const piece = event.wireForm?.format === Format.RESPONSES ? pieceOf(event) : undefined;
      if (piece) text += this.#goOn(piece, textOfPiece(event)) ?? this.#write(piece);
      if (event.kind.case === "messageStop") text += this.end();
    }
    return text;
  }

  failure(error: JsonObject): string {
    if (this.#isClosed) return "";
    this.#isClosed = true;
    const members = { status: "failed", error, output: this.#output() };
    return this.#event({ type: "response.failed", response: this.#patched(members) });
  }

  /** Ends an answer whose provider wrote no end, because it was cut. */
  end(): string {
    if (this.#isClosed) return "";
    let text = "";
    for (const [output_index, entry] of this.#items) {
      if (entry.isDone) continue;
      const item = { ...wholeOf(entry), status: "incomplete" };
      this.#items.set(output_index, { item, isDone: true, texts: [] });
      text += this.#event({ type: "response.output_item.done", output_index, item });
    }
    this.#isClosed = true;
    const { status, members } = this.#ending();
    const response = this.#patched({ ...members, status, output: this.#output() });
    return text + this.#event({ type: `response.${status}`, response, ...this.#gateway() });
  }

  /** The whole response, after its last event. */
  response(): JsonObject {
    const { status, members } = this.#ending();
    if (this.#hasEnd) return this.#patched({ usage: members.usage ?? null });
    return this.#patched({ ...members, status, output: this.#output() });
  }

  #note({ kind }: Event): void {
    if (kind.case === "messageStart") {
      this.#writer = kind.value.attached;
      this.#usage = mergeUsage(this.#usage, kind.value.usage);
    }
    if (kind.case !== "messageDelta") return;
    this.#usage = mergeUsage(this.#usage, kind.value.usage);
    this.#stopReason = kind.value.stopReason ?? this.#stopReason;
    this.#cost = kind.value.cost;
    const uses = kind.value.usage?.extensions?.server_tool_use;
    const searches = isObject(uses) ? uses.web_search_requests : undefined;
    if (typeof searches === "number") this.#searches = searches;
  }

  #ending() {
    return endingOf(this.#stopReason, this.#usage, this.#context.estimatedInputTokens);
  }

  #gateway(): JsonObject {
    return this.#context.showCost && this.#cost ? { gateway: encodeCost(this.#cost) } : {};
  }

  /**
   * One more delta of a text that has begun, as it came: nearly all events are. Undefined for
   * anything else.
   */
  #goOn(piece: JsonObject, given: string | undefined): string | undefined {
    const { type, output_index: index, delta, sequence_number: number } = piece;
    if (given === undefined || typeof index !== "number" || typeof delta !== "string")
      return undefined;
    if (number !== undefined && number !== this.#sequence) return undefined;
    const known = this.#items.get(index)?.texts.at(-1);
    if (!known || !isAt(known, piece) || piece.item !== undefined || piece.response !== undefined)
      return undefined;
    known.text += delta;
    const sequence = this.#sequence++;
    const json = escapeLineSeparators(given);
    const numbered =
      number === undefined
        ? `${json.slice(0, json.lastIndexOf("}"))},"sequence_number":${sequence}}`
        : json;
    return `event: ${String(type)}\ndata: ${numbered}\n\n`;
  }

  #write({ response, ...event }: JsonObject): string {
    const given = isObject(event.item) ? { ...event, item: this.#ownItem(event.item) } : event;
    const announced = this.#announce(given);
    if (announced === undefined) return "";
    return this.#started(given) + announced + this.#writeOne(given, response);
  }

  #writeOne(given: JsonObject, response: JsonValue | undefined): string {
    this.#fold(given);
    if (!isObject(response)) return this.#event(given);
    this.#response = response;
    const { type } = given;
    // The response of a plain answer has no event around it.
    this.#hasEnd =
      type === "response.completed" || type === "response.incomplete" || type === undefined;
    if (!this.#hasEnd) return this.#event({ ...given, response: this.#patched({}) });
    const { output } = response;
    // Items that were not announced on their way.
    const late = (Array.isArray(output) ? output : []).map((item, index) =>
      isObject(item) && !this.#items.has(index) ? this.#wholeItem(index, item) : "",
    );
    this.#isClosed = true;
    const { usage = null } = this.#ending().members;
    const last = this.#event({ ...given, response: this.#patched({ usage }), ...this.#gateway() });
    return late.join("") + last;
  }

  #wholeItem(index: number, given: JsonObject): string {
    const item = this.#ownItem(given);
    const done = { type: "response.output_item.done", output_index: index, item };
    return (this.#announce(done) ?? "") + this.#writeOne(done, undefined);
  }

  /**
   * The events without which clients cannot read this one, where its provider left them out.
   * Undefined for more of an item that was not announced: its end has all of it.
   */
  #announce({
    type,
    output_index: index,
    content_index: part,
    item,
  }: JsonObject): string | undefined {
    if (typeof index !== "number" || type === "response.output_item.added") return "";
    const isText = type === "response.output_text.delta";
    let text = "";
    if (!this.#items.has(index)) {
      if (!isObject(item) && !isText) return undefined;
      const empty = { type: "message", id: newItemId("msg"), role: "assistant", content: [] };
      const added = { ...(isObject(item) ? item : empty), status: "in_progress" };
      const event = { type: "response.output_item.added", output_index: index, item: added };
      text = this.#writeOne(event, undefined);
    }
    const place = `${index} ${String(part)}`;
    if (type === "response.content_part.added") this.#parts.add(place);
    if (!isText || this.#parts.has(place)) return text;
    this.#parts.add(place);
    const { id = null } = this.#items.get(index)?.item ?? {};
    const members = { item_id: id, output_index: index, content_index: part ?? 0 };
    const empty = { type: "output_text", text: "", annotations: [], logprobs: [] };
    return text + this.#event({ type: "response.content_part.added", ...members, part: empty });
  }

  /** The beginning of a stream, where its provider left it out. */
  #started({ type }: JsonObject): string {
    if (this.#sequence > 0 || type === "response.created") return "";
    const response = this.#patched({ status: "in_progress", output: [] });
    return this.#event({ type: "response.created", response });
  }

  #event(event: JsonObject): string {
    const numbered = { ...event, sequence_number: this.#sequence++ };
    return `event: ${String(event.type)}\ndata: ${stringifyJson(numbered)}\n\n`;
  }

  /**
   * The response with what is the gateway's own in it. Clients rely on some members of the request
   * in it, which not every server repeats.
   */
  #patched(members: JsonObject): JsonObject {
    const given = { ...this.#context.wishes.echo, ...this.#response };
    const whole: JsonObject = { ...given, ...members, ...this.#head, store: false };
    if (this.#searches !== undefined) whole.tool_usage = this.#toolUsage(whole.tool_usage);
    const { output } = whole;
    // Some servers do not repeat the items at the end.
    const isMissing = !Array.isArray(output) || output.length === 0;
    if (this.#hasEnd && isMissing && this.#items.size > 0)
      return { ...whole, output: this.#output() };
    if (!Array.isArray(output)) return whole;
    return {
      ...whole,
      output: output.map((item) => (isObject(item) ? this.#ownItem(item) : item)),
    };
  }

  /** The provider's report of its tools, with the searches that are charged. */
  #toolUsage(given: JsonValue | undefined): JsonValue {
    const usage = isObject(given) ? given : {};
    const search = isObject(usage.web_search) ? usage.web_search : {};
    return { ...usage, web_search: { ...search, num_requests: this.#searches ?? 0 } };
  }

  /** The item with its encrypted content sealed, or without it for a client that asks for none. */
  #ownItem(item: JsonObject): JsonObject {
    const { encrypted_content: encrypted, ...others } = item;
    if (typeof encrypted !== "string" || this.#seals.has(encrypted)) return item;
    const sealed = this.#seal(encrypted);
    return sealed === undefined ? others : { ...others, encrypted_content: sealed };
  }

  /** The same text for the same content: an item comes several times. */
  #seal(encrypted: string): string | undefined {
    const { sealing, wishes } = this.#context;
    const writer = this.#writer;
    if (!sealing || !writer || !wishes.includeSealed) return undefined;
    if (this.#sealed.has(encrypted)) return this.#sealed.get(encrypted);
    const block = attachedOf(writer, { members: { encrypted_content: encrypted } });
    const sealed = sealPack({ block }, sealing);
    this.#sealed.set(encrypted, sealed);
    if (sealed !== undefined) this.#seals.add(sealed);
    return sealed;
  }

  #output(): JsonObject[] {
    const items = [...this.#items].sort(([one], [other]) => one - other);
    return items.map(([, item]) => wholeOf(item));
  }

  /** Keeps what came of the items, for an end that the provider does not write. */
  #fold(event: JsonObject): void {
    const { type, output_index: index, item, delta } = event;
    if (typeof index !== "number") return;
    if (isObject(item)) {
      const isDone = type === "response.output_item.done";
      this.#items.set(index, { item, isDone, texts: [] });
      return;
    }
    const texts = this.#items.get(index)?.texts;
    if (!texts || typeof delta !== "string") return;
    const last = texts.at(-1);
    const { content_index: content, summary_index: summary } = event;
    if (last && isAt(last, event)) last.text += delta;
    else texts.push({ type, content, summary, text: delta });
  }
}

/** True if an event adds to this text. */
function isAt({ type, content, summary }: ItemText, event: JsonObject): boolean {
  return type === event.type && content === event.content_index && summary === event.summary_index;
}

/** The item with the texts that came for it. */
function wholeOf({ item, texts }: Item): JsonObject {
  return texts.reduce(withText, item);
}

function withText(item: JsonObject, { type, content, summary, text }: ItemText): JsonObject {
  const add = (name: string): JsonObject => ({ ...item, [name]: textOf(item[name]) + text });
  const addPart = (name: string, at: JsonValue | undefined, member: string, kind: string) => {
    const number = typeof at === "number" && at < 1000 ? at : 0;
    const parts = Array.isArray(item[name]) ? [...item[name]] : [];
    const known = parts[number];
    const part: JsonObject = isObject(known) ? known : { type: kind };
    parts[number] = { ...part, [member]: textOf(part[member]) + text };
    return { ...item, [name]: parts.map((one) => one ?? { type: kind }) };
  };
  switch (type) {
    case "response.output_text.delta":
      return addPart("content", content, "text", "output_text");
    case "response.refusal.delta":
      return addPart("content", content, "refusal", "refusal");
    case "response.reasoning_text.delta":
      return addPart("content", content, "text", "reasoning_text");
    case "response.reasoning_summary_text.delta":
      return addPart("summary", summary, "text", "summary_text");
    case "response.function_call_arguments.delta":
      return add("arguments");
    case "response.custom_tool_call_input.delta":
      return add("input");
    default:
      return item;
  }
}

function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}
