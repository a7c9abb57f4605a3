// Tools and the tool choice of a request. A custom tool, whose input is plain text, becomes a tool
// with one argument: other providers know only arguments in JSON. A tool of a namespace becomes a
// tool with a longer name, and a tool whose calls have a form of their own one with its arguments.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Tool } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  buildCustomTool,
  buildTool,
  type ChosenTools,
  chooseTools,
  type WantedTools,
} from "../chat/decode-tools.ts";
import { invalid, objectAt, optionalArray, optionalText, textAt } from "../chat/fields.ts";
import { toolsMax, tooManyTools } from "../codec.ts";
import { hostedToolsIn, runsAtClient, toolListsOf } from "../hosted-tools.ts";
import { isObject } from "../json.ts";
import { flatName } from "../tool-names.ts";
import { clientToolOf, isClientToolType } from "./client-tools.ts";

const choices = ["auto", "required", "none", "function", "custom", "allowed_tools"];

/**
 * Tools and tool choice of a request. Tools that its items bring are tools of the request; those
 * that the vendor runs itself stay in the body alone. Throws `invalid_request`.
 */
export function decodeTools(body: JsonObject): ChosenTools {
  optionalArray(body.tools, "tools");
  const lists = toolListsOf(body.tools, Array.isArray(body.input) ? body.input : []);
  const tools = new Map<string, Tool>();
  for (const { tools: list, at, isFirst } of lists)
    for (const [index, one] of list.entries()) {
      const path = `${at}[${index}]`;
      for (const [tool, where] of decodeOne(objectAt(one, path), path)) {
        // A call names its tool by the flat name alone. An item defines the same tool anew.
        if (isFirst && tools.has(tool.name))
          throw invalid(`${where}.name`, "is the name of another tool as well");
        tools.set(tool.name, tool);
        if (tools.size > toolsMax) throw tooManyTools();
      }
    }
  const hosted = new Set(hostedToolsIn(lists).map(({ type }) => type));
  const known = new Set([...hosted, ...[...tools.keys()].filter(isClientToolType)]);
  const wanted = decodeChoice(body.tool_choice, known);
  return chooseTools(body, [...tools.values()], wanted, hosted.size > 0);
}

/** The tools that one entry of a list defines, with their paths. */
function* decodeOne(tool: JsonObject, at: string): Generator<[tool: Tool, at: string]> {
  if (typeof tool.type !== "string") throw invalid(`${at}.type`, "must be a string");
  if (!runsAtClient(tool)) return;
  if (tool.type !== "namespace") {
    yield [decodeTool(tool, at), at];
    return;
  }
  const inner = optionalArray(tool.tools, `${at}.tools`) ?? [];
  if (inner.length > toolsMax) throw tooManyTools();
  for (const [innerIndex, one] of inner.entries()) {
    const path = `${at}.tools[${innerIndex}]`;
    yield [decodeInNamespace(objectAt(one, path), path, { tool, at, innerIndex }), path];
  }
}

function decodeTool(tool: JsonObject, at: string): Tool {
  const { type } = tool;
  if (type === "custom") return buildCustomTool(tool, at);
  if (!isClientToolType(type)) return buildTool(tool, at);
  const { description, schema } = clientToolOf(type);
  // Of these types, only a search says more of itself.
  const about = type === "tool_search" ? tool : {};
  return buildTool(
    {
      name: type,
      description: typeof about.description === "string" ? about.description : description,
      parameters: isObject(about.parameters) ? about.parameters : schema,
    },
    at,
  );
}

/**
 * A tool of a namespace. The model sees the description of the namespace before that of its first
 * tool.
 */
function decodeInNamespace(
  tool: JsonObject,
  path: string,
  group: { tool: JsonObject; at: string; innerIndex: number },
): Tool {
  if (tool.type !== "function" && tool.type !== "custom")
    throw invalid(`${path}.type`, "is not a type of tools in a namespace", ["function", "custom"]);
  const namespace = textAt(group.tool.name, `${group.at}.name`);
  if (namespace === "") throw invalid(`${group.at}.name`, "must not be empty");
  const about = optionalText(group.tool.description, `${group.at}.description`);
  const name = textAt(tool.name, `${path}.name`);
  if (name === "") throw invalid(`${path}.name`, "must not be empty");
  const built = decodeTool({ ...tool, name: flatName(name, namespace) }, path);
  const own = built.description;
  if (group.innerIndex === 0 && about)
    built.description = own === undefined ? about : `${about}\n\n${own}`;
  return built;
}

/** `known`: types of tools of the request that a choice may name by their type. */
function decodeChoice(
  value: JsonValue | undefined,
  known: ReadonlySet<string>,
): WantedTools | undefined {
  const at = "tool_choice";
  if (value === undefined || value === null) return undefined;
  if (value === "auto" || value === "none") return { choice: { type: value } };
  if (value === "required") return { choice: { type: "any" } };
  if (typeof value === "string") throw invalid(at, "is not a supported choice", choices);
  const choice = objectAt(value, at);
  switch (choice.type) {
    case "function":
    case "custom":
      return { choice: { type: "tool", name: chosenName(choice, at) } };
    case "allowed_tools": {
      const names = (optionalArray(choice.tools, `${at}.tools`) ?? []).map((entry, index) => {
        const path = `${at}.tools[${index}]`;
        return chosenName(objectAt(entry, path), path);
      });
      const type = choice.mode === "required" ? "any" : "auto";
      return { choice: { type }, only: new Set(names) };
    }
    default:
      if (typeof choice.type === "string" && known.has(choice.type))
        return { choice: { type: "tool", name: choice.type } };
      if (typeof choice.type !== "string")
        throw invalid(`${at}.type`, "is not a supported choice", choices);
      throw invalid(at, `requires a call of ${choice.type.slice(0, 64)}, which is no tool here`);
  }
}

function chosenName({ type, name, namespace }: JsonObject, at: string): string {
  const isOther = typeof type === "string" && type !== "function" && type !== "custom";
  if (isOther && typeof name !== "string") return type;
  return flatName(textAt(name, `${at}.name`), optionalText(namespace, `${at}.namespace`));
}
