// The names of tools. Models know one flat list of names, and most formats names of at most 64
// characters; clients of the Responses format may group tools in namespaces, and clients of
// OpenAI's formats may have tools whose input is plain text.

import { hash } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isObject } from "./json.ts";

/** A tool as its client defined it. */
export type ClientTool = {
  readonly name: string;
  readonly namespace?: string;
  /** True if the input is plain text. */
  readonly isCustom: boolean;
};

const nameLengthMax = 64;
const digestLength = 8;

/**
 * The name of a tool for the model. It depends on nothing but these two names, so that the calls in
 * a history keep theirs when the tools change.
 */
export function flatName(name: string, namespace: string | undefined): string {
  if (!namespace) return name;
  const joined = `${namespace}__${name}`;
  const valid = joined.replace(/[^a-zA-Z0-9_-]/g, "_");
  return valid === joined ? shortName(joined, [namespace, name]) : cut(valid, [namespace, name]);
}

/** `name` if it is short enough for OpenAI's formats; otherwise its start and a digest of all. */
export function shortName(name: string, whole: readonly string[] = [name]): string {
  return name.length <= nameLengthMax ? name : cut(name, whole);
}

function cut(name: string, whole: readonly string[]): string {
  const digest = hash("sha256", JSON.stringify(whole)).slice(0, digestLength);
  return `${name.slice(0, nameLengthMax - digestLength - 1)}_${digest}`;
}

/** The tools of an accepted request whose calls differ from a plain call, by their flat names. */
export function readClientTools(tools: JsonValue | undefined): ReadonlyMap<string, ClientTool> {
  const found = new Map<string, ClientTool>();
  const add = ({ type, name }: JsonObject, namespace: string | undefined) => {
    const isCustom = type === "custom";
    if (typeof name !== "string" || (!isCustom && namespace === undefined)) return;
    const tool = { name, isCustom, ...(namespace !== undefined && { namespace }) };
    found.set(flatName(name, namespace), tool);
  };
  for (const tool of objectsIn(tools)) {
    if (tool.type !== "namespace") add(tool, undefined);
    else if (typeof tool.name === "string")
      for (const inner of objectsIn(tool.tools)) add(inner, tool.name);
  }
  return found;
}

function objectsIn(value: JsonValue | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}
