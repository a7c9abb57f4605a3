// Reasoning items: what of one goes into a pack, and the item that is made of it again.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "../json.ts";

const between = "\n\n";

/** The texts of the parts of a summary or of a content. */
function textsOf(parts: JsonValue | undefined): string[] {
  return (Array.isArray(parts) ? parts : []).map((part) =>
    isObject(part) && typeof part.text === "string" ? part.text : "",
  );
}

/** The readable text of a reasoning item: its summary, or else its content. */
export function readableText({ summary, content }: JsonObject): string {
  return textsOf(summary).join(between) || textsOf(content).join(between);
}

/**
 * The members of an item whose readable text is known to be `text`: where that is the text of its
 * parts, they have its lengths in place of it.
 */
export function packReasoning({ type, ...members }: JsonObject, text: string): JsonObject {
  if (text === "") return members;
  for (const name of ["summary", "content"]) {
    const parts = members[name];
    if (!Array.isArray(parts) || textsOf(parts).join(between) !== text) continue;
    const cut = parts.map((part) =>
      isObject(part) && typeof part.text === "string" ? { ...part, text: part.text.length } : part,
    );
    return { ...members, [name]: cut };
  }
  return members;
}

/** The item of packed members and its text. A text that was changed stays in one part. */
export function unpackReasoning(members: JsonObject, text: string): JsonObject {
  const item: JsonObject = { type: "reasoning", ...members };
  for (const name of ["summary", "content"]) {
    const parts = members[name];
    if (!Array.isArray(parts) || !parts.some(hasLength)) continue;
    return { ...item, [name]: cutAgain(parts, text) };
  }
  if (members.summary !== undefined) return item;
  return { ...item, summary: text === "" ? [] : [{ type: "summary_text", text }] };
}

function hasLength(part: JsonValue): boolean {
  return isObject(part) && typeof part.text === "number";
}

function cutAgain(parts: readonly JsonValue[], text: string): JsonValue[] {
  let at = 0;
  const cut = parts.map((part) => {
    if (!isObject(part) || typeof part.text !== "number") return part;
    const own = text.slice(at, at + part.text);
    at += part.text + between.length;
    return { ...part, text: own };
  });
  const isWhole = textsOf(cut).join(between) === text;
  const [first] = parts;
  return isWhole || !isObject(first) ? cut : [{ ...first, text }];
}
