// Carriers: what the provider of an answer wants back, in blocks that a client of another format
// returns. Reasoning goes into the signature of its own thinking; members of calls and of the
// message into that of an empty thinking beside them.

import { type Attached, type Block, Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { BlockDelta, Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { AnswerContext } from "./codec.ts";
import { blockDelta, blockStart, blockStop, thinkingStart } from "./events.ts";
import { attachedOf, type Packed, sealPack, type Writer } from "./packs.ts";
import { runOf } from "./text-run.ts";

/** A provider of the native format that does not say who it is. */
const unnamed: Writer = { format: Format.NATIVE, dialect: "", model: "" };

/** How clients of a format return things. */
export type CarrierForm = {
  readonly format: Format;
  /** The id of a call as the client sees it. */
  readonly toClientId: (id: string) => string;
  /** True if the client may not see the text of the thinking, so that the pack must hold it. */
  readonly hidesText: boolean;
};

/** The open block. */
type Open = {
  readonly kind: Block["kind"]["case"];
  /** Of a call: its id, for the client. */
  readonly callId?: string;
  /** Its text, where the pack must hold it. */
  text: string;
  signature: string;
  attached: Attached | undefined;
};

/**
 * Changes the events of one answer so that its signatures are what the client gets and returns.
 * Blocks that only a client of the provider's format knows are left out. Without `sealing`, what
 * needs a pack is left out too. Numbers of blocks are not kept unique: encoders count for
 * themselves.
 */
export class Carrier {
  readonly #form: CarrierForm;
  readonly #sealing: AnswerContext["sealing"];
  #writer: Writer | undefined;
  #open: Open | undefined;

  constructor(form: CarrierForm, sealing: AnswerContext["sealing"]) {
    this.#form = form;
    this.#sealing = sealing;
  }

  carry(events: readonly Event[]): readonly Event[] {
    // Most reads are deltas of a text.
    if (this.#open?.kind === "text" && events.every(isTextDelta)) return events;
    return events.flatMap((event) => this.#carryOne(event));
  }

  #carryOne(event: Event): readonly Event[] {
    const { kind } = event;
    switch (kind.case) {
      case "messageStart":
        this.#writer = kind.value.attached ?? this.#writer;
        return [event];
      case "blockStart":
        return kind.value.block ? this.#start(event, kind.value.index, kind.value.block) : [event];
      case "blockDelta":
        return this.#continue(event, kind.value);
      case "blockStop":
        return this.#stop(event, kind.value.index);
      case "messageDelta": {
        const { attached } = kind.value;
        return attached ? [...this.#carrier({ message: attached }), event] : [event];
      }
      default:
        return [event];
    }
  }

  #start(event: Event, index: number, block: Block): readonly Event[] {
    const { kind, attached } = block;
    this.#open = { kind: kind.case, text: "", signature: "", attached };
    switch (kind.case) {
      case "thinking": {
        const { thinking, signature } = kind.value;
        this.#open = { kind: kind.case, text: thinking, signature, attached };
        if (signature === "") return [event];
        const value = { ...kind.value, signature: "" };
        return [blockStart(index, { ...block, kind: { case: "thinking", value } })];
      }
      case "redactedThinking": {
        const own = attached ?? this.#signed({ data: kind.value.data });
        const data = own ? this.#seal({ block: own }) : kind.value.data;
        // Its end is left out, too.
        if (data === undefined) return [];
        const value = { ...kind.value, data };
        return [blockStart(index, { ...block, kind: { case: "redactedThinking", value } })];
      }
      case "toolUse": {
        const id = this.#form.toClientId(kind.value.id);
        this.#open = { kind: kind.case, callId: id, text: "", signature: "", attached: undefined };
        const value = { ...kind.value, id };
        const isSame = id === kind.value.id;
        const own = isSame
          ? event
          : blockStart(index, { ...block, kind: { case: "toolUse", value } });
        return attached ? [...this.#carrier({ calls: { [id]: attached } }), own] : [own];
      }
      case "image":
        return this.#form.format === Format.NATIVE ? [] : [event];
      // An item of the Responses format, which another one has no block for. Its end says nothing.
      case "other":
        return kind.value.type === "web_search_call" ? [] : [event];
      default:
        return [event];
    }
  }

  #continue(event: Event, delta: BlockDelta): readonly Event[] {
    const open = this.#open;
    if (!open) return [event];
    // Notes on a text are for readers.
    if (open.kind === "text") return [event];
    if (delta.attached) open.attached = delta.attached;
    if (delta.kind.case === undefined) return [];
    if (open.kind !== "thinking") return [event];
    if (delta.kind.case === "thinking") open.text += delta.kind.value;
    if (delta.kind.case !== "signature") return [event];
    open.signature = delta.kind.value;
    return [];
  }

  #stop(event: Event, index: number): readonly Event[] {
    const open = this.#open;
    this.#open = undefined;
    switch (open?.kind) {
      case "thinking": {
        const value = this.#signatureOf(open);
        if (value === "") return [event];
        return [blockDelta(index, { case: "signature", value }), event];
      }
      case "toolUse": {
        // They came after the start of the call.
        const { callId = "", attached } = open;
        return attached ? [event, ...this.#carrier({ calls: { [callId]: attached } })] : [event];
      }
      case "image":
        return this.#form.format === Format.NATIVE ? [] : [event];
      default:
        return [event];
    }
  }

  #signatureOf({ text, signature, attached }: Open): string {
    const own = attached ?? this.#signed(signature === "" ? {} : { signature });
    const isEmpty = text === "" && signature === "" && !attached;
    // Of a provider that wants nothing back, unsigned thinking is for readers.
    const isUnwanted = signature === "" && !attached && !this.#writer;
    if (!own || isEmpty || isUnwanted) return signature;
    const hidden = this.#form.hidesText ? { text } : {};
    return this.#seal({ block: own, ...hidden }) ?? "";
  }

  /**
   * What a native provider signed, for a client that cannot return it as it is. Undefined where the
   * client can.
   */
  #signed(members: Record<string, string>): Attached | undefined {
    const { format } = this.#form;
    if (format === Format.RESPONSES || (format === Format.CHAT && members.data !== undefined))
      return attachedOf(this.#writer ?? unnamed, { members });
    return undefined;
  }

  /** An empty thinking with this pack; nothing if it cannot be carried. */
  #carrier(packed: Packed): readonly Event[] {
    const signature = this.#seal(packed);
    if (signature === undefined) return [];
    return [
      thinkingStart(0, "", ""),
      blockDelta(0, { case: "signature", value: signature }),
      blockStop(0),
    ];
  }

  #seal(packed: Packed): string | undefined {
    return this.#sealing && sealPack(packed, this.#sealing);
  }
}

function isTextDelta({ kind }: Event): boolean {
  if (kind.case !== "blockDelta") return false;
  return runOf(kind.value) !== undefined || kind.value.kind.case === "text";
}
