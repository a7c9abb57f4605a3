// The page's own reader and writer of messages beside the library that it stands for.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import {
  create,
  type DescField,
  type DescMessage,
  type DescService,
  fromJson,
  type JsonObject,
  type JsonValue,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import esbuild from "esbuild";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeMessages } from "../../src/console/describe-messages.ts";
import { allServices } from "../../src/contract/contract.ts";

type Library = typeof import("../../src/console/web/messages.ts");
type Schema = Parameters<Library["create"]>[0];
type Method = { readonly name: string; readonly input: Schema; readonly output: Schema };
type Service = {
  readonly typeName: string;
  readonly method: Readonly<Record<string, Method>>;
};
type Described = {
  readonly library: Library;
  readonly services: Readonly<Record<string, Service>>;
};

const root = join(import.meta.dirname, "../..");
const web = join(root, "src/console/web");
const services: readonly DescService[] = allServices;

let folder = "";
let parts: readonly Described[] = [];

/** What the bundle of a page in `from` has in place of the generated code. */
async function describe(from: string): Promise<Described> {
  const lines = services.map(
    ({ name, file }) =>
      `import { ${name} } from "${relative(from, join(root, "gen", file.name))}_pb.ts";`,
  );
  const { outputFiles } = await esbuild.build({
    stdin: {
      contents: `${lines.join("\n")}
        export * as library from "@bufbuild/protobuf/wkt";
        export const services = { ${services.map(({ name }) => name)} };`,
      resolveDir: from,
      sourcefile: "entry.ts",
      loader: "ts",
    },
    bundle: true,
    format: "esm",
    write: false,
    plugins: [describeMessages(root, web)],
  });
  const path = join(folder, `${basename(from)}.mjs`);
  await writeFile(path, outputFiles[0]?.contents ?? "");
  return import(pathToFileURL(path).href);
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gateway-messages-"));
  parts = [await describe(web), await describe(join(web, "operator"))];
});

afterAll(() => rm(folder, { recursive: true }));

/** Each message that a page sends or reads, with what the page knows of it. */
function* messages(): Generator<readonly [DescMessage, Schema, Library]> {
  for (const described of parts)
    for (const { name, methods } of services)
      for (const [localName, method] of Object.entries(described.services[name]?.method ?? {})) {
        const real = methods.find((one) => one.localName === localName);
        if (!real) expect.unreachable(`${name} has no ${localName}`);
        yield [real.input, method.input, described.library];
        yield [real.output, method.output, described.library];
      }
}

const word = fc.stringMatching(/^[a-z]{1,8}(_[a-z]{1,8}){0,2}$/);
const nanos = fc.oneof(
  fc.constant(0),
  fc.integer({ min: 1, max: 999 }).map((ms) => ms * 1_000_000),
  fc.integer({ min: 1, max: 999_999_999 }),
);

