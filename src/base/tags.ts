// Tags of requests: a few names with values, by which a company splits its bill. They come in the
// header `x-gateway-tags: team=a,env=ci`, and as string members of `metadata` whose names begin
// with `tag.`. Whatever one of the ways can say, the other can say too.

import { invalidField } from "./errors.ts";

/** Values by key. */
export type Tags = Readonly<Record<string, string>>;

export const noTags: Tags = Object.freeze({});

/** Most tags of a request. */
export const tagsMax = 10;
export const tagKeyMax = 32;
export const tagValueMax = 64;
/** The header that carries tags. */
export const tagsHeader = "x-gateway-tags";
/** What the names of those members of `metadata` begin with that are tags. */
export const tagPrefix = "tag.";
/** Stands in roll-ups for the values beyond the most of a day. No request has it. */
const otherValues = "(other)";

// Begins so that no key is `__proto__`.
const keyForm = new RegExp(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,${tagKeyMax - 1}}$`);
const keyRule = `is 1 to ${tagKeyMax} of a-z, A-Z, 0-9, _, ., -, and begins with a letter or digit`;
const control = /\p{Cc}/u;

/**
 * Checks tags, given as keys and values, and the fields that errors name for them. A value has no
 * commas and no control characters; blanks around it do not count. Throws `invalid_request`.
 */
function readEntries(
  entries: Iterable<readonly [key: string, value: string, field: string]>,
  field: string,
): Tags {
  const tags: Record<string, string> = {};
  let count = 0;
  for (const [key, text, at] of entries) {
    if (!keyForm.test(key)) throw invalidField(at, `the key of a tag ${keyRule}`);
    if (Object.hasOwn(tags, key)) throw invalidField(at, `names the tag ${key} twice`);
    count += 1;
    if (count > tagsMax) throw invalidField(field, `has more than ${tagsMax} tags`);
    tags[key] = checkedValue(text, key, at);
  }
  return count === 0 ? noTags : tags;
}

function checkedValue(text: string, key: string, at: string): string {
  if (control.test(text))
    throw invalidField(at, `the value of the tag ${key} has a line break or control character`);
  const value = text.trim();
  if (value === "") throw invalidField(at, `the tag ${key} has no value`);
  // Characters, of which some take two units.
  if (value.length > tagValueMax && [...value].length > tagValueMax)
    throw invalidField(at, `the value of the tag ${key} has more than ${tagValueMax} characters`);
  if (value.includes(",")) throw invalidField(at, `the value of the tag ${key} has a comma`);
  // No database can store one half of a pair.
  if (!value.isWellFormed())
    throw invalidField(at, `the value of the tag ${key} is not a text of whole characters`);
  if (value === otherValues)
    throw invalidField(at, `${otherValues} stands for the values that reports leave out`);
  return value;
}

/** Reads `team=a,env=ci`. A value may have an equal sign. Throws `invalid_request` for `field`. */
export function parseTags(text: string, field: string): Tags {
  // Lists in headers may have empty elements.
  const parts = text.split(",").filter((part) => part.trim() !== "");
  if (parts.length > tagsMax) throw invalidField(field, `has more than ${tagsMax} tags`);
  return readEntries(
    parts.map((part, index) => {
      const equal = part.indexOf("=");
      if (equal < 0)
        throw invalidField(field, `tag ${index + 1} is not a key, an equal sign and a value`);
      return [part.slice(0, equal).trim(), part.slice(equal + 1), field] as const;
    }),
    field,
  );
}

/**
 * Reads the tags in the `metadata` of a request: its string members whose names begin with `tag.`.
 * All else in it is nobody's business here. Throws `invalid_request` for `metadata.tag.team`.
 */
export function tagsOfMetadata(metadata: unknown): Tags {
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata)) return noTags;
  const entries: [string, string, string][] = [];
  for (const name in metadata) {
    if (!name.startsWith(tagPrefix)) continue;
    const value: unknown = Reflect.get(metadata, name);
    if (typeof value !== "string") continue;
    const key = name.slice(tagPrefix.length);
    // A key that is none may be of any length.
    const isKey = keyForm.test(key);
    entries.push([key, value, isKey ? `metadata.${name}` : "metadata"]);
    if (entries.length > tagsMax) break;
  }
  return entries.length === 0 ? noTags : readEntries(entries, "metadata");
}

/** `metadata` without the members that name tags: they are for the gateway, not for providers. */
export function withoutTags<Member>(
  metadata: Readonly<Record<string, Member>>,
): Record<string, Member> {
  const others = Object.entries(metadata).filter(([name]) => !name.startsWith(tagPrefix));
  return Object.fromEntries(others);
}

/**
 * Reads the tags of a field, whose number, keys and lengths were checked. Throws `invalid_request`
 * for `field`.
 */
export function checkTags(tags: Tags, field: string): Tags {
  let checked: Record<string, string> | undefined;
  for (const key in tags) {
    checked ??= {};
    checked[key] = checkedValue(tags[key] ?? "", key, field);
  }
  return checked ?? noTags;
}

/**
 * The tags of a request and those of its header together. A tag of the request counts more: the
 * header is often fixed for a whole program. Throws `invalid_request` for the header.
 */
export function addHeaderTags(tags: Tags, header: string | string[] | undefined): Tags {
  if (header === undefined) return tags;
  const fromHeader = parseTags(decodeHeader(String(header)), tagsHeader);
  const all = { ...fromHeader, ...tags };
  if (Object.keys(all).length > tagsMax)
    throw invalidField(tagsHeader, `has, with those of the body, more than ${tagsMax} tags`);
  return all;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

// Node hands over the bytes of a header as characters.
function decodeHeader(header: string): string {
  try {
    return utf8.decode(Buffer.from(header, "latin1"));
  } catch {
    throw invalidField(tagsHeader, "is not UTF-8: send such tags in the metadata of the body");
  }
}

/** Tags as `parseTags` reads them, in the order of their keys. */
export function tagsText(tags: Tags): string {
  return sortedTags(tags)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}

/** Keys and values, in the order of the keys. */
export function sortedTags(tags: Tags): [key: string, value: string][] {
  return Object.entries(tags).sort(([one], [other]) => (one < other ? -1 : 1));
}
