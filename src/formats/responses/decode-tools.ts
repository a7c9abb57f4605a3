// Tools and the tool choice of a request. A custom tool, whose input is plain text, becomes a tool
// with one argument: models and providers know only arguments in JSON.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Tool,
  type ToolChoice,
  ToolChoiceSchema,
  ToolSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { buildTool } from "../chat/decode-tools.ts";
import {
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalObject,
  optionalText,
  textAt,
} from "../chat/fields.ts";

type Choice = MessageInitShape<typeof ToolChoiceSchema>;

const choices = ["auto", "required", "none", "function", "custom", "allowed_tools"];

/** Tools and tool choice of a request. Throws `invalid_request`. */
export function decodeTools(body: JsonObject): {
  tools: Tool[];
  toolChoice: ToolChoice | undefined;
} {
  const tools = (optionalArray(body.tools, "tools") ?? []).map((tool, index) =>
    decodeTool(objectAt(tool, `tools[${index}]`), `tools[${index}]`),
  );
  const wanted = decodeChoice(body.tool_choice);
  const allowed = wanted?.only ? tools.filter(({ name }) => wanted.only?.has(name)) : tools;
  const oneAtATime = optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls") === false;
  if (allowed.length === 0) {
    // Without tools a choice has no effect, unless it requires a call.
    if (wanted && (wanted.choice.type === "any" || wanted.choice.type === "tool"))
      throw invalid("tool_choice", "requires a call, but the request has no such tool");
    return { tools: allowed, toolChoice: undefined };
  }
  const choice =
    oneAtATime && wanted?.choice.type !== "none"
      ? { type: "auto", ...wanted?.choice, disableParallelToolUse: true }
      : wanted?.choice;
  return { tools: allowed, toolChoice: choice && create(ToolChoiceSchema, choice) };
}

function decodeTool(tool: JsonObject, at: string): Tool {
  switch (tool.type) {
    case "function":
      return buildTool(tool, at);
    case "custom":
      return buildCustomTool(tool, at);
    default:
      // The tools that the vendor runs itself, such as `web_search`.
      throw invalid(`${at}.type`, "is not offered by this gateway", ["function", "custom"]);
  }
}

function buildCustomTool(tool: JsonObject, at: string): Tool {
  const description = optionalText(tool.description, `${at}.description`);
  const format = optionalObject(tool.format, `${at}.format`);
  const texts = [description, describeFormat(format, `${at}.format`)];
  const properties = { input: { type: "string", description: "The whole input, as plain text." } };
  const schema = { type: "object", properties, required: ["input"], additionalProperties: false };
  const built = buildTool(
    {
      name: tool.name ?? null,
      description: texts.filter((text) => text !== undefined).join("\n\n"),
      parameters: schema,
    },
    at,
  );
  const original: JsonObject = {};
  if (description !== undefined) original.description = description;
  if (format) original.format = format;
  return create(ToolSchema, { ...built, extensions: { custom: original } });
}

function describeFormat(format: JsonObject | undefined, at: string): string | undefined {
  if (format === undefined || format.type === "text") return undefined;
  if (format.type !== "grammar")
    throw invalid(`${at}.type`, "is not a supported format", ["text", "grammar"]);
  const syntax = textAt(format.syntax, `${at}.syntax`);
  const definition = textAt(format.definition, `${at}.definition`);
  return `The input must follow this grammar (${syntax}):\n${definition}`;
}

/** `only` has the names of the tools that may be called, if the choice restricts them. */
function decodeChoice(
  value: JsonValue | undefined,
): { choice: Choice; only?: ReadonlySet<string> } | undefined {
  const at = "tool_choice";
  if (value === undefined || value === null) return undefined;
  if (value === "auto" || value === "none") return { choice: { type: value } };
  if (value === "required") return { choice: { type: "any" } };
  if (typeof value === "string") throw invalid(at, "is not a supported choice", choices);
  const choice = objectAt(value, at);
  switch (choice.type) {
    case "function":
    case "custom":
      return { choice: { type: "tool", name: textAt(choice.name, `${at}.name`) } };
    case "allowed_tools": {
      const names = (optionalArray(choice.tools, `${at}.tools`) ?? []).map((entry, index) => {
        const path = `${at}.tools[${index}]`;
        return textAt(objectAt(entry, path).name, `${path}.name`);
      });
      const type = choice.mode === "required" ? "any" : "auto";
      return { choice: { type }, only: new Set(names) };
    }
    default:
      throw invalid(`${at}.type`, "is not a supported choice", choices);
  }
}
