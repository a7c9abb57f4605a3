// Where a JSON text is at fault. The runtime's parser tells it only by repeating the content, and
// people who send a body of a megabyte need the place. Runs only for texts that were refused
// already.

import { isUtf8 } from "node:buffer";

/**
 * Levels of nesting that are carried. Deeper values would exhaust the stack of whoever serialises
 * them.
 */
export const jsonDepthMax = 200;

/** Why a text is refused, and at which byte. */
type JsonFault = { readonly offset: number; readonly problem: string };

/** The first fault of `bytes`, if there is one. */
export function findFault(bytes: Uint8Array): JsonFault | undefined {
  if (!isUtf8(bytes)) return { offset: invalidUtf8At(bytes), problem: "invalid UTF-8" };
  return new Walk(bytes).document();
}

function invalidUtf8At(bytes: Uint8Array): number {
  const repaired = Buffer.from(Buffer.from(bytes).toString());
  let at = 0;
  while (at < bytes.length && bytes[at] === repaired[at]) at++;
  return at;
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

/** One walk over JSON text by the grammar of RFC 8259, up to the first fault. */
class Walk {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.#at = 3;
  }

  /** The first fault of the document. */
  document(): JsonFault | undefined {
    const open: number[] = [];
    for (;;) {
      // A value, or the end of a list or object that is still empty.
      const first = this.#next();
      if (first === openBrace || first === openBracket) {
        if (open.length === jsonDepthMax)
          return this.#fault(`more than ${jsonDepthMax} levels of nesting`);
        open.push(first);
        this.#at++;
        const closer = first === openBrace ? closeBrace : closeBracket;
        if (this.#next() !== closer) {
          const fault = first === openBrace ? this.#name() : undefined;
          if (fault) return fault;
          continue;
        }
      } else {
        const fault = this.#scalar(first);
        if (fault) return fault;
      }
      // What may follow a value: the ends of what is open, or a comma and the next one.
      for (;;) {
        const innermost = open.at(-1);
        const next = this.#next();
        if (innermost === undefined)
          return next === undefined ? undefined : this.#fault("unexpected text after the value");
        if (next === (innermost === openBrace ? closeBrace : closeBracket)) {
          open.pop();
          this.#at++;
          continue;
        }
        if (next !== comma) return this.#unexpected();
        this.#at++;
        const fault = innermost === openBrace ? this.#name() : undefined;
        if (fault) return fault;
        break;
      }
    }
  }

  #fault(problem: string): JsonFault {
    return { offset: this.#at, problem };
  }

  #unexpected(): JsonFault {
    return this.#fault(this.#at < this.#bytes.length ? "unexpected character" : "unexpected end");
  }

  /** The next byte that is not blank. */
  #next(): number | undefined {
    let byte = this.#bytes[this.#at];
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09)
      byte = this.#bytes[++this.#at];
    return byte;
  }

  #name(): JsonFault | undefined {
    if (this.#next() !== quote) return this.#unexpected();
    const fault = this.#string();
    if (fault) return fault;
    if (this.#next() !== colon) return this.#unexpected();
    this.#at++;
    return undefined;
  }

  #scalar(first: number | undefined): JsonFault | undefined {
    if (first === quote) return this.#string();
    for (const word of ["true", "false", "null"]) {
      if (first !== code(word)) continue;
      for (const character of word)
        if (this.#bytes[this.#at++] !== code(character)) return this.#back();
      return undefined;
    }
    return this.#number();
  }

  #back(): JsonFault {
    this.#at--;
    return this.#unexpected();
  }

  #number(): JsonFault | undefined {
    const start = this.#at;
    if (this.#bytes[this.#at] === minus) this.#at++;
    if (this.#bytes[this.#at] === zero) this.#at++;
    else if (!this.#digits()) return this.#unexpected();
    if (this.#bytes[this.#at] === dot) {
      this.#at++;
      if (!this.#digits()) return this.#unexpected();
    }
    if (this.#isOneOf("eE")) {
      this.#at++;
      if (this.#isOneOf("+-")) this.#at++;
      if (!this.#digits()) return this.#unexpected();
    }
    const number = Number(Buffer.from(this.#bytes.subarray(start, this.#at)).toString());
    return Number.isFinite(number)
      ? undefined
      : { offset: start, problem: "a number beyond all range" };
  }

  #digits(): boolean {
    const start = this.#at;
    for (let byte = this.#bytes[this.#at]; byte !== undefined && byte >= zero && byte <= nine; )
      byte = this.#bytes[++this.#at];
    return this.#at > start;
  }

  #isOneOf(characters: string): boolean {
    const byte = this.#bytes[this.#at];
    return byte !== undefined && characters.includes(String.fromCharCode(byte));
  }

  #string(): JsonFault | undefined {
    this.#at++;
    let highAt: number | undefined;
    for (;;) {
      const byte = this.#bytes[this.#at];
      const unit = byte === backslash ? this.#escape() : undefined;
      if (byte === backslash && unit === undefined) return this.#unexpected();
      const isLow = unit !== undefined && unit >= 0xdc00 && unit <= 0xdfff;
      if (highAt !== undefined && !isLow) return { offset: highAt, problem: "a lone surrogate" };
      if (highAt === undefined && isLow)
        return { offset: this.#at - 6, problem: "a lone surrogate" };
      highAt = unit !== undefined && unit >= 0xd800 && unit <= 0xdbff ? this.#at - 6 : undefined;
      if (unit !== undefined) continue;
      if (byte === undefined || byte < 0x20) return this.#unexpected();
      this.#at++;
      if (byte === quote) return undefined;
    }
  }

  /**
   * The UTF-16 unit that an escape stands for; undefined, with `at` on the fault, when it is not a
   * valid escape.
   */
  #escape(): number | undefined {
    this.#at++;
    if (this.#bytes[this.#at] !== code("u")) {
      if (!this.#isOneOf('"\\/bfnrt')) return undefined;
      this.#at++;
      return 0;
    }
    let unit = 0;
    for (let digit = 0; digit < 4; digit++) {
      this.#at++;
      if (!this.#isOneOf("0123456789abcdefABCDEF")) return undefined;
      unit = unit * 16 + Number.parseInt(String.fromCharCode(this.#bytes[this.#at] ?? 0), 16);
    }
    this.#at++;
    return unit;
  }
}
