// The schemas of requests in /openapi.json and the decoders accept the same: bodies are made of the
// schemas, then spoilt in one place, and each is shown to both.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import { isObject } from "../../src/formats/json.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { readDocument, withoutUnchecked } from "../support/openapi.ts";
import { anyBody } from "../support/samples/native-bodies.ts";
import { valuesOf } from "../support/schema-values.ts";

const headers = { version: "2023-06-01", beta: "" };

type Format = {
  readonly schema: string;
  readonly decode: (body: JsonValue) => unknown;
  /** Messages of the errors for what no schema can say; the texts of the document say it. */
  readonly beyond: RegExp;
};

const tags =
  /the key of a tag|the tag .* has|the value of the tag|more than 10 tags|stands for the values/;
const ofParts = /data URL|not a supported image type|must be a PDF|file store|http or https URL/;
const ofTools = /requires a call|the name of another tool/;
const blank = /must not be blank|a message with content|an item with content|has no supported part/;

const formats: readonly Format[] = [
  {
    schema: "MessagesRequest",
    decode: (body) => native.decodeRequest(body, headers),
    // A limit of 0 needs a mark for the cache.
    beyond: join(/^max_tokens: Input should be greater than or equal to 1/, tags),
  },
  {
    schema: "CountTokensRequest",
    decode: (body) => native.decodeCountRequest(body, headers),
    beyond: /^$/,
  },
  {
    schema: "ChatRequest",
    decode: (body) => chat.decodeRequest(body),
    beyond: join(
      ...[tags, ofParts, ofTools, blank],
      /^(function_call|modalities)\b|reasoning_details\[|no function was called before/,
    ),
  },
  {
    schema: "ResponsesRequest",
    decode: (body) => responses.decodeRequest(body),
    beyond: join(tags, ofParts, ofTools, blank),
  },
];

function join(...forms: readonly RegExp[]): RegExp {
  return new RegExp(forms.map(({ source }) => source).join("|"));
}

let schemas: Readonly<Record<string, JsonObject>>;
let validate: (name: string, body: JsonValue) => boolean;
beforeAll(async () => {
  const document = withoutUnchecked(await readDocument());
  schemas = Object(document.components).schemas;
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(document, "document");
  validate = (name, body) => {
    const pointer = `document#/components/schemas/${name}`;
    return ajv.validate({ $ref: pointer }, body);
  };
});

/** What the decoder says: undefined if it accepts the body. Other errors than 400 and 413 throw. */
function errorOf(decode: Format["decode"], body: JsonValue): ApiError | undefined {
  try {
    decode(body);
    return undefined;
  } catch (error) {
    const isBadRequest =
      error instanceof ApiError && ["invalid_request", "request_too_large"].includes(error.reason);
    if (isBadRequest) return error;
    throw error;
  }
}

// Two faults in one body, of which a decoder may not see the second, are no difference to mend: the
// same bodies everywhere, until somebody wants others.
const seed = 20_261_122;

const odd = fc.constantFrom<JsonValue>(
  ...[null, true, false, 0, 1, -1, 1.5, 5_000_000_000, "", " ", "x", "auto", "user", "tool"],
  ...[[], {}, [null], [{}], ["x"], { type: "x" }, { type: "text" }, { type: "function" }],
);

type Place = readonly (string | number)[];

function placesIn(value: JsonValue, at: Place = []): Place[] {
  const members = Array.isArray(value)
    ? value.map((inner, index) => placesIn(inner, [...at, index]))
    : isObject(value)
      ? Object.entries(value).map(([name, inner]) => placesIn(inner, [...at, name]))
      : [];
  return [at, ...members.flat()];
}

/** `value` with another value at a place, or without it. */
function spoilt(value: JsonValue, [name, ...rest]: Place, other: JsonValue | undefined): JsonValue {
  if (name === undefined) return other ?? null;
  if (Array.isArray(value))
    return value.flatMap((inner, index) => {
      if (index !== name) return [inner];
      return rest.length === 0 && other === undefined ? [] : [spoilt(inner, rest, other)];
    });
  return Object.fromEntries(
    Object.entries(Object(value) as JsonObject).flatMap(([key, inner]) => {
      if (key !== name) return [[key, inner]];
      return rest.length === 0 && other === undefined ? [] : [[key, spoilt(inner, rest, other)]];
    }),
  );
}

describe.each(formats)("$schema", ({ schema, decode, beyond }) => {
  const verdicts = { accepted: 0, refused: 0, beyond: 0 };

  function compare(body: JsonValue): void {
    const isValid = validate(schema, body);
    const error = errorOf(decode, body);
    if (isValid && error && beyond.test(error.message)) {
      verdicts.beyond++;
      return;
    }
    verdicts[isValid ? "accepted" : "refused"]++;
    const verdict = (is: boolean) => (is ? "accepted" : "refused");
    expect(`decoder: ${verdict(!error)} ${error?.message ?? ""}`).toContain(
      `decoder: ${verdict(isValid)}`,
    );
  }

  test("the decoder accepts what the schema makes", () => {
    fc.assert(fc.property(valuesOf(schemas, schema), compare), { numRuns: 150, seed });
    expect(verdicts.accepted).toBeGreaterThan(15);
    expect(verdicts.refused).toBe(0);
  });

  test("both refuse the same of what was spoilt in one place", () => {
    const bodies = fc
      .tuple(valuesOf(schemas, schema), fc.nat(), fc.option(odd, { nil: undefined, freq: 4 }))
      .map(([body, at, other]) => {
        const places = placesIn(body);
        return spoilt(body, places[at % places.length] ?? [], other);
      });
    fc.assert(fc.property(bodies, compare), { numRuns: 200, seed });
    expect(verdicts.refused).toBeGreaterThan(20);
  });
});

test("the schema of the native format accepts every body of the other tests", () => {
  fc.assert(
    fc.property(anyBody, (body) => {
      expect(validate("MessagesRequest", body)).toBe(true);
    }),
    { numRuns: 100 },
  );
});
