// Packs: what a provider wrote and wants back, sealed, in a member that clients of another format
// return unread: a signature, a redacted thought, an encrypted content. The listener seals and
// opens them.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import {
  type Attached,
  type Block,
  Format,
  type Message,
  Role,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import { Fit } from "./fit.ts";
import { isObject, parseJsonText } from "./json.ts";

/** Why a sealed text does not open. `foreign`: nothing says that this gateway made it. */
export type OpenFailure = "foreign" | "changed" | "age";

/** How a listener seals for the account of a request. */
export type Sealing = {
  seal(text: string): string;
  open(sealed: string): Opened;
  /** Opens an `encrypted_content` in the form that was used until packs came. */
  openOld(sealed: string): Opened;
};

type Opened = { readonly text: string } | { readonly why: OpenFailure };

/** Without keys nothing opens. */
export const noSealing: Sealing = {
  seal: () => "",
  open: () => ({ why: "changed" }),
  openOld: () => ({ why: "foreign" }),
};

const prefix = "gw1.";
const oldMark = "responses:";
/** Most bytes of a pack. No provider's reasoning comes near it. */
const packBytesMax = 1024 * 1024;
const formats = new Map<JsonValue, Format>([
  ["native", Format.NATIVE],
  ["chat", Format.CHAT],
  ["responses", Format.RESPONSES],
]);

/** What one pack holds. All of it is of one provider. */
export type Packed = {
  readonly block?: Attached | undefined;
  /** The text of the block, where the client does not see it. */
  readonly text?: string;
  readonly message?: Attached | undefined;
  /** By the ids of the calls, as the client sees them. */
  readonly calls?: Readonly<Record<string, Attached>>;
};

/** True for a text that this gateway sealed, or that claims it. */
export function isPack(text: JsonValue | undefined): text is string {
  return typeof text === "string" && text.startsWith(prefix);
}

/** The same, and for signatures in the form that was used until packs came. */
export function isOurs(text: JsonValue | undefined): text is string {
  return typeof text === "string" && (text.startsWith(prefix) || text.startsWith(oldMark));
}

/** The pack as a text; undefined for one that is too large or holds nothing. */
export function sealPack(packed: Packed, sealing: Sealing): string | undefined {
  const { block, text, message, calls = {} } = packed;
  const first = block ?? message ?? Object.values(calls)[0];
  if (!first) return undefined;
  const format = [...formats].find(([, one]) => one === first.format)?.[0] ?? "";
  const value: JsonObject = { o: [format, first.dialect, first.model] };
  if (block) value.b = membersOf(block);
  if (text !== undefined) value.t = text;
  if (message) value.m = membersOf(message);
  const packedCalls = Object.entries(calls).map(([id, one]) => [id, membersOf(one)] as const);
  if (packedCalls.length > 0) value.c = Object.fromEntries(packedCalls);
  const json = JSON.stringify(value);
  // Sealed, it is a third larger.
  if (json.length * (4 / 3) > packBytesMax) return undefined;
  const sealed = prefix + sealing.seal(json);
  return sealed.length > packBytesMax ? undefined : sealed;
}

function membersOf({ list, textMembers, members = {} }: Attached): JsonObject {
  return {
    ...(list !== "" && { l: list }),
    ...(textMembers.length > 0 && { x: textMembers }),
    ...(Object.keys(members).length > 0 && { m: members }),
  };
}

/** The content of an opened pack; undefined for a text that is none. */
function readPack(text: string): Packed | undefined {
  const value = parseJsonText(text);
  if (!isObject(value) || !Array.isArray(value.o)) return undefined;
  const [name = null, dialect, model] = value.o;
  const format = formats.get(name);
  if (format === undefined || typeof dialect !== "string" || typeof model !== "string")
    return undefined;
  const attached = (given: JsonValue | undefined) =>
    isObject(given) ? readAttached(given, { format, dialect, model }) : undefined;
  const calls = Object.entries(isObject(value.c) ? value.c : {}).flatMap(([id, given]) => {
    const one = attached(given);
    return one ? [[id, one] as const] : [];
  });
  return {
    block: attached(value.b),
    ...(typeof value.t === "string" && { text: value.t }),
    message: attached(value.m),
    calls: Object.fromEntries(calls),
  };
}

function readAttached(
  { l: list, x: textMembers, m: members }: JsonObject,
  writer: Pick<Attached, "format" | "dialect" | "model">,
): Attached {
  return attachedOf(writer, {
    ...(typeof list === "string" && { list }),
    textMembers: Array.isArray(textMembers)
      ? textMembers.filter((one) => typeof one === "string")
      : [],
    ...(isObject(members) && { members }),
  });
}

/** Who wrote something. */
export type Writer = Pick<Attached, "format" | "dialect" | "model">;

export function attachedOf(
  { format, dialect, model }: Writer,
  { list = "", textMembers = [], members = {} }: Partial<Attached>,
): Attached {
  const $typeName = "gateway.inference.v1.Attached";
  return { $typeName, format, dialect, model, list, textMembers, members };
}

