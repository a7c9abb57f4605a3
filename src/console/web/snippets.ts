// What a person pastes to use a key with a tool.

export type Tool = "curl" | "anthropic" | "openai" | "claudeCode";

/** `origin`: the address of the gateway. */
export function snippet(tool: Tool, secret: string, origin: string): string {
  switch (tool) {
    case "curl":
      return `curl ${origin}/v1/messages \\
  -H "x-api-key: ${secret}" \\
  -H "anthropic-version: 2023-06-01" \\
  -H "content-type: application/json" \\
  -d '{"model": "haiku", "max_tokens": 100,
       "messages": [{"role": "user", "content": "Hello"}]}'`;
    case "anthropic":
      return `import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: "${origin}",
  apiKey: "${secret}",
});
const message = await client.messages.create({
  model: "haiku",
  max_tokens: 100,
  messages: [{ role: "user", content: "Hello" }],
});
console.log(message.content);`;
    case "openai":
      return `import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "${origin}/v1",
  apiKey: "${secret}",
});
const completion = await client.chat.completions.create({
  model: "haiku",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(completion.choices[0].message.content);`;
    case "claudeCode":
      return `export ANTHROPIC_BASE_URL=${origin}
export ANTHROPIC_API_KEY=${secret}
export ANTHROPIC_DEFAULT_OPUS_MODEL=claude-opus-4-6
export ANTHROPIC_DEFAULT_SONNET_MODEL=claude-sonnet-4-6
export ANTHROPIC_DEFAULT_HAIKU_MODEL=claude-haiku-4-5
claude -p hello`;
  }
}
