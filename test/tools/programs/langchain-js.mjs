// A loop with a tool, and a structured answer.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";

const schemaOf = (name) => ({
  type: "object",
  properties: { [name]: { type: "string" } },
  required: [name],
  additionalProperties: false,
});
const weather = tool(({ city }) => `sunny in ${city}`, {
  name: "weather",
  description: "The weather of a city",
  schema: schemaOf("city"),
});
const model = new ChatOpenAI({ model: "haiku" });
const bound = model.bindTools([weather]);
const messages = [new HumanMessage("Ask weather for Bern")];
const first = await bound.invoke(messages);
messages.push(first);
for (const call of first.tool_calls) messages.push(await weather.invoke(call));
console.log((await bound.invoke(messages)).text);

const parsed = await model
  .withStructuredOutput(schemaOf("name"), { name: "city", method: "jsonSchema" })
  .invoke("A city");
console.log("parsed:", parsed.name);