/** Such as `create` takes, with every kind of field there and away. */
function initOf(message: DescMessage, depth = 3): fc.Arbitrary<Record<string, unknown>> {
  const { typeName } = message;
  if (typeName === "google.protobuf.Timestamp")
    return fc.record({ seconds: fc.bigInt(-62_135_596_800n, 253_402_300_799n), nanos });
  if (typeName === "google.protobuf.Duration")
    return fc
      .record({ seconds: fc.bigInt(0n, 315_576_000_000n), nanos, sign: fc.constantFrom(1, -1) })
      .map((one) => ({ seconds: one.seconds * BigInt(one.sign), nanos: one.nanos * one.sign }));
  if (typeName === "google.protobuf.FieldMask") return fc.record({ paths: fc.array(word) });
  if (typeName === "google.protobuf.Struct")
    return fc.dictionary(word, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
  const records = message.members.map((member) => {
    if (member.kind === "oneof") {
      const fields = member.fields.filter((one) => !one.message || depth > 0);
      const cases = fields.map((one) =>
        anyOf(one, depth).map((value) => ({ case: one.localName, value })),
      );
      return [member.localName, fc.option(fc.oneof(...cases), { nil: undefined })] as const;
    }
    const isAway = (member.fieldKind === "message" || member.message) && depth === 0;
    const value = isAway ? fc.constant(undefined) : anyOf(member, depth);
    return [member.localName, fc.option(value, { nil: undefined })] as const;
  });
  return fc.record(Object.fromEntries(records));
}

function anyOf(field: DescField, depth: number): fc.Arbitrary<unknown> {
  const one = (): fc.Arbitrary<unknown> => {
    if (field.message) return initOf(field.message, depth - 1);
    if (field.enum) return fc.constantFrom(...field.enum.values.map(({ number }) => number));
    return scalarOf(field.scalar ?? ScalarType.STRING);
  };
  if (field.fieldKind === "list") return fc.array(one(), { maxLength: 3 });
  if (field.fieldKind === "map") return fc.dictionary(word, one(), { maxKeys: 3 });
  return one();
}

function scalarOf(scalar: ScalarType): fc.Arbitrary<unknown> {
  const arbitraries: Partial<Record<ScalarType, fc.Arbitrary<unknown>>> = {
    [ScalarType.INT64]: fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n),
    [ScalarType.UINT64]: fc.bigInt(0n, 2n ** 64n - 1n),
    [ScalarType.INT32]: fc.integer(),
    [ScalarType.UINT32]: fc.nat({ max: 2 ** 32 - 1 }),
    [ScalarType.BOOL]: fc.boolean(),
    [ScalarType.DOUBLE]: fc.double({ noDefaultInfinity: true, noNaN: true }),
    [ScalarType.STRING]: fc.oneof(fc.constant(""), fc.string(), fc.string({ unit: "grapheme" })),
    [ScalarType.BYTES]: fc.uint8Array({ maxLength: 64 }),
  };
  return arbitraries[scalar] ?? expect.unreachable(`no value of type ${scalar}`);
}

/** Without the names of types, which the page does not have, and without what is undefined. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return [...value];
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return Object.is(value, -0) ? 0 : value;
  const entries = Object.entries(value).filter(
    ([key, one]) => key !== "$typeName" && one !== undefined,
  );
  return Object.fromEntries(entries.map(([key, one]) => [key, plain(one)]));
}

test("every message that a page sends or reads is made, written and read as by the library", () => {
  let count = 0;
  for (const [real, schema, page] of messages()) {
    count++;
    fc.assert(
      fc.property(initOf(real), (init) => {
        const made = create(real, init);
        const json = toJson(real, made);
        const ours = page.create(schema, init);
        expect(plain(ours)).toEqual(plain(made));
        expect(JSON.parse(page.toJsonString(schema, ours))).toEqual(
          JSON.parse(JSON.stringify(json)),
        );
        expect(plain(page.fromJson(schema, json))).toEqual(plain(fromJson(real, json)));
        expect(page.equals(schema, ours, page.fromJson(schema, json))).toBe(true);
      }),
      { numRuns: 20 },
    );
  }
  expect(count).toBeGreaterThan(200);
});

test("what a newer gateway has besides is left out, as by the library", () => {
  for (const [real, schema, page] of messages()) {
    const json: JsonObject = { ofTomorrow: { a: 1 } };
    for (const field of real.fields) {
      // At most one of a group may be there.
      if (field.oneof) continue;
      const inOne: JsonValue = field.enum ? "STATE_OF_TOMORROW" : null;
      json[field.jsonName] = field.fieldKind === "list" && field.enum ? [inOne] : inOne;
    }
    const expected = fromJson(real, json, { ignoreUnknownFields: true });
    expect(plain(page.fromJson(schema, json))).toEqual(plain(expected));
  }
});

test("forms know the name and the type of each field", () => {
  for (const [real, schema] of messages())
    expect(
      schema.fields.map(({ name, localName, scalar }) => ({ name, localName, scalar })),
    ).toEqual(
      real.fields.map((field) => ({
        name: field.name,
        localName: field.localName,
        scalar: field.scalar ?? (field.enum ? 14 : 11),
      })),
    );
});

test("services have the names by which they are called, and their methods for each kind of page", () => {
  const [all, ofOperators] = parts;
  expect(all?.services.KeysService?.typeName).toBe("gateway.keys.v1.KeysService");
  expect(all?.services.KeysService?.method.createKey?.name).toBe("CreateKey");
  expect(all?.services.OperationsService?.method).not.toHaveProperty("findAccounts");
  expect(ofOperators?.services.OperationsService?.method).toHaveProperty("findAccounts");
});
