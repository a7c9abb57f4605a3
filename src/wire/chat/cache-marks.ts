// `cache_control`, a member of the native format that several editors put on parts, messages and tools of this one.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type Block, type CacheControl, CacheControlSchema } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { optionalObject, optionalText } from "./fields.ts";

/** The mark on a part, message or tool at path `at`, if it has one. */
export function decodeCacheMark(owner: JsonObject, at: string): CacheControl | undefined {
  const mark = optionalObject(owner.cache_control, `${at}.cache_control`);
  return mark && create(CacheControlSchema, { ttl: optionalText(mark.ttl, `${at}.cache_control.ttl`) });
}

/** Puts a message's own mark on its last block, which is where the prefix it closes ends. */
export function markLast(blocks: Block[], mark: CacheControl | undefined): Block[] {
  const last = blocks.at(-1);
  if (mark && last && !last.cacheControl) last.cacheControl = mark;
  return blocks;
}

/** The mark as a member to spread into a part. */
export function encodeCacheMark(mark: CacheControl | undefined): { cache_control?: JsonValue } {
  if (!mark) return {};
  return { cache_control: mark.ttl === undefined ? { type: "ephemeral" } : { type: "ephemeral", ttl: mark.ttl } };
}
