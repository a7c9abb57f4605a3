// Leaves out of the page's bundle what the page never sends or reads: other methods, what is in the
// messages of those, the options of all, and what only these import. Each message keeps its place
// in its file, by which the generated code finds it. Saves a third of the bytes of that code.
//
// The pages of operators have generated code of their own, with the messages of their own methods,
// so that customers load none of these. Both have the same services, messages and enums: only the
// objects that describe them are two.

import { globSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { clone, fromBinary, toBinary } from "@bufbuild/protobuf";
import { embedFileDesc } from "@bufbuild/protobuf/codegenv2";
import {
  type DescriptorProto,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  file_google_protobuf_descriptor,
} from "@bufbuild/protobuf/wkt";
import type { Plugin } from "esbuild";

/** The descriptor of a file, and the files that it imports, in generated code. */
const embedded = /fileDesc\("([^"]+)"(?:, \[([^\]]*)\])?\)/;
/** The import of another file's descriptor. */
const imported = /^import \{ (file_\w+) \} from .*$/gm;
/** In the library's file of descriptors: the one that describes itself, and what fills an enum. */
const booted = /boot\(\{.*\}\);$/m;
const enumFilled = /^\(function \((\w+)\) \{[^}]*\}\)\(\1 \|\| \(\1 = \{\}\)\);$/gm;
/** In the sources of the page: what only operators load. */
const operatorFolder = "operator";
/** Samples of code for people, which call methods that the page does not. */
const samplesFile = "tools.ts";
const ofOperators = "generated-for-operators";

/** `root`: the folder that holds `gen/`. `web`: the sources of the page. */
export function pruneDescriptors(root: string, web: string): Plugin {
  return {
    name: "prune-descriptors",
    setup({ onStart, onResolve, onLoad }) {
      let usedByAll: Used = { messages: new Set(), typesOf: new Map(), words: new Set() };
      let usedByOperators = usedByAll;
      onStart(() => {
        const files = readDescriptors(root);
        const { shared, operators } = readSources(web);
        usedByAll = findUsed(files, shared);
        usedByOperators = findUsed(files, operators);
      });
      const folder = join(web, operatorFolder);
      onResolve({ filter: /_pb\.ts$/ }, ({ path, importer, namespace, resolveDir }) =>
        namespace === ofOperators || dirname(importer) === folder
          ? { path: join(resolveDir, path), namespace: ofOperators }
          : undefined,
      );
      onLoad({ filter: /[\\/]gen[\\/].*_pb\.ts$/, namespace: "file" }, async ({ path }) => ({
        contents: await readPruned(path, usedByAll),
        loader: "ts",
      }));
      onLoad({ filter: /[\\/]google[\\/]protobuf[\\/]descriptor_pb\.js$/ }, async ({ path }) => ({
        contents: withoutOptions(await readFile(path, "utf8")),
        loader: "js",
      }));
      onLoad({ filter: /_pb\.ts$/, namespace: ofOperators }, async ({ path }) => ({
        contents: await readPruned(path, usedByOperators),
        loader: "ts",
        resolveDir: dirname(path),
      }));
    },
  };
}

/** The text of a generated file without the descriptors that are not used, and their imports. */
async function readPruned(path: string, used: Used): Promise<string> {
  const text = await readFile(path, "utf8");
  const [whole, data, imports = ""] = embedded.exec(text) ?? [];
  if (whole === undefined || data === undefined) return text;
  const file = prune(decode(data), used);
  const types = typesOf(file);
  const isNeeded = (name: string) => used.typesOf.get(name)?.some((one) => types.has(one)) ?? true;
  const needed = imports.split(", ").filter(isNeeded).join(", ");
  // Most of it is names, which are compressed well only as they are.
  const bytes = Buffer.from(toBinary(FileDescriptorProtoSchema, file)).toString("latin1");
  return text
    .replace(whole, () => `fileDesc(btoa(${JSON.stringify(bytes)}), [${needed}])`)
    .replace(imported, (line, name: string) => (isNeeded(name) ? line : ""));
}

/**
 * The text of the library's file of descriptors without the options, which pruned descriptors do
 * not have, and without what only compilers read. The page reads no enum of it.
 */
function withoutOptions(text: string): string {
  const file = clone(FileDescriptorProtoSchema, file_google_protobuf_descriptor.proto);
  for (const message of file.messageType) {
    if (message.name.endsWith("DescriptorProto")) continue;
    // The messages of maps are known by it.
    message.field = message.field.filter(({ name }) => name === "map_entry");
    message.nestedType = [];
    message.enumType = [];
  }
  const embeddable = embedFileDesc(file);
  if (!embeddable.bootable) return text;
  const boot = JSON.stringify(embeddable.boot());
  return text.replace(booted, () => `boot(${boot});`).replace(enumFilled, "");
}

