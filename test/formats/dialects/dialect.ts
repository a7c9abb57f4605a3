// The type of a dialect: one answer as a certain provider or server writes it, whole and streamed,
// and its meaning. The answers are made for these tests, after the public sources that each file
// names.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

/** The meaning of an answer, the same for all formats. */
export type Meaning = {
  readonly thinking?: string;
  readonly text?: string;
  readonly calls?: readonly { readonly name: string; readonly input: JsonValue }[];
  /** The native stop reason. */
  readonly stop: string;
  /** As the native format counts. */
  readonly usage: {
    readonly input: number;
    readonly output: number;
    readonly cacheRead?: number;
    readonly thinking?: number;
  };
};

export type Dialect = {
  readonly name: string;
  readonly whole: JsonObject;
  /** Values of `data:` lines, or text of other lines, such as comments. */
  readonly stream: readonly (JsonObject | string)[];
  readonly meaning: Meaning;
};
