// Ids of tool calls. Within a format they stay as they came. The native format has a small alphabet
// for them, and an id that does not fit is written in that alphabet so that it can be read back.

const nativeForm = /^[a-zA-Z0-9_-]+$/;
const prefix = "id64_";

/**
 * An id in the native form. The same for a call and its result. Two ids become one only where one
 * of them was made to look like this form of the other.
 */
export function toNativeId(id: string): string {
  return nativeForm.test(id) ? id : prefix + Buffer.from(id).toString("base64url");
}

/** The id that `toNativeId` was given. */
export function fromNativeId(id: string): string {
  if (!id.startsWith(prefix)) return id;
  const read = Buffer.from(id.slice(prefix.length), "base64url").toString();
  return toNativeId(read) === id ? read : id;
}

/** The new ids of calls, so that each result gets that of its own call. */
export class PairedIds {
  readonly #calls = new Map<string, { readonly ids: string[]; answered: number }>();

  addCall(id: string, own: string): void {
    const calls = this.#calls.get(id);
    if (calls) calls.ids.push(own);
    else this.#calls.set(id, { ids: [own], answered: 0 });
  }

  /** The new id of the call that the next result with this id is for. */
  ofResult(id: string): string | undefined {
    const calls = this.#calls.get(id);
    if (!calls) return undefined;
    return calls.ids[Math.min(calls.answered++, calls.ids.length - 1)];
  }
}
