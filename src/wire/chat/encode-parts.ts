// One block of a conversation as parts of a chat message.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Block, DocumentBlock, Source } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { Refusal } from "../../errors.ts";
import { encodeCacheMark } from "./cache-marks.ts";
import { textsOf } from "./fields.ts";

/** Parts that say what the block says; none for a block that chat has no words for. Throws `feature_not_offered`. */
export function encodePart(block: Block, cacheMarks: boolean): JsonObject[] {
  const part = toPart(block);
  if (!part) return [];
  return [cacheMarks && block.cacheControl ? { ...part, ...encodeCacheMark(block.cacheControl) } : part];
}

/** The text of a tool's result. */
export function textOfBlocks(blocks: readonly Block[]): string {
  return blocks
    .map((block) => toPart(block)?.text)
    .filter((text) => typeof text === "string")
    .join("\n");
}

function toPart(block: Block): JsonObject | undefined {
  const { kind } = block;
  switch (kind.case) {
    case "text":
      return kind.value.text === "" ? undefined : textPart(kind.value.text);
    case "image":
      return { type: "image_url", image_url: { url: urlOf(kind.value.source, "image") } };
    case "document":
      return documentPart(kind.value);
    case "other": {
      const text = textOfOther(kind.value);
      return text === "" ? undefined : textPart(text);
    }
    default:
      return undefined;
  }
}

function textPart(text: string): JsonObject {
  return { type: "text", text };
}

function documentPart({ source, title }: DocumentBlock): JsonObject {
  if (source?.kind.case === "text") return textPart(titled(title, source.kind.value.data));
  if (source?.kind.case === "other") {
    const text = textOfOther(source.kind.value);
    if (text !== "") return textPart(titled(title, text));
  }
  return { type: "file", file: { filename: title ?? "document.pdf", file_data: urlOf(source, "document") } };
}

function titled(title: string | undefined, text: string): string {
  return title === undefined ? text : `${title}\n${text}`;
}

function urlOf(source: Source | undefined, what: string): string {
  if (source?.kind.case === "url") return source.kind.value;
  if (source?.kind.case === "base64") return `data:${source.kind.value.mediaType};base64,${source.kind.value.data}`;
  throw new Refusal("feature_not_offered", { message: `The provider of this model does not take this source of an ${what}.` });
}

/** The text in a kind of the native format that the hub does not name: search results and documents made of blocks. */
function textOfOther(other: JsonObject): string {
  const { title, source, content } = other;
  const head = [title, source].filter((one) => typeof one === "string");
  const texts = textsIn(content);
  return texts.length === 0 ? "" : [...head, ...texts].join("\n");
}

function textsIn(content: JsonValue | undefined): string[] {
  if (typeof content === "string") return content === "" ? [] : [content];
  return Array.isArray(content) ? textsOf(content) : [];
}
