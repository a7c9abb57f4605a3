// A loop with a tool, and a structured answer.
import OpenAI from "openai";

const client = new OpenAI();
const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: ({ city }) => `sunny in ${city}`,
  },
};
const runner = client.chat.completions.runTools({
  model: "haiku",
  messages: [{ role: "user", content: "Ask weather for Bern" }],
  tools: [weather],
});
console.log(await runner.finalContent());

const schema = {
  type: "object",
  properties: { name: { type: "string" } },
  required: ["name"],
  additionalProperties: false,
};
const completion = await client.chat.completions.create({
  model: "haiku",
  messages: [{ role: "user", content: "A city" }],
  response_format: { type: "json_schema", json_schema: { name: "city", strict: true, schema } },
});
console.log("parsed:", JSON.parse(completion.choices[0].message.content).name);