function decode(data: string): FileDescriptorProto {
  return fromBinary(FileDescriptorProtoSchema, Buffer.from(data, "base64"));
}

function readDescriptors(root: string): FileDescriptorProto[] {
  return globSync("gen/**/*_pb.ts", { cwd: root }).flatMap((file) => {
    const data = embedded.exec(readFileSync(join(root, file), "utf8"))?.[1];
    return data === undefined ? [] : [decode(data)];
  });
}

/** The sources that everybody loads, and those that only operators load. */
function readSources(web: string): { readonly shared: string; readonly operators: string } {
  const files = globSync("**/*.{ts,tsx}", { cwd: web }).filter((file) => file !== samplesFile);
  const textOf = (isWanted: boolean) =>
    files
      .filter((file) => (dirname(file) === operatorFolder) === isWanted)
      .map((file) => readFileSync(join(web, file), "utf8"))
      .join("\n");
  return { shared: textOf(false), operators: textOf(true) };
}

/** What some sources need. */
type Used = {
  /** Full names of messages, and of the enums in them. */
  readonly messages: ReadonlySet<string>;
  /** The messages and enums of each of our files, by the name of its descriptor in the code. */
  readonly typesOf: ReadonlyMap<string, readonly string[]>;
  /** Every word of the sources. A method whose name is one of them may be called. */
  readonly words: ReadonlySet<string>;
};

/**
 * The messages that sources need: those of each method whose name is a word in them, those whose
 * schema they name, and all that are inside these.
 */
function findUsed(files: readonly FileDescriptorProto[], sources: string): Used {
  const known = new Map(
    files.flatMap((file) => file.messageType.map((one) => [`.${file.package}.${one.name}`, one])),
  );
  const messages = new Set<string>();
  const add = (name: string) => {
    if (messages.has(name)) return;
    messages.add(name);
    const message = known.get(name);
    if (message) for (const inside of typesIn(message)) add(inside);
  };
  const words = new Set(sources.match(/\w+/g));
  for (const { service } of files)
    for (const { method } of service)
      for (const { name, inputType, outputType } of method)
        if (words.has(localNameOf(name))) {
          add(inputType);
          add(outputType);
        }
  for (const [name, message] of known) if (words.has(`${message.name}Schema`)) add(name);
  return {
    messages,
    typesOf: new Map(files.map((file) => [descriptorOf(file), namesIn(file)])),
    words,
  };
}

/** `file_gateway_keys_v1_keys` */
function descriptorOf({ name }: FileDescriptorProto): string {
  return `file_${name.replace(/\.proto$/, "").replaceAll(/\W/g, "_")}`;
}

function namesIn(file: FileDescriptorProto): string[] {
  return [...file.messageType, ...file.enumType].map(({ name }) => `.${file.package}.${name}`);
}

/** What the fields and methods of a file refer to. */
function typesOf({ messageType, service }: FileDescriptorProto): ReadonlySet<string> {
  const methods = service.flatMap(({ method }) => method);
  return new Set([
    ...messageType.flatMap(typesIn),
    ...methods.flatMap(({ inputType, outputType }) => [inputType, outputType]),
  ]);
}

/** As the generated code names a method. */
function localNameOf(name: string): string {
  return name.charAt(0).toLowerCase() + name.slice(1);
}

function typesIn({ field, nestedType }: DescriptorProto): string[] {
  return [...field.map(({ typeName }) => typeName), ...nestedType.flatMap(typesIn)];
}

/** Changes `file`, and returns it. */
function prune(file: FileDescriptorProto, { messages, words }: Used): FileDescriptorProto {
  // Those of options, of which none is left.
  file.extension = [];
  delete file.options;
  for (const service of file.service) {
    service.method = service.method.filter(({ name }) => words.has(localNameOf(name)));
    for (const method of service.method) delete method.options;
  }
  for (const [index, message] of file.messageType.entries()) {
    for (const field of message.field) delete field.options;
    if (messages.has(`.${file.package}.${message.name}`)) continue;
    message.field = [];
    message.oneofDecl = [];
    message.nestedType = [];
    message.name = `_${index}`;
  }
  for (const [index, one] of file.enumType.entries()) {
    if (messages.has(`.${file.package}.${one.name}`)) continue;
    one.value = one.value.slice(0, 1);
    one.name = `_e${index}`;
  }
  return file;
}
