// A loop with a tool, and a structured answer.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic();
const common = { model: "haiku", max_tokens: 1000 };
const tool = {
  name: "weather",
  description: "The weather of a city",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  run: ({ city }) => `sunny in ${city}`,
  parse: (input) => input,
};
const messages = [{ role: "user", content: "Ask weather for Bern" }];
const runner = client.beta.messages.toolRunner({ ...common, messages, tools: [tool] });
const last = await runner;
console.log(last.content[0].text);

const { jsonSchemaOutputFormat } = await import("@anthropic-ai/sdk/helpers/json-schema");
const format = jsonSchemaOutputFormat({
  type: "object",
  properties: { name: { type: "string" } },
  required: ["name"],
  additionalProperties: false,
});
const { parsed_output: parsed } = await client.messages.parse({
  ...common,
  messages: [{ role: "user", content: "A city" }],
  output_config: { format },
});
console.log("parsed:", parsed.name);
