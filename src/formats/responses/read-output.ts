// A provider's items → events, for plain answers and streams alike.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type Block, BlockSchema, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { AnswerEvents } from "../chat/answer-events.ts";
import { StreamedCalls } from "../chat/tool-calls.ts";
import {
  decodeUsage as decodeChatUsage,
  readProviderError,
  toStopReason,
  withTier,
} from "../chat/usage-and-endings.ts";
import type { AnswerSource } from "../codec.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { flatName } from "../tool-names.ts";
import { packReasoning } from "./reasoning.ts";

/** What is known of one item of the output. */
type Item = {
  readonly phase: string | undefined;
  /** True for a call whose input is plain text. */
  readonly isCustom: boolean;
  /** True once the call of the item was opened. */
  isCall: boolean;
  /** The kind of deltas that gave its text; others repeat it. Absent: none came. */
  source?: string;
  isDone: boolean;
};

/**
 * Builds the events of one answer from the parts of a stream, or from whole items. Nothing follows
 * the end.
 */
export class OutputReader {
  readonly #answer: AnswerEvents;
  readonly #calls: StreamedCalls;
  /** What came before the answer began, for clients of this format. */
  #early: JsonObject[] = [];
  readonly #items = new Map<number, Item>();
  /** The provider's name of the model. */
  #model = "";
  /** The readable text of the open thinking. */
  #thought = "";
  #isStarted = false;
  #isRefused = false;

  constructor(source?: AnswerSource) {
    this.#answer = new AnswerEvents(source);
    this.#calls = new StreamedCalls(this.#answer);
  }

  get isOver(): boolean {
    return this.#answer.isOver;
  }

