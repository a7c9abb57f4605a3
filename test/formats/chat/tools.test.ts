// Tools and the tool choice, in every form that clients send.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { decodeRequest } from "../../../src/formats/chat/chat.ts";
import { bodyWith, errorOf } from "../../support/samples/chat-bodies.ts";

const schema = { type: "object", properties: { b: { type: "string" }, a: {} }, required: ["b"] };
const named = (name: string): JsonObject => ({ type: "function", function: { name } });

const tools: { name: string; tool: JsonObject; becomes: object }[] = [
  {
    name: "chat's own form",
    tool: {
      type: "function",
      function: { name: "f", description: "d", parameters: schema, strict: true },
    },
    becomes: {
      name: "f",
      description: "d",
      inputSchema: schema,
      extensions: { strict: true },
    },
  },
  {
    name: "without parameters",
    tool: named("f"),
    becomes: { name: "f", inputSchema: { type: "object", properties: {} } },
  },
  {
    name: "with parameters without a type",
    tool: { type: "function", function: { name: "f", parameters: { properties: { a: {} } } } },
    becomes: { inputSchema: { type: "object", properties: { a: {} } } },
  },
  {
    name: "the flat form",
    tool: { type: "function", name: "f", parameters: schema },
    becomes: { name: "f", inputSchema: schema },
  },
  {
    name: "the flat form with the native schema member",
    tool: { type: "function", name: "f", description: "d", input_schema: schema },
    becomes: { name: "f", description: "d", inputSchema: schema },
  },
  {
    name: "the native form",
    tool: { name: "f", input_schema: schema },
    becomes: { name: "f", inputSchema: schema },
  },
  {
    name: "a custom tool, whose input is plain text",
    tool: {
      type: "custom",
      custom: {
        name: "f",
        format: { type: "grammar", grammar: { syntax: "lark", definition: "start: /a/" } },
      },
    },
    becomes: {
      name: "f",
      description: "The input must follow this grammar (lark):\nstart: /a/",
      inputSchema: { properties: { input: { type: "string" } }, required: ["input"] },
    },
  },
  {
    name: "a custom tool in the flat form",
    tool: { type: "custom", name: "f", description: "Does." },
    becomes: { name: "f", description: "Does." },
  },
  {
    name: "the native form with its type",
    tool: { type: "custom", name: "f", input_schema: schema },
    becomes: { name: "f", inputSchema: schema },
  },
];
for (const { name, tool, becomes } of tools) {
  test(`a tool is accepted: ${name}`, () => {
    const [decoded] = decodeRequest(bodyWith({ tools: [tool] })).tools;
    expect(decoded).toMatchObject(becomes);
    if (!("extensions" in becomes)) expect(decoded).not.toHaveProperty("extensions");
  });
}

test("the members of a schema keep their order", () => {
  const [tool] = decodeRequest(
    bodyWith({ tools: [{ type: "function", function: { name: "f", parameters: schema } }] }),
  ).tools;
  expect(JSON.stringify(tool?.inputSchema)).toBe(JSON.stringify(schema));
});

const choices: { name: string; choice: JsonValue; becomes: object }[] = [
  { name: "auto", choice: "auto", becomes: { type: "auto" } },
  { name: "required", choice: "required", becomes: { type: "any" } },
  { name: "none", choice: "none", becomes: { type: "none" } },
  {
    name: "one function",
    choice: { type: "function", function: { name: "g" } },
    becomes: { type: "tool", name: "g" },
  },
  {
    name: "one function, flat",
    choice: { type: "function", name: "g" },
    becomes: { type: "tool", name: "g" },
  },
  {
    name: "a native choice",
    choice: { type: "any", disable_parallel_tool_use: true },
    becomes: { type: "any", disableParallelToolUse: true },
  },
  {
    name: "a native choice of one tool",
    choice: { type: "tool", name: "g" },
    becomes: { type: "tool", name: "g" },
  },
];
for (const { name, choice, becomes } of choices) {
  test(`a tool choice is accepted: ${name}`, () => {
    expect(
      decodeRequest(bodyWith({ tools: [named("f"), named("g")], tool_choice: choice })).toolChoice,
    ).toMatchObject(becomes);
  });
}

test("allowed_tools keeps only the tools that it names", () => {
  const allowed = {
    type: "allowed_tools",
    allowed_tools: { mode: "required", tools: [named("g")] },
  };
  const request = decodeRequest(
    bodyWith({ tools: [named("f"), named("g")], tool_choice: allowed }),
  );
  expect(request.tools.map((tool) => tool.name)).toEqual(["g"]);
  expect(request.toolChoice).toMatchObject({ type: "any" });
});

test("without tools, a choice that requires no call is omitted", () => {
  expect(decodeRequest(bodyWith({ tools: [], tool_choice: "auto" })).toolChoice).toBeUndefined();
});

test("tools and legacy functions become one list", () => {
  const request = decodeRequest(bodyWith({ tools: [named("f")], functions: [{ name: "g" }] }));
  expect(request.tools.map((tool) => tool.name)).toEqual(["f", "g"]);
});

const refused: { name: string; members: JsonObject; field: string }[] = [
  {
    name: "a custom tool of an unknown format",
    members: { tools: [{ type: "custom", custom: { name: "f", format: { type: "bnf" } } }] },
    field: "tools[0].custom.format.type",
  },
  {
    name: "a hosted tool",
    members: { tools: [named("f"), { type: "web_search_preview" }] },
    field: "tools[1].type",
  },
  {
    name: "a name with a space",
    members: { tools: [named("a b")] },
    field: "tools[0].function.name",
  },
  {
    name: "a name of 65 characters",
    members: { tools: [named("a".repeat(65))] },
    field: "tools[0].function.name",
  },
  {
    name: "no name",
    members: { tools: [{ type: "function", function: {} }] },
    field: "tools[0].function.name",
  },
  { name: "no function", members: { tools: [{ type: "function" }] }, field: "tools[0].function" },
  { name: "a bad legacy name", members: { functions: [{ name: "" }] }, field: "functions[0].name" },
  {
    name: "a description that is not a string",
    members: { tools: [{ type: "function", function: { name: "f", description: 4 } }] },
    field: "tools[0].function.description",
  },
  {
    name: "parameters that are not an object",
    members: { tools: [{ type: "function", function: { name: "f", parameters: [] } }] },
    field: "tools[0].function.parameters",
  },
  {
    name: "an unknown choice",
    members: { tools: [named("f")], tool_choice: "maybe" },
    field: "tool_choice",
  },
  {
    name: "a custom choice without a name",
    members: { tools: [named("f")], tool_choice: { type: "custom", custom: {} } },
    field: "tool_choice.custom.name",
  },
  {
    name: "a required call without tools",
    members: { tool_choice: "required" },
    field: "tool_choice",
  },
  {
    name: "a choice without a name",
    members: { tools: [named("f")], tool_choice: { type: "function", function: {} } },
    field: "tool_choice.function.name",
  },
  {
    name: "a legacy choice that is a list, beside a good one,",
    members: { tools: [named("f")], tool_choice: "auto", function_call: ["x"] },
    field: "function_call",
  },
];
for (const { name, members, field } of refused) {
  test(`${name} is rejected with its path`, () => {
    expect(errorOf(bodyWith(members)).facts.field).toBe(field);
  });
}
