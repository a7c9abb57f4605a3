// Describes to the page's bundle the messages that the page sends and reads, in a few bytes each:
// in place of generated code, whose descriptors are binary and whole, it gets calls of
// `web/messages.ts`. What no method needs that the page calls is left out.
//
// The pages of operators have files of their own, with what only they need, so that customers load
// none of it.

import { globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import {
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescService,
  ScalarType,
} from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import type { Plugin } from "esbuild";
import { describedFiles } from "../contract/descriptors.ts";
import { snakeOf } from "./web/messages.ts";

/** In the sources of the page: what only operators load. */
const operatorFolder = "operator";
/** Samples of code for people, which call methods that the page does not. */
const samplesFile = "tools.ts";
/** Before the path of a generated file: the one for operators. */
const ofOperators = "operators:";

/** `root`: the folder that holds `gen/`. `web`: the sources of the page. */
export function describeMessages(root: string, web: string): Plugin {
  const library = join(web, "messages.ts");
  const pathOf = (file: DescFile) => join(root, "gen", `${file.name}_pb.ts`);
  const files = describedFiles();
  const fileAt = new Map(files.map((file) => [pathOf(file), file]));
  const describe = (path: string, write: (file: DescFile) => string) => {
    const file = fileAt.get(path);
    if (!file) throw new Error(`no service has the messages of ${path}`);
    return { contents: write(file), loader: "js" as const, resolveDir: web };
  };
  return {
    name: "describe-messages",
    setup({ onStart, onResolve, onLoad }) {
      let customers: Part = { words: new Set(), types: new Set(), nameOf: () => "" };
      let operators = customers;
      onStart(() => {
        const { shared, ofOperators: theirs } = readSources(web);
        const nameOf = (type: Type) =>
          type.file.name.startsWith("google/protobuf/") ? library : pathOf(type.file);
        customers = { ...findUsed(files, shared), nameOf };
        operators = {
          ...findUsed(files, theirs),
          nameOf: (type) =>
            customers.types.has(type) ? nameOf(type) : `${ofOperators}${nameOf(type)}`,
        };
      });
      onResolve({ filter: /^@bufbuild\/protobuf(\/wkt)?$/ }, () => ({ path: library }));
      onResolve({ filter: /_pb\.ts$/ }, ({ path, importer, resolveDir }) => {
        if (path.startsWith(ofOperators))
          return { path: path.slice(ofOperators.length), namespace: ofOperators };
        return dirname(importer) === join(web, operatorFolder)
          ? { path: resolve(resolveDir, path), namespace: ofOperators }
          : undefined;
      });
      onLoad({ filter: /[\\/]gen[\\/].*_pb\.ts$/, namespace: "file" }, ({ path }) =>
        describe(path, (file) => writeModule(file, customers, pathOf(file), library)),
      );
      onLoad({ filter: /_pb\.ts$/, namespace: ofOperators }, ({ path }) =>
        describe(path, (file) =>
          [
            `export * from ${JSON.stringify(path)};`,
            writeModule(file, operators, `${ofOperators}${path}`, library),
          ].join("\n"),
        ),
      );
    },
  };
}

/** The sources that everybody loads, and those that only operators load. */
function readSources(web: string): { readonly shared: string; readonly ofOperators: string } {
  const files = globSync("**/*.{ts,tsx}", { cwd: web }).filter((file) => file !== samplesFile);
  const textOf = (isWanted: boolean) =>
    files
      .filter((file) => (dirname(file) === operatorFolder) === isWanted)
      .map((file) => readFileSync(join(web, file), "utf8"))
      .join("\n");
  return { shared: textOf(false), ofOperators: textOf(true) };
}

type Type = DescMessage | DescEnum;

/** What some sources need. */
type Used = {
  /** Every word of the sources. A method whose name is one of them may be called. */
  readonly words: ReadonlySet<string>;
  readonly types: ReadonlySet<Type>;
};

type Part = Used & {
  /** The module that describes a type. */
  nameOf(type: Type): string;
};

/**
 * What sources need: the messages of each method whose name is a word in them, the types that they
 * name, and all that are inside these.
 */
function findUsed(files: readonly DescFile[], sources: string): Used {
  const words = new Set(sources.match(/\w+/g));
  const types = new Set<Type>();
  const add = (type: Type): void => {
    if (types.has(type)) return;
    types.add(type);
    if (type.kind === "message") for (const field of type.fields) typesIn(field).forEach(add);
  };
  for (const file of files) {
    for (const type of typesOf(file)) if (words.has(nameOf(type))) add(type);
    for (const { methods } of file.services)
      for (const { localName, input, output } of methods)
        if (words.has(localName)) [input, output].forEach(add);
  }
  return { words, types };
}

function typesOf({ messages, enums }: DescFile): Type[] {
  const inside = (message: DescMessage): Type[] => [
    message,
    ...message.nestedEnums,
    ...message.nestedMessages.flatMap(inside),
  ];
  return [...enums, ...messages.flatMap(inside)];
}

function typesIn({ message, enum: enumeration }: DescField): Type[] {
  return [message ?? enumeration ?? []].flat();
}

/** As the generated code names it: of an enum, its values. */
function nameOf(type: Type): string {
  const { packageName = "" } = { packageName: type.file.proto.package };
  const name = type.typeName.slice(packageName.length + 1).replaceAll(".", "_");
  return type.kind === "enum" ? name : `${name}Schema`;
}

/** The module `itself`: what of `file` is described there. */
function writeModule(file: DescFile, part: Part, itself: string, library: string): string {
  const imports = new Map<string, string>();
  /** The identifier of a type. Imports it if it is described elsewhere. */
  const refer = (type: Type): string => {
    const id = `${type.typeName.replaceAll(".", "_")}_`;
    const from = part.nameOf(type);
    const name = type.kind === "enum" ? `${nameOf(type)}Schema` : nameOf(type);
    if (from !== itself)
      imports.set(id, `import { ${name} as ${id} } from ${JSON.stringify(from)};`);
    return id;
  };
  const types = typesOf(file)
    .filter((type) => part.types.has(type) && part.nameOf(type) === itself)
    .map((type) => (type.kind === "enum" ? writeEnum(type, refer) : writeMessage(type, refer)));
  const services = file.services.map((one) => writeService(one, part.words, refer));
  return [
    `import { enumeration, message, service, valuesOf } from ${JSON.stringify(library)};`,
    ...imports.values(),
    ...types,
    ...services,
  ].join("\n");
}

type Refer = (type: Type) => string;

function writeMessage(message: DescMessage, refer: Refer): string {
  const fields = message.fields.map(writeField).join(" ");
  const types = message.fields.flatMap(typesIn).map(refer);
  const call = types.length > 0 ? `message("${fields}", () => [${types}])` : `message("${fields}")`;
  return writeConst(refer(message), nameOf(message), call);
}

/** Numbers of types in descriptors. */
const [messageType, enumType] = [11, 14];

/** As `message` of the library reads it. Throws for what the library does not know. */
function writeField(field: DescField): string {
  const { localName, jsonName, fieldKind, oneof, presence, parent } = field;
  if (jsonName !== localName)
    throw new Error(`${parent.typeName}.${field.name} has another name in JSON`);
  if (fieldKind === "map" && field.mapKey !== ScalarType.STRING)
    throw new Error(`${parent.typeName}.${field.name} has keys that are no strings`);
  const group = oneof ? `${oneof.localName}|` : "";
  const isOptional = fieldKind === "scalar" || fieldKind === "enum";
  const kinds = { list: "*", map: "%", message: "=", enum: "=", scalar: "=" };
  const kind =
    isOptional && presence === FeatureSet_FieldPresence.EXPLICIT ? "?" : kinds[fieldKind];
  const type = field.message ? messageType : field.enum ? enumType : field.scalar;
  const name = field.name === snakeOf(localName) ? "" : `:${field.name}`;
  return `${group}${localName}${name}${kind}${type}`;
}

function writeEnum(one: DescEnum, refer: Refer): string {
  const { sharedPrefix = "" } = one;
  const prefix = sharedPrefix.toUpperCase();
  let next = 0;
  const names = one.values.map(({ localName, number }) => {
    const name = number === next ? localName : `${localName}=${number}`;
    next = number + 1;
    return name;
  });
  const id = refer(one);
  return [
    writeConst(id, `${nameOf(one)}Schema`, `enumeration("${prefix}", "${names.join(" ")}")`),
    writeConst(`${id}values`, nameOf(one), `valuesOf(${id})`),
  ].join("\n");
}

function writeService(
  { typeName, name, methods }: DescService,
  words: ReadonlySet<string>,
  refer: Refer,
): string {
  const called = methods.filter(({ localName }) => words.has(localName));
  const names = called.map((method) => method.name).join(" ");
  const types = called.flatMap(({ input, output }) => [refer(input), refer(output)]);
  const call = `service(${JSON.stringify(typeName)}, "${names}", () => [${types}])`;
  return writeConst(`service_${name}`, name, call);
}

/** A call that is left out if nobody uses what it makes. */
function writeConst(id: string, name: string, call: string): string {
  return `const ${id} = /* @__PURE__ */ ${call};\nexport { ${id} as ${name} };`;
}