  /**
   * Reads an event of a stream by `read`, and keeps it for clients of this format, who get it as it
   * came, with its JSON.
   */
  readPiece(event: JsonObject, text: string | undefined, read: () => void): void {
    const from = this.#answer.count;
    const wasStarted = this.#isStarted;
    read();
    if (this.isOver) return;
    if (!this.#isStarted) this.#early.push(event);
    else if (wasStarted) this.#answer.cover(from, Format.RESPONSES, event, text);
    else {
      // The first event carries the first piece, and the others follow it.
      const [first = event, ...others] = [...this.#early, event];
      this.#answer.coverFirst(from, Format.RESPONSES, [first, ...others]);
      this.#early = [];
    }
  }

  /** Removes and returns the events since the last call. */
  take(): Event[] {
    return this.#answer.take();
  }

  /**
   * The provider has accepted the request. The answer begins with its first item: one that fails
   * before that can still go to another provider.
   */
  accept({ model }: JsonObject): void {
    this.#model = textOf(model);
  }

  /** Opens the item at `index`. An item of an unknown type has no events. */
  open(index: number, given: JsonObject): Item {
    this.#start();
    const isCustom = given.type === "custom_tool_call";
    const phase = typeof given.phase === "string" ? given.phase : undefined;
    const item: Item = { phase, isCustom, isCall: false, isDone: false };
    this.#items.set(index, item);
    if (given.type === "message" || given.type === "reasoning") {
      this.#answer.closeText();
      this.#thought = "";
    }
    if (isCall(given)) this.#openCall(index, item, given);
    return item;
  }

  /** A further part of a message or a summary. */
  openPart(index: number, part: number): void {
    const item = this.#itemAt(index);
    if (part === 0) return;
    if (this.#answer.isThinking) this.thinking(index, item.source ?? "", "\n\n");
    else this.#answer.closeText();
  }

  text(index: number, text: string, isRefusal = false): void {
    const item = this.#itemAt(index);
    if (text === "") return;
    item.source = "text";
    if (isRefusal) this.#isRefused = true;
    this.#answer.addText(text, item.phase, isRefusal);
  }

  /** `source` is `summary` or `content`: of an item with both, the first one counts. */
  thinking(index: number, source: string, text: string): void {
    const item = this.#itemAt(index);
    item.source ??= source;
    if (text === "" || item.source !== source) return;
    this.#thought += text;
    this.#answer.addThinking(text);
  }

  arguments(index: number, text: string): void {
    const item = this.#itemAt(index);
    // Of a call that was not announced, the whole item has the arguments.
    if (text === "" || item.isDone || !item.isCall) return;
    item.source = "arguments";
    this.#addArguments(index, item.isCustom ? JSON.stringify(text).slice(1, -1) : text);
  }

  /** Adds what no delta of the whole item at `index` gave. */
  close(index: number, given: JsonObject): void {
    const known = this.#items.get(index);
    const isNewCall = isCall(given) && known?.isCall === false && !known.isDone;
    const item = known && !isNewCall ? known : this.open(index, given);
    if (item.isDone) return;
    switch (given.type) {
      case "message":
        if (item.source === undefined) this.#wholeMessage(index, given);
        break;
      case "reasoning":
        this.#closeReasoning(index, item, given);
        break;
      case "function_call":
        if (item.source === undefined) this.arguments(index, textOf(given.arguments));
        break;
      case "custom_tool_call":
        if (item.source === undefined) this.arguments(index, textOf(given.input));
        this.#addArguments(index, '"}');
        break;
      case "web_search_call":
        // Counted for its price. Opening a page that was found has none.
        if (isSearch(given)) this.#answer.addBlock(otherBlock(given));
        break;
    }
    item.isDone = true;
  }

  /**
   * Ends the answer with its response, which says how it ended. `piece`: the response, or the event
   * that has it, for clients of this format.
   */
  finish(response: JsonObject, piece: JsonObject): void {
    const error = readResponseError(response);
    const usage = withTier(decodeUsage(response.usage, response.tool_usage), response);
    if (error) {
      this.fail(error, usage);
      return;
    }
    if (typeof response.model === "string") this.accept(response);
    this.#start();
    const output = Array.isArray(response.output) ? response.output.filter(isObject) : [];
    for (const [index, item] of output.entries()) if (!this.isOver) this.close(index, item);
    this.#calls.finish();
    if (this.isOver) return;
    const content = { toolCalls: this.#calls.any, refusal: this.#isRefused };
    this.#answer.end(toStopReason(finishReasonOf(response), content), usage, {
      format: Format.RESPONSES,
      last: [...this.#early, piece],
    });
  }

  fail(error: Event, usage?: ReportedUsage): void {
    // Before its start, an answer has no usage.
    if (this.#isStarted && usage) this.#answer.report({ usage });
    this.#answer.fail(error);
  }

  #start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#answer.start(this.#model);
  }

  #itemAt(index: number): Item {
    return this.#items.get(index) ?? this.open(index, {});
  }

  #openCall(index: number, item: Item, given: JsonObject): void {
    const { call_id, name, namespace } = given;
    item.isCall = true;
    const called = flatName(textOf(name), typeof namespace === "string" ? namespace : undefined);
    this.#calls.add({
      index,
      id: textOf(call_id),
      function: { name: called, arguments: item.isCustom ? '{"input":"' : "" },
    });
    const first = textOf(item.isCustom ? given.input : given.arguments);
    if (first !== "") this.arguments(index, first);
  }

  #addArguments(index: number, text: string): void {
    if (!this.isOver) this.#calls.add({ index, function: { arguments: text } });
  }

  #wholeMessage(index: number, { content }: JsonObject): void {
    const parts = Array.isArray(content) ? content.filter(isObject) : [];
    for (const [at, part] of parts.entries()) {
      this.openPart(index, at);
      if (part.type === "refusal") this.text(index, textOf(part.refusal), true);
      else this.text(index, textOf(part.text));
    }
  }

  #closeReasoning(index: number, item: Item, given: JsonObject): void {
    if (item.source === undefined) {
      const summary = textsOf(given.summary);
      this.thinking(index, "summary", summary === "" ? textsOf(given.content) : summary);
    }
    const encrypted = textOf(given.encrypted_content);
    if (encrypted === "" && !this.#answer.isThinking) return;
    const attached = { members: packReasoning(given, this.#thought) };
    this.#answer.addThinking("", attached);
    this.#thought = "";
  }
}

function isSearch({ action }: JsonObject): boolean {
  return !isObject(action) || action.type === undefined || action.type === "search";
}

function otherBlock(value: JsonObject): Block {
  return create(BlockSchema, { kind: { case: "other", value } });
}

function isCall({ type }: JsonObject): boolean {
  return type === "function_call" || type === "custom_tool_call";
}

function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

/** The texts of the parts of a summary or of a reasoning. */
function textsOf(parts: JsonValue | undefined): string {
  return (Array.isArray(parts) ? parts : [])
    .map((part) => (isObject(part) ? textOf(part.text) : ""))
    .join("\n\n");
}

function finishReasonOf({ status, incomplete_details: details }: JsonObject): string {
  if (status !== "incomplete") return "stop";
  const reason = isObject(details) ? textOf(details.reason) : "";
  return reason === "content_filter" ? "content_filter" : "length";
}

/** The failure that a response or an error event reports. */
export function readResponseError(body: JsonObject): Event | undefined {
  const { status, error } = body;
  if (isObject(error) && isRequestFault(textOf(error.code)))
    return readProviderError({ error: { ...error, type: "invalid_request_error" } });
  const reported = readProviderError(body);
  if (reported) return reported;
  return status === "failed" || status === "cancelled"
    ? failure("api_error", "The model provider failed during its answer.")
    : undefined;
}

/** True for the codes that blame the input, such as `invalid_prompt` and `image_too_large`. */
function isRequestFault(code: string): boolean {
  return /^(invalid_|image_|empty_image|unsupported_image|failed_to_download_image|bio_policy)/.test(
    code,
  );
}

/**
 * Undefined if there is no usage. All input counts as `input_tokens`, as in chat. Searches have the
 * name that they have in the native format.
 */
function decodeUsage(
  usage: JsonValue | undefined,
  tools: JsonValue | undefined,
): ReportedUsage | undefined {
  if (!isObject(usage)) return undefined;
  const { input_tokens, output_tokens, total_tokens, input_tokens_details, output_tokens_details } =
    usage;
  const decoded = decodeChatUsage({
    ...(input_tokens !== undefined && { prompt_tokens: input_tokens }),
    ...(output_tokens !== undefined && { completion_tokens: output_tokens }),
    ...(total_tokens !== undefined && { total_tokens }),
    ...(input_tokens_details !== undefined && { prompt_tokens_details: input_tokens_details }),
    ...(output_tokens_details !== undefined && {
      completion_tokens_details: output_tokens_details,
    }),
  });
  const search = isObject(tools) ? tools.web_search : undefined;
  const searches = isObject(search) ? search.num_requests : undefined;
  if (decoded && typeof searches === "number")
    decoded.extensions = { server_tool_use: { web_search_requests: searches } };
  return decoded;
}
