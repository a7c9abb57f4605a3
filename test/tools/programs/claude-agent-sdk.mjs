// A loop with a tool, and a structured answer. The simulated model names the file after its field.
import { writeFile } from "node:fs/promises";
import { query } from "@anthropic-ai/claude-agent-sdk";

await writeFile("file_path", "sunny in Bern");
for await (const message of query({ prompt: "Use Read", options: { model: "haiku" } }))
  if (message.type === "result") console.log(message.result);

const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const options = { model: "haiku", outputFormat: { type: "json_schema", schema } };
for await (const message of query({ prompt: "A city", options }))
  if (message.type === "result") console.log("parsed:", message.structured_output.name);
