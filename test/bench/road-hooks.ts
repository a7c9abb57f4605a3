// Imported before a gateway that runs from its sources: writes down which functions of `src` are
// entered, in order. On SIGWINCH it writes what came since the last signal to the file `ROAD_FILE`.

import { readFileSync, writeFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import { parseSync, Visitor } from "oxc-parser";

/** A function that was entered, and the file of its caller, if that was code of `src` too. */
export type Entered = { readonly file: string; readonly name: string; readonly from: string };

const root = fileURLToPath(new URL("../../src/", import.meta.url));
const functions: { file: string; name: string }[] = [];
let entered: Entered[] = [];

Reflect.set(globalThis, "enterRoad", (index: number) => {
  const one = functions[index];
  if (!one) return;
  const [, , , caller = ""] = new Error().stack?.split("\n") ?? [];
  const at = caller.indexOf("/src/");
  entered.push({ ...one, from: at < 0 ? "" : caller.slice(at + 5).replace(/:\d+:\d+\)?$/, "") });
});

registerHooks({
  load(url, context, nextLoad) {
    const path = url.startsWith("file:") ? fileURLToPath(url) : "";
    if (!path.startsWith(root) || !path.endsWith(".ts")) return nextLoad(url, context);
    const source = instrument(path.slice(root.length), readFileSync(path, "utf8"));
    return { format: "module-typescript", source, shortCircuit: true };
  },
});

/** The source with a call at the beginning of each function. */
function instrument(file: string, source: string): string {
  const inserts: { at: number; text: string }[] = [];
  const names: string[] = [];
  const enter = ({ body, id }: FunctionNode) => {
    if (!body) return;
    const call = `enterRoad(${functions.length})`;
    functions.push({ file, name: id?.name ?? names.at(-1) ?? "" });
    if (body.type === "BlockStatement") inserts.push({ at: body.start + 1, text: `${call};` });
    else inserts.push({ at: body.start, text: `(${call},` }, { at: body.end, text: ")" });
  };
  const named = ({ key, id, start, end }: NamedNode) => {
    const { start: from, end: to } = key ?? id ?? { start, end: start };
    names.push(source.slice(from, to === start ? end : to));
  };
  const leave = () => void names.pop();
  const visitor = new Visitor({
    MethodDefinition: named,
    "MethodDefinition:exit": leave,
    Property: named,
    "Property:exit": leave,
    PropertyDefinition: named,
    "PropertyDefinition:exit": leave,
    VariableDeclarator: named,
    "VariableDeclarator:exit": leave,
    FunctionDeclaration: enter,
    FunctionExpression: enter,
    ArrowFunctionExpression: enter,
  });
  visitor.visit(parseSync(file, source, { lang: "ts" }).program);
  inserts.sort((one, other) => other.at - one.at);
  let text = source;
  for (const { at, text: inserted } of inserts)
    text = text.slice(0, at) + inserted + text.slice(at);
  return text;
}

type Span = { readonly start: number; readonly end: number };
type NamedNode = Span & { readonly key?: Span; readonly id?: Span };
type FunctionNode = {
  readonly id: { readonly name: string } | null;
  readonly body: (Span & { readonly type: string }) | null;
};

process.on("SIGWINCH", () => {
  const seen = entered;
  entered = [];
  writeFileSync(process.env.ROAD_FILE ?? "", JSON.stringify(seen));
});
