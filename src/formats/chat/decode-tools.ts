// Tools and the tool choice of a request, in chat's own form, as legacy functions, in the flat form
// (the members of `function` or `custom` one level up) and in the native form.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Tool,
  type ToolChoice,
  ToolChoiceSchema,
  ToolSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";
import {
  decodeCacheMark,
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalObject,
  optionalText,
  textAt,
} from "./fields.ts";

const choices = ["auto", "required", "none", "function", "custom", "allowed_tools"];
const nameForm = /^[a-zA-Z0-9_-]{1,64}$/;

/** The choice of a request. `only`: the names of the tools that it allows, if not all. */
export type WantedTools = {
  readonly choice: MessageInitShape<typeof ToolChoiceSchema>;
  readonly only?: ReadonlySet<string>;
};

export type ChosenTools = { tools: Tool[]; toolChoice: ToolChoice | undefined };

/** Tools and tool choice of a request. Throws `invalid_request`. */
export function decodeTools(body: JsonObject): ChosenTools {
  const tools = (optionalArray(body.tools, "tools") ?? []).map((tool, index) =>
    decodeTool(tool, `tools[${index}]`),
  );
  for (const [index, value] of (optionalArray(body.functions, "functions") ?? []).entries()) {
    const at = `functions[${index}]`;
    tools.push(buildTool(objectAt(value, at), at));
  }

  return chooseTools(body, tools, decodeChoice(body));
}

/**
 * The tools of a request that its choice allows, and the choice with `parallel_tool_calls`.
 * `hasHosted`: there are tools besides that a vendor runs itself. Throws `invalid_request`.
 */
export function chooseTools(
  body: JsonObject,
  tools: Tool[],
  wanted: WantedTools | undefined,
  hasHosted = false,
): ChosenTools {
  const allowed = wanted?.only ? tools.filter((tool) => wanted.only?.has(tool.name)) : tools;
  const oneAtATime = optionalBoolean(body.parallel_tool_calls, "parallel_tool_calls") === false;
  if (allowed.length === 0 && !hasHosted) {
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

function decodeTool(value: JsonValue, at: string): Tool {
  const tool = objectAt(value, at);
  if (isObject(tool.function))
    return buildTool({ ...tool.function, ...cacheMember(tool) }, `${at}.function`);
  // The native form or the flat form.
  const isNative = tool.type === "custom" && isObject(tool.input_schema);
  if (tool.type === "custom" && !isNative) {
    const { custom } = tool;
    return isObject(custom) ? buildCustomTool(custom, `${at}.custom`) : buildCustomTool(tool, at);
  }
  if (tool.type !== undefined && tool.type !== null && tool.type !== "function" && !isNative) {
    const types = ["function", "custom"];
    throw invalid(`${at}.type`, "only tools that the client runs are supported", types);
  }
  if (typeof tool.name !== "string") throw invalid(`${at}.function`, "must be an object");
  return buildTool(tool, at);
}

function cacheMember(tool: JsonObject): JsonObject {
  return tool.cache_control === undefined ? {} : { cache_control: tool.cache_control };
}

export function buildTool(definition: JsonObject, at: string): Tool {
  const name = textAt(definition.name, `${at}.name`);
  if (!nameForm.test(name))
    throw invalid(`${at}.name`, "must be 1 to 64 letters, digits, underscores or hyphens");
  const member = isObject(definition.input_schema) ? "input_schema" : "parameters";
  const schema: JsonObject = optionalObject(definition[member], `${at}.${member}`) ?? {
    properties: {},
  };
  return create(ToolSchema, {
    name,
    description: optionalText(definition.description, `${at}.description`),
    inputSchema: schema.type === undefined ? { type: "object", ...schema } : schema,
    cacheControl: decodeCacheMark(definition, at),
    ...(definition.strict === true && { extensions: { strict: true } }),
  });
}

/** The names of the custom tools of an accepted request. `inForms`: in which forms. */
export function customTools({ tools }: JsonObject, inForms: "all" | "flat"): ReadonlySet<string> {
  const names = new Set<string>();
  for (const tool of Array.isArray(tools) ? tools : []) {
    if (!isObject(tool) || tool.type !== "custom" || isObject(tool.input_schema)) continue;
    const { name } = isObject(tool.custom) && inForms === "all" ? tool.custom : tool;
    if (typeof name === "string") names.add(name);
  }
  return names;
}

/** A tool whose input is plain text, as one with that as its argument. */
export function buildCustomTool(tool: JsonObject, at: string): Tool {
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
  // Chat has the members of a grammar one level down.
  const grammar = optionalObject(format.grammar, `${at}.grammar`);
  const path = grammar ? `${at}.grammar` : at;
  const syntax = textAt((grammar ?? format).syntax, `${path}.syntax`);
  const definition = textAt((grammar ?? format).definition, `${path}.definition`);
  return `The input must follow this grammar (${syntax}):\n${definition}`;
}

function decodeChoice({ tool_choice, function_call }: JsonObject): WantedTools | undefined {
  // The legacy form has the function without a type.
  const legacy = isObject(function_call)
    ? { type: "function", function: function_call }
    : function_call;
  const wanted = optionalChoice(tool_choice, "tool_choice");
  // Beside the newer one it is read all the same: a mistake in it is told.
  const wantedBefore = optionalChoice(legacy, "function_call");
  return wanted ?? wantedBefore;
}

function optionalChoice(value: JsonValue | undefined, at: string): WantedTools | undefined {
  return value === undefined || value === null ? undefined : decodeToolChoice(value, at);
}

function decodeToolChoice(value: JsonValue, at: string): WantedTools {
  if (value === "auto" || value === "none") return { choice: { type: value } };
  if (value === "required" || value === "any") return { choice: { type: "any" } };
  if (typeof value === "string") throw invalid(at, "is not a supported choice", choices);
  const choice = objectAt(value, at);
  switch (choice.type) {
    case "function":
    case "custom": {
      const { type } = choice;
      const named = optionalObject(choice[type], `${at}.${type}`);
      const name = named
        ? textAt(named.name, `${at}.${type}.name`)
        : textAt(choice.name, `${at}.name`);
      return { choice: { type: "tool", name } };
    }
    case "allowed_tools": {
      const allowed = optionalObject(choice.allowed_tools, `${at}.allowed_tools`) ?? choice;
      const type = allowed.mode === "required" ? "any" : "auto";
      return {
        choice: { type },
        only: new Set(allowedNames(allowed.tools, `${at}.allowed_tools.tools`)),
      };
    }
    // The native form.
    case "auto":
    case "any":
    case "none":
    case "tool": {
      const disableParallelToolUse = optionalBoolean(
        choice.disable_parallel_tool_use,
        `${at}.disable_parallel_tool_use`,
      );
      const name = choice.type === "tool" ? textAt(choice.name, `${at}.name`) : undefined;
      return { choice: { type: choice.type, name, disableParallelToolUse } };
    }
    default:
      throw invalid(`${at}.type`, "is not a supported choice", choices);
  }
}

function allowedNames(value: JsonValue | undefined, at: string): string[] {
  return (optionalArray(value, at) ?? []).map((entry, index) => {
    const tool = objectAt(entry, `${at}[${index}]`);
    const member = isObject(tool.custom) ? "custom" : "function";
    const named = optionalObject(tool[member], `${at}[${index}].${member}`) ?? tool;
    return textAt(named.name, `${at}[${index}].name`);
  });
}
