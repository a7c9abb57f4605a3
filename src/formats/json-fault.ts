// Finds the first fault in a JSON text and its byte offset, because a client that sent a megabyte
// needs the position. Runs only for texts that were rejected already.
//
// Written by hand: V8's message has no position for an unexpected token (9 % of 4,000 random edits
// of a request) and repeats content; `jsonc-parser` 3.3.1 reports the start of the token, more than
// 50 characters away in 56 %. All three take about a second for 29 MB (Node 24.21, two shared
// cores).

import { isUtf8 } from "node:buffer";

/**
 * Most levels of nesting that are accepted. Deeper values would exhaust the stack of the code that
 * serialises them.
 */
export const jsonDepthMax = 200;

/** Why a text is rejected, and the byte offset of the reason. */
type JsonFault = { readonly offset: number; readonly problem: string };

/** The first fault of `bytes`; undefined if `parseJson` accepts them. */
export function findFault(bytes: Uint8Array): JsonFault | undefined {
  if (!isUtf8(bytes)) return { offset: findInvalidUtf8(bytes), problem: "invalid UTF-8" };
  return new Scanner(bytes).scanDocument();
}

function findInvalidUtf8(bytes: Uint8Array): number {
  // Decoding replaces invalid sequences, so the first difference is the first of them.
  const repaired = Buffer.from(Buffer.from(bytes).toString());
  let offset = 0;
  while (offset < bytes.length && bytes[offset] === repaired[offset]) offset++;
  return offset;
}

const code = (character: string): number => character.charCodeAt(0);
const [quote, backslash, minus, dot] = [code('"'), code("\\"), code("-"), code(".")];
const [openBrace, closeBrace, openBracket, closeBracket] = [
  code("{"),
  code("}"),
  code("["),
  code("]"),
];
const [colon, comma, zero, nine] = [code(":"), code(","), code("0"), code("9")];

/**
 * Scans JSON text by the grammar of RFC 8259 up to the first fault. Every method starts at the
 * offset, moves it behind what it accepts, and returns the fault that stops it.
 */
