// The simulated tokens: 4 bytes of UTF-8 each. No function here cuts a character.

const bytesPerToken = 4;

/** The number of tokens in `bytes` bytes of UTF-8. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / bytesPerToken);
}

/** The beginning of `text`, at most `bytes` long. */
export function cutText(text: string, bytes: number): string {
  if (text.length * 3 <= bytes) return text;
  let used = 0;
  let end = 0;
  for (const character of text) {
    used += Buffer.byteLength(character);
    if (used > bytes) return text.slice(0, end);
    end += character.length;
  }
  return text;
}

/** `text`, repeated and cut to exactly this number of tokens. */
export function fillText(text: string, tokens: number): string {
  const bytes = tokens * bytesPerToken;
  const line = `${text} `;
  const cut = cutText(line.repeat(Math.ceil(bytes / Buffer.byteLength(line))), bytes);
  return cut.padEnd(cut.length + bytes - Buffer.byteLength(cut), ".");
}

/** Splits `text` into pieces of about one token each. */
export function* splitTokens(text: string): Generator<string> {
  let start = 0;
  let end = 0;
  let bytes = 0;
  for (const character of text) {
    const more = Buffer.byteLength(character);
    if (bytes + more > bytesPerToken && bytes > 0) {
      yield text.slice(start, end);
      start = end;
      bytes = 0;
    }
    bytes += more;
    end += character.length;
  }
  if (end > start) yield text.slice(start);
}
