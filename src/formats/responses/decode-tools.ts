// Tools and the tool choice of a request. A custom tool, whose input is plain text, becomes a tool
// with one argument: other providers know only arguments in JSON. A tool of a namespace becomes a
// tool with a longer name.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Tool } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  buildTool,
  type ChosenTools,
  chooseTools,
  type WantedTools,
} from "../chat/decode-tools.ts";
import {
  invalid,
  objectAt,
  optionalArray,
  optionalObject,
  optionalText,
  textAt,
} from "../chat/fields.ts";
import { toolsMax, tooManyTools } from "../codec.ts";
import { flatName } from "../tool-names.ts";

const toolTypes = ["function", "custom", "namespace"];
const choices = ["auto", "required", "none", "function", "custom", "allowed_tools"];

/** Tools and tool choice of a request. Throws `invalid_request`. */
export function decodeTools(body: JsonObject): ChosenTools {
  return chooseTools(body, decodeList(body.tools), decodeChoice(body.tool_choice));
}

function decodeList(value: JsonValue | undefined): Tool[] {
  const tools: Tool[] = [];
  const names = new Set<string>();
  const add = (tool: Tool, at: string) => {
    // A call names its tool by the flat name alone.
    if (names.has(tool.name)) throw invalid(`${at}.name`, "is the name of another tool as well");
    names.add(tool.name);
    tools.push(tool);
  };
  for (const [index, one] of (optionalArray(value, "tools") ?? []).entries()) {
    const at = `tools[${index}]`;
    const tool = objectAt(one, at);
    if (tool.type !== "namespace") {
      add(decodeTool(tool, at), at);
      continue;
    }
    const inner = optionalArray(tool.tools, `${at}.tools`) ?? [];
    if (tools.length + inner.length > toolsMax) throw tooManyTools();
    for (const [innerIndex, innerOne] of inner.entries()) {
      const path = `${at}.tools[${innerIndex}]`;
      add(decodeInNamespace(objectAt(innerOne, path), path, { tool, at, innerIndex }), path);
    }
  }
  return tools;
}

function decodeTool(tool: JsonObject, at: string): Tool {
  switch (tool.type) {
    case "function":
      return buildTool(tool, at);
    case "custom":
      return buildCustomTool(tool, at);
    default:
      throw notOffered(at);
  }
}

/** The error for a tool that the vendor runs itself, such as `web_search`. */
function notOffered(at: string): Error {
  return invalid(`${at}.type`, "is not offered by this gateway", toolTypes);
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
  if (tool.type !== "function" && tool.type !== "custom") throw notOffered(path);
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

function buildCustomTool(tool: JsonObject, at: string): Tool {
  const description = optionalText(tool.description, `${at}.description`);
  const format = optionalObject(tool.format, `${at}.format`);
  const texts = [description, describeFormat(format, `${at}.format`)];
  const properties = { input: { type: "string", description: "The whole input, as plain text." } };
  const schema = { type: "object", properties, required: ["input"], additionalProperties: false };
  return buildTool(
    {
      name: tool.name ?? null,
      description: texts.filter((text) => text !== undefined).join("\n\n"),
      parameters: schema,
    },
    at,
  );
}

function describeFormat(format: JsonObject | undefined, at: string): string | undefined {
  if (format === undefined || format.type === "text") return undefined;
  if (format.type !== "grammar")
    throw invalid(`${at}.type`, "is not a supported format", ["text", "grammar"]);
  const syntax = textAt(format.syntax, `${at}.syntax`);
  const definition = textAt(format.definition, `${at}.definition`);
  return `The input must follow this grammar (${syntax}):\n${definition}`;
}

function decodeChoice(value: JsonValue | undefined): WantedTools | undefined {
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
      throw invalid(`${at}.type`, "is not a supported choice", choices);
  }
}

function chosenName({ name, namespace }: JsonObject, at: string): string {
  return flatName(textAt(name, `${at}.name`), optionalText(namespace, `${at}.namespace`));
}
