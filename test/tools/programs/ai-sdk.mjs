// A loop with a tool, and a structured answer.
import { anthropic } from "@ai-sdk/anthropic";
import { generateText, jsonSchema, Output, stepCountIs, tool } from "ai";

const schemaOf = (name) =>
  jsonSchema({
    type: "object",
    properties: { [name]: { type: "string" } },
    required: [name],
    additionalProperties: false,
  });
const model = anthropic("haiku");
const weather = tool({
  description: "The weather of a city",
  inputSchema: schemaOf("city"),
  execute: async ({ city }) => `sunny in ${city}`,
});
const { text } = await generateText({
  model,
  tools: { weather },
  stopWhen: stepCountIs(3),
  prompt: "Ask weather for Bern",
});
console.log(text);

const { output } = await generateText({
  model: anthropic("claude-sonnet-4-6"),
  output: Output.object({ schema: schemaOf("name") }),
  prompt: "A city",
});
console.log("parsed:", output.name);