class Scanner {
  readonly #bytes: Uint8Array;
  #offset = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const hasByteOrderMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    if (hasByteOrderMark) this.#offset = 3;
  }

  /** Not recursive: the text may be nested more deeply than the stack is. */
  scanDocument(): JsonFault | undefined {
    /** The opening bytes of the arrays and objects around the offset. */
    const open: number[] = [];
    for (;;) {
      const first = this.#skipBlanks();
      if (isOpener(first)) {
        if (open.length === jsonDepthMax)
          return this.#fault(`more than ${jsonDepthMax} levels of nesting`);
        open.push(first);
        this.#offset++;
        if (this.#skipBlanks() !== closerOf(first)) {
          const fault = this.#scanNameIn(first);
          if (fault) return fault;
          continue;
        }
      } else {
        const fault = this.#scanScalar(first);
        if (fault) return fault;
      }
      const end = this.#scanEnds(open);
      if (end || open.length === 0) return end;
    }
  }

  /** What follows a complete value: the ends of those around it, a comma, the end of the text. */
  #scanEnds(open: number[]): JsonFault | undefined {
    for (let next = this.#skipBlanks(); ; next = this.#skipBlanks()) {
      const innermost = open.at(-1);
      if (innermost === undefined)
        return next === undefined ? undefined : this.#fault("unexpected text after the value");
      if (next !== closerOf(innermost)) {
        if (next !== comma) return this.#unexpected();
        this.#offset++;
        return this.#scanNameIn(innermost);
      }
      open.pop();
      this.#offset++;
    }
  }

  /** The name of the next member, if the value around it is an object. */
  #scanNameIn(opener: number): JsonFault | undefined {
    return opener === openBrace ? this.#scanName() : undefined;
  }

  #fault(problem: string): JsonFault {
    return { offset: this.#offset, problem };
  }

  #unexpected(): JsonFault {
    const isAtEnd = this.#offset >= this.#bytes.length;
    return this.#fault(isAtEnd ? "unexpected end" : "unexpected character");
  }

  /** The next byte that is not blank; undefined at the end. */
  #skipBlanks(): number | undefined {
    let byte = this.#bytes[this.#offset];
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09)
      byte = this.#bytes[++this.#offset];
    return byte;
  }

  /** The name of a member and its colon. */
  #scanName(): JsonFault | undefined {
    if (this.#skipBlanks() !== quote) return this.#unexpected();
    const fault = this.#scanString();
    if (fault) return fault;
    if (this.#skipBlanks() !== colon) return this.#unexpected();
    this.#offset++;
    return undefined;
  }

  #scanScalar(first: number | undefined): JsonFault | undefined {
    if (first === quote) return this.#scanString();
    const word = ["true", "false", "null"].find((one) => first === code(one));
    return word === undefined ? this.#scanNumber() : this.#scanWord(word);
  }

  #scanWord(word: string): JsonFault | undefined {
    for (const character of word) {
      if (this.#bytes[this.#offset] !== code(character)) return this.#unexpected();
      this.#offset++;
    }
    return undefined;
  }

  #scanNumber(): JsonFault | undefined {
    const start = this.#offset;
    if (this.#bytes[this.#offset] === minus) this.#offset++;
    if (this.#bytes[this.#offset] === zero) this.#offset++;
    else if (!this.#skipDigits()) return this.#unexpected();
    if (this.#bytes[this.#offset] === dot) {
      this.#offset++;
      if (!this.#skipDigits()) return this.#unexpected();
    }
    if (this.#isOneOf("eE")) {
      this.#offset++;
      if (this.#isOneOf("+-")) this.#offset++;
      if (!this.#skipDigits()) return this.#unexpected();
    }
    const number = Number(Buffer.from(this.#bytes.subarray(start, this.#offset)).toString());
    return Number.isFinite(number)
      ? undefined
      : { offset: start, problem: "a number that is too large" };
  }

  /** False if there is no digit. */
  #skipDigits(): boolean {
    const start = this.#offset;
    for (let byte = this.#bytes[start]; byte !== undefined && byte >= zero && byte <= nine; )
      byte = this.#bytes[++this.#offset];
    return this.#offset > start;
  }

  #isOneOf(characters: string): boolean {
    const byte = this.#bytes[this.#offset];
    return byte !== undefined && characters.includes(String.fromCharCode(byte));
  }

  #scanString(): JsonFault | undefined {
    this.#offset++;
    /** Offset of a high surrogate that still lacks its low one. UTF-8 has them as escapes only. */
    let highOffset: number | undefined;
    for (;;) {
      const byte = this.#bytes[this.#offset];
      const unit = byte === backslash ? this.#scanEscape() : undefined;
      if (byte === backslash && unit === undefined) return this.#unexpected();
      const escapeOffset = this.#offset - escapeLength;
      // A low one needs a high one before it, and a high one a low one behind it.
      if ((highOffset !== undefined) !== isLowSurrogate(unit))
        return { offset: highOffset ?? escapeOffset, problem: "a lone surrogate" };
      highOffset = isHighSurrogate(unit) ? escapeOffset : undefined;
      if (unit !== undefined) continue;
      if (byte === undefined || byte < 0x20) return this.#unexpected();
      this.#offset++;
      if (byte === quote) return undefined;
    }
  }

  /**
   * The UTF-16 unit that an escape means, 0 for the short escapes; undefined, with the offset at
   * the fault, if the escape is not valid.
   */
  #scanEscape(): number | undefined {
    this.#offset++;
    if (this.#bytes[this.#offset] !== code("u")) {
      if (!this.#isOneOf('"\\/bfnrt')) return undefined;
      this.#offset++;
      return 0;
    }
    let unit = 0;
    for (let digit = 0; digit < 4; digit++) {
      this.#offset++;
      if (!this.#isOneOf("0123456789abcdefABCDEF")) return undefined;
      unit = unit * 16 + Number.parseInt(String.fromCharCode(this.#bytes[this.#offset] ?? 0), 16);
    }
    this.#offset++;
    return unit;
  }
}

/** Bytes of an escape with four digits, such as `\ud83d`. */
const escapeLength = 6;

function isHighSurrogate(unit = 0): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function isLowSurrogate(unit = 0): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}

function isOpener(byte: number | undefined): byte is number {
  return byte === openBrace || byte === openBracket;
}

function closerOf(opener: number): number {
  return opener === openBrace ? closeBrace : closeBracket;
}
