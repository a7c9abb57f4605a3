// The names of tools. Models know one flat list of names, and most formats names of at most 64
// characters; clients of the Responses format may group tools in namespaces, and clients of
// OpenAI's formats may have tools whose input is plain text.

import { hash } from "node:crypto";
import { isObject, parseJsonText } from "./json.ts";

/** A tool as its client defined it. */
export type ClientTool = {
  readonly name: string;
  readonly namespace?: string;
  /** `custom`: its input is plain text. Others: the type of the tool, which forms its calls. */
  readonly kind: string;
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

/** The plain input of a call of a custom tool. Other arguments are passed on as they are. */
export function customInput(text: string): string {
  const given = parseJsonText(text);
  return isObject(given) && typeof given.input === "string" ? given.input : text;
}