/** What a client claims itself: it is taken for the target's own. */
export function claimed(format: Format, members: Partial<Attached>): Attached {
  return attachedOf({ format, dialect: "", model: "" }, members);
}

/** A signature of the form that was used until packs came: read for 30 days more. */
function readOldMark(text: string): Attached | undefined {
  if (!text.startsWith(oldMark)) return undefined;
  const members = { encrypted_content: text.slice(oldMark.length) };
  return claimed(Format.RESPONSES, { textMembers: ["summary"], members });
}

/**
 * Opens the packs of one request while it is decoded, and notes those that do not open. They are
 * left out, never an error: a client cannot mend its history.
 */
export class Carried {
  readonly #sealing: Sealing;
  readonly #fit = new Fit();
  /** Members of calls that are still to come, or were before, by the ids of the calls. */
  readonly #calls = new Map<string, Attached[]>();
  /** Numbers of the messages with a pack that did not open. */
  readonly #refused = new Set<number>();

  constructor(sealing: Sealing) {
    this.#sealing = sealing;
  }

  /**
   * What a pack holds of its block and message; undefined if it does not open. Members of calls
   * are kept for `give`. `where` is its place in the body.
   */
  open(sealed: string, where: string): Packed | undefined {
    const old = readOldMark(sealed);
    if (old) return { block: old };
    if (sealed.length > packBytesMax) return this.#refuse(where, "size");
    const opened = isPack(sealed)
      ? this.#sealing.open(sealed.slice(prefix.length))
      : this.#sealing.openOld(sealed);
    if ("why" in opened) return this.#refuse(where, opened.why);
    const packed = readPack(opened.text) ?? readOldContent(opened.text);
    if (!packed) return this.#refuse(where, "changed");
    for (const [id, attached] of Object.entries(packed.calls ?? {})) {
      const known = this.#calls.get(id);
      if (known) known.push(attached);
      else this.#calls.set(id, [attached]);
    }
    return packed;
  }

  /**
   * Gives the calls of the conversation their members back. Changes the blocks, and removes the
   * entries of lists of which another one did not open: a provider takes them whole, or not.
   */
  give(messages: readonly Message[]): void {
    let done = -1;
    // In the order of the messages.
    for (const index of this.#refused) if (index > done) done = dropLists(messages, index);
    if (this.#calls.size === 0) return;
    for (const { content } of messages)
      for (const block of content) {
        if (block.kind.case !== "toolUse" || block.attached) continue;
        // Of calls with the same id, each takes what was packed for one of them.
        const attached = this.#calls.get(block.kind.value.id)?.shift();
        if (attached) block.attached = attached;
      }
  }

  get leftOut(): LeftOut[] {
    return this.#fit.leftOut;
  }

  #refuse(where: string, why: OpenFailure | "size"): undefined {
    const index = /^\w+\[(\d+)\]/.exec(where)?.[1];
    if (index !== undefined) this.#refused.add(Number(index));
    this.#fit.leaveOut({ where, what: "thinking", why });
    return undefined;
  }
}

/**
 * Removes the entries of lists from the turn that this message is a part of. Returns the number of
 * the last message of the turn.
 */
function dropLists(messages: readonly Message[], index: number): number {
  const isAnswer = (at: number) => messages[at]?.role === Role.ASSISTANT;
  let [from, to] = [index, index];
  while (isAnswer(from - 1)) from--;
  while (isAnswer(to + 1)) to++;
  for (const message of messages.slice(from, to + 1))
    message.content = message.content.filter(({ attached }) => (attached?.list ?? "") === "");
  return to;
}

/** What `encrypted_content` held until packs came: one signed block. */
function readOldContent(text: string): Packed | undefined {
  const value = parseJsonText(text);
  if (!isObject(value)) return undefined;
  const { data, thinking, signature } = value;
  if (typeof data === "string") return { block: claimed(Format.NATIVE, { members: { data } }) };
  if (typeof thinking !== "string" || typeof signature !== "string") return undefined;
  const old = readOldMark(signature);
  const members = { signature };
  return {
    block: old ?? claimed(Format.NATIVE, { textMembers: ["thinking"], members }),
    text: thinking,
  };
}

/** A thinking block of an opened pack. `text`: what the client returned beside it. */
export function blockOf({ block, text: hidden }: Packed, text: string): Block | undefined {
  if (!block) return undefined;
  const { data, signature } = block.members ?? {};
  const $typeName = "gateway.inference.v1.Block";
  if (block.format === Format.NATIVE && typeof data === "string") {
    const value = { $typeName: "gateway.inference.v1.RedactedThinkingBlock", data } as const;
    return { $typeName, kind: { case: "redactedThinking", value }, attached: block };
  }
  const value = {
    $typeName: "gateway.inference.v1.ThinkingBlock",
    thinking: hidden ?? text,
    signature: block.format === Format.NATIVE && typeof signature === "string" ? signature : "",
  } as const;
  return { $typeName, kind: { case: "thinking", value }, attached: block };
}
