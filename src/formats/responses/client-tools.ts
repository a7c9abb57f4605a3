// Tools of this format that run at the client and whose calls have a form of their own. A model of
// another format knows them as functions. Data, one row each.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { parseArguments } from "../chat/decode-block.ts";
import { runsAtClient } from "../hosted-tools.ts";
import { isObject } from "../json.ts";
import { type ClientTool, flatName } from "../tool-names.ts";

type Row = {
  /** What the ids of its calls begin with. */
  readonly id: string;
  readonly description: string;
  readonly schema: JsonObject;
  /** The arguments of the function, from the item of a call. */
  readonly argumentsOf: (item: JsonObject) => JsonObject;
  /** Members of the item of a call. Undefined: the arguments lack what the type needs. */
  readonly membersOf: (given: JsonObject) => JsonObject | undefined;
};

const text = { type: "string" };
const texts = { type: "array", items: text };
const milliseconds = { type: "integer", description: "In milliseconds." };

const rows = {
  tool_search: {
    id: "tsc",
    description: "Finds tools that are not defined yet.",
    schema: { type: "object", properties: { query: text }, required: ["query"] },
    argumentsOf: ({ arguments: given }) => parseArguments(given),
    membersOf: (given) => ({ execution: "client", arguments: given }),
  },
  local_shell: {
    id: "lsh",
    description: "Runs a command on the user's machine.",
    schema: {
      type: "object",
      properties: {
        command: { ...texts, description: "The program and its arguments." },
        working_directory: text,
        timeout_ms: milliseconds,
        env: { type: "object", additionalProperties: text },
        user: text,
      },
      required: ["command"],
    },
    argumentsOf: ({ action }) => withoutType(action),
    membersOf: (given) =>
      Array.isArray(given.command) ? { action: { type: "exec", env: {}, ...given } } : undefined,
  },
  shell: {
    id: "sh",
    description: "Runs shell commands on the user's machine.",
    schema: {
      type: "object",
      properties: {
        commands: { ...texts, description: "Commands, which may run at the same time." },
        timeout_ms: milliseconds,
        max_output_length: { type: "integer", description: "In characters, of each command." },
      },
      required: ["commands"],
    },
    argumentsOf: ({ action }) => withoutType(action),
    membersOf: (given) =>
      Array.isArray(given.commands)
        ? {
            action: { timeout_ms: null, max_output_length: null, ...given },
            environment: { type: "local" },
          }
        : undefined,
  },
  apply_patch: {
    id: "apc",
    description: "Creates, changes or deletes a file.",
    schema: {
      type: "object",
      properties: {
        type: { enum: ["create_file", "update_file", "delete_file"] },
        path: text,
        diff: { type: "string", description: "A V4A diff. Not for delete_file." },
      },
      required: ["type", "path"],
    },
    argumentsOf: ({ operation }) => (isObject(operation) ? operation : {}),
    membersOf: (given) =>
      typeof given.type === "string" && typeof given.path === "string"
        ? { operation: given }
        : undefined,
  },
} as const satisfies Readonly<Record<string, Row>>;

export type ClientToolType = keyof typeof rows;

export function isClientToolType(type: unknown): type is ClientToolType {
  return typeof type === "string" && Object.hasOwn(rows, type);
}

export function clientToolOf(type: ClientToolType): Row {
  return rows[type];
}

/** The type of the tool that an item is a call of; undefined for calls of other tools. */
export function calledTool(item: JsonObject): ClientToolType | undefined {
  return toolOfItem(item, "_call");
}

/** The type of the tool that an item is an output of; undefined for those of other tools. */
export function answeredTool(item: JsonObject): ClientToolType | undefined {
  return toolOfItem(item, item.type === "tool_search_output" ? "_output" : "_call_output");
}

function toolOfItem(item: JsonObject, end: string): ClientToolType | undefined {
  if (typeof item.type !== "string" || !item.type.endsWith(end)) return undefined;
  const type = item.type.slice(0, -end.length);
  const isHosted = item.execution === "server";
  return isClientToolType(type) && !isHosted ? type : undefined;
}

function withoutType(action: JsonValue | undefined): JsonObject {
  if (!isObject(action)) return {};
  const { type, ...given } = action;
  return given;
}

/** The output of a call of such a tool, as a text. */
export function outputText({ type, status, output, tools }: JsonObject): string {
  if (type === "tool_search_output") return foundText(tools);
  if (type === "apply_patch_call_output")
    return [status, output].filter((one) => typeof one === "string").join("\n");
  return typeof output === "string" ? output : JSON.stringify(output ?? "");
}

/** Names and descriptions of found tools. */
function foundText(tools: JsonValue | undefined): string {
  const found = objectsIn(tools).flatMap((tool) => [
    lineOf(tool, ""),
    ...objectsIn(tool.tools).map((inner) => lineOf(inner, "  ")),
  ]);
  return found.length === 0 ? "No tool was found." : found.join("\n");
}

function lineOf({ name, description }: JsonObject, indent: string): string {
  const about = typeof description === "string" && description !== "" ? `: ${description}` : "";
  return `${indent}${typeof name === "string" ? name : ""}${about}`;
}

/** The tools of an accepted request whose calls differ from a plain call, by their flat names. */
export function readClientTools(tools: readonly JsonValue[]): ReadonlyMap<string, ClientTool> {
  const found = new Map<string, ClientTool>();
  const add = (tool: JsonObject, namespace: string | undefined) => {
    const { type } = tool;
    const isOwn = isClientToolType(type) && runsAtClient(tool);
    const name = isOwn ? type : tool.name;
    const kind = isOwn || type === "custom" ? type : "function";
    if (typeof name !== "string") return;
    const flat = flatName(name, namespace);
    // A later definition of a name replaces an earlier one.
    if (kind === "function" && namespace === undefined) found.delete(flat);
    else found.set(flat, { name, kind, ...(namespace !== undefined && { namespace }) });
  };
  for (const tool of objectsIn(tools)) {
    if (tool.type !== "namespace") add(tool, undefined);
    else if (typeof tool.name === "string")
      for (const inner of objectsIn(tool.tools)) add(inner, tool.name);
  }
  return found;
}

function objectsIn(value: JsonValue | readonly JsonValue[] | undefined): JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}
