// Ids of tool calls. Within a format they stay as they came. The native format has a small alphabet
// for them, and an id that does not fit is written in that alphabet so that it can be read back.

const nativeForm = /^[a-zA-Z0-9_-]+$/;
const prefix = "id64_";

/** An id in the native form. The same for a call and its result; no two ids become one. */
export function toNativeId(id: string): string {
  return nativeForm.test(id) ? id : prefix + Buffer.from(id).toString("base64url");
}

/** The id that `toNativeId` was given. */
export function fromNativeId(id: string): string {
  if (!id.startsWith(prefix)) return id;
  const read = Buffer.from(id.slice(prefix.length), "base64url").toString();
  return toNativeId(read) === id ? read : id;
}
