// The tools that people connect, and what each needs: the one list behind docs/tools.md, the table
// in README.md and the console. `test/tools` installs each tool and runs what is written
// here; it also writes `tools-tried.json`.

/** A tool, an SDK or a command, and what a person writes to use it. */
export type Tool = {
  /** In addresses of the documents and in file names. */
  readonly id: string;
  readonly title: string;
  readonly group: "command line" | "SDK" | "coding tool" | "framework" | "gRPC";
  readonly format: "native" | "chat" | "responses" | "gRPC";
  /** Programs that must be there before. */
  readonly needs?: readonly string[];
  /** Shell commands, in a folder of one's own. Absent: nothing has to be installed. */
  readonly install?: string;
  /** Variables that the tool reads. */
  readonly env?: Readonly<Record<string, string>>;
  /** A file with the settings of the tool. */
  readonly settings?: File;
  /** The first request. */
  readonly plain: Sample;
  /** The same, as a stream. Absent: the tool streams by itself, or cannot. */
  readonly stream?: Sample;
  /** Advice in a sentence or two: the mistake that people make most. */
  readonly advice?: string;
  /** The reason why no test runs it. Absent: one does. */
  readonly untried?: string;
};

/** Texts may contain the marks that `blocksOf` replaces. */
export type File = { readonly path: string; readonly text: string };

/** `run`: a shell command. Absent: the tool has a window, and reads its settings by itself. */
export type Sample = { readonly file?: File; readonly run?: string };

/** What a person copies. Without a path, it goes into a shell. */
export type Block = { readonly path?: string; readonly text: string };

/** The addresses and the key to fill in. */
export type Place = {
  /** Address of the gateway without a slash at its end, with the path of a proxy, if it has one. */
  readonly origin: string;
  /** `host:port` of the gRPC listener. */
  readonly grpc: string;
  readonly key: string;
};

/** The blocks to copy for a tool, in their order, with addresses and key filled in. */
export function blocksOf(tool: Tool, place: Place, isStream = false): Block[] {
  const { file, run } = (isStream && tool.stream) || tool.plain;
  const variables = Object.entries(tool.env ?? {})
    .filter(([name, value]) => fillIn(value, place) !== `$${name}`)
    .map(([name, value]) => `export ${name}=${value}`);
  const commands = [...variables, ...(run === undefined ? [] : [run])].join("\n");
  const blocks: Block[] = [
    ...(tool.install === undefined ? [] : [{ text: tool.install }]),
    ...(tool.settings ? [tool.settings] : []),
    ...(file ? [file] : []),
    ...(commands === "" ? [] : [{ text: commands }]),
  ];
  return blocks.map(({ text, ...rest }) => ({ ...rest, text: fillIn(text, place) }));
}

/** A text of the list with its marks replaced. */
export function fillIn(text: string, { origin, grpc, key }: Place): string {
  return text.replaceAll("{origin}", origin).replaceAll("{grpc}", grpc).replaceAll("{key}", key);
}

/** A call of `/v1/messages`. `body`: JSON, as it stands between single quotes of a shell. */
function curlOf(body: string, option = ""): string {
  return `curl ${option}{origin}/v1/messages \\
  -H "x-api-key: $GATEWAY_KEY" -H "anthropic-version: 2023-06-01" \\
  -H "content-type: application/json" \\
  -d '${body}'`;
}

/** What sends this body of `/v1/messages`, to paste into a shell. */
export function curlThatSends(body: { readonly stream: boolean }, place: Place): string {
  const run = fillIn(curlOf("{body}", body.stream ? "-N " : ""), place);
  const quoted = JSON.stringify(body, undefined, 2).replaceAll("'", "'\\''");
  // Last: the text of a person may have a mark of this list, or one of `replace`.
  return `export GATEWAY_KEY=${place.key}\n${run.replace("{body}", () => quoted)}`;
}

const native = { ANTHROPIC_BASE_URL: "{origin}", ANTHROPIC_API_KEY: "{key}" };
const openai = { OPENAI_BASE_URL: "{origin}/v1", OPENAI_API_KEY: "{key}" };
const ownKey = { GATEWAY_KEY: "{key}" };

const withoutV1 = "Leave the address without /v1 at its end.";
const withV1 = "Keep /v1 at the end of the address.";

const python = (text: string): Sample => ({
  file: { path: "try.py", text },
  run: "python try.py",
});
const node = (text: string): Sample => ({ file: { path: "try.mjs", text }, run: "node try.mjs" });
const java = (text: string): Sample => ({
  file: { path: "src/main/java/Try.java", text },
  run: "mvn -q compile exec:java",
});
const go = (text: string): Sample => ({ file: { path: "main.go", text }, run: "go run ." });

const commands: readonly Tool[] = [
  {
    id: "curl",
    title: "curl",
    group: "command line",
    format: "native",
    env: ownKey,
    plain: {
      run: curlOf(`{"model": "haiku", "max_tokens": 1000,
       "messages": [{"role": "user", "content": "Hello"}]}`),
    },
    stream: {
      run: curlOf(
        `{"model": "haiku", "max_tokens": 1000, "stream": true,
       "messages": [{"role": "user", "content": "Hello"}]}`,
        "-N ",
      ),
    },
    advice:
      'Keep the double quotes around "x-api-key: …": in single quotes the shell sends $GATEWAY_KEY itself.',
  },
  {
    id: "llm",
    title: "llm",
    group: "command line",
    format: "chat",
    install: "pip install llm",
    env: { LLM_USER_PATH: ".", ...ownKey },
    settings: {
      path: "extra-openai-models.yaml",
      text: `- model_id: gateway
  model_name: haiku
  api_base: {origin}/v1
  api_key_name: gateway
`,
    },
    plain: { run: 'llm -m gateway --key "$GATEWAY_KEY" --no-stream "Hello"' },
    stream: { run: 'llm -m gateway --key "$GATEWAY_KEY" "Hello"' },
    advice:
      "The file belongs into the folder that `llm logs path` names, or that LLM_USER_PATH does.",
  },
];

const sdks: readonly Tool[] = [
  {
    id: "python-anthropic",
    title: "Python: anthropic",
    group: "SDK",
    format: "native",
    install: "pip install anthropic",
    env: native,
    plain: python(`from anthropic import Anthropic

message = Anthropic().messages.create(
    model="haiku",
    max_tokens=1000,
    messages=[{"role": "user", "content": "Hello"}],
)
print(message.content[0].text)
`),
    stream: python(`from anthropic import Anthropic

with Anthropic().messages.stream(
    model="haiku",
    max_tokens=1000,
    messages=[{"role": "user", "content": "Hello"}],
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
`),
    advice: withoutV1,
  },
  {
    id: "python-openai",
    title: "Python: openai",
    group: "SDK",
    format: "chat",
    install: "pip install openai",
    env: openai,
    plain: python(`from openai import OpenAI

completion = OpenAI().chat.completions.create(
    model="haiku",
    messages=[{"role": "user", "content": "Hello"}],
)
print(completion.choices[0].message.content)
`),
    stream: python(`from openai import OpenAI

with OpenAI().chat.completions.create(
    model="haiku",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
) as chunks:
    for chunk in chunks:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
print()
`),
    advice: withV1,
  },
  {
    id: "typescript-anthropic",
    title: "TypeScript: @anthropic-ai/sdk",
    group: "SDK",
    format: "native",
    install: "npm init --yes && npm install @anthropic-ai/sdk",
    env: native,
    plain: node(`import Anthropic from "@anthropic-ai/sdk";

const message = await new Anthropic().messages.create({
  model: "haiku",
  max_tokens: 1000,
  messages: [{ role: "user", content: "Hello" }],
});
console.log(message.content[0].text);
`),
    stream: node(`import Anthropic from "@anthropic-ai/sdk";

const stream = new Anthropic().messages.stream({
  model: "haiku",
  max_tokens: 1000,
  messages: [{ role: "user", content: "Hello" }],
});
stream.on("text", (text) => process.stdout.write(text));
await stream.done();
console.log();
`),
    advice: withoutV1,
  },
  {
    id: "typescript-openai",
    title: "TypeScript: openai",
    group: "SDK",
    format: "chat",
    install: "npm init --yes && npm install openai",
    env: openai,
    plain: node(`import OpenAI from "openai";

const completion = await new OpenAI().chat.completions.create({
  model: "haiku",
  messages: [{ role: "user", content: "Hello" }],
});
console.log(completion.choices[0].message.content);
`),
    stream: node(`import OpenAI from "openai";

const chunks = await new OpenAI().chat.completions.create({
  model: "haiku",
  messages: [{ role: "user", content: "Hello" }],
  stream: true,
});
for await (const { choices } of chunks)
  for (const { delta } of choices) process.stdout.write(delta.content ?? "");
console.log();
`),
    advice: withV1,
  },
  {
    id: "go-anthropic",
    title: "Go: anthropic-sdk-go",
    group: "SDK",
    format: "native",
    install: "go mod init try && go get github.com/anthropics/anthropic-sdk-go",
    env: native,
    plain: go(`package main

import (
	"context"
	"fmt"
	"log"

	"github.com/anthropics/anthropic-sdk-go"
)

func main() {
	client := anthropic.NewClient()
	message, err := client.Messages.New(context.Background(), anthropic.MessageNewParams{
		Model:     "haiku",
		MaxTokens: 1000,
		Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("Hello")),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message.Content[0].Text)
}
`),
    stream: go(`package main

import (
	"context"
	"fmt"
	"log"

	"github.com/anthropics/anthropic-sdk-go"
)

func main() {
	client := anthropic.NewClient()
	stream := client.Messages.NewStreaming(context.Background(), anthropic.MessageNewParams{
		Model:     "haiku",
		MaxTokens: 1000,
		Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("Hello")),
		},
	})
	for stream.Next() {
		fmt.Print(stream.Current().Delta.Text)
	}
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println()
}
`),
    advice: withoutV1,
  },
  {
    id: "go-openai",
    title: "Go: openai-go",
    group: "SDK",
    format: "chat",
    install: "go mod init try && go get github.com/openai/openai-go/v3",
    env: openai,
    plain: go(`package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/openai/openai-go/v3"
)

func main() {
	client := openai.NewClient()
	request := openai.ChatCompletionNewParams{
		Model:    "haiku",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
	completion, err := client.Chat.Completions.New(context.Background(), request)
	var refused *openai.Error
	if errors.As(err, &refused) {
		log.Fatal(refused.Message)
	} else if err != nil {
		log.Fatal(err)
	}
	fmt.Println(completion.Choices[0].Message.Content)
}
`),
    stream: go(`package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/openai/openai-go/v3"
)

func main() {
	client := openai.NewClient()
	request := openai.ChatCompletionNewParams{
		Model:    "haiku",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
	stream := client.Chat.Completions.NewStreaming(context.Background(), request)
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			fmt.Print(choice.Delta.Content)
		}
	}
	var refused *openai.Error
	if err := stream.Err(); errors.As(err, &refused) {
		log.Fatal(refused.Message)
	} else if err != nil {
		log.Fatal(err)
	}
	fmt.Println()
}
`),
    advice: `${withV1} Its errors print the status alone; their Message has the sentence.`,
  },
  {
    id: "java-openai",
    title: "Java: openai-java",
    group: "SDK",
    format: "chat",
    needs: ["mvn", "javac"],
    env: openai,
    settings: {
      path: "pom.xml",
      text: `<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>try</groupId>
  <artifactId>try</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <exec.mainClass>Try</exec.mainClass>
  </properties>
  <dependencies>
    <dependency>
      <groupId>com.openai</groupId>
      <artifactId>openai-java</artifactId>
      <version>RELEASE</version>
    </dependency>
  </dependencies>
</project>
`,
    },
    plain: java(`import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.models.chat.completions.ChatCompletionCreateParams;

class Try {
  public static void main(String[] args) {
    OpenAIClient client = OpenAIOkHttpClient.fromEnv();
    var params =
        ChatCompletionCreateParams.builder().model("haiku").addUserMessage("Hello").build();
    var completion = client.chat().completions().create(params);
    completion.choices().get(0).message().content().ifPresent(System.out::println);
  }
}
`),
    stream: java(`import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.models.chat.completions.ChatCompletionCreateParams;

class Try {
  public static void main(String[] args) {
    OpenAIClient client = OpenAIOkHttpClient.fromEnv();
    var params =
        ChatCompletionCreateParams.builder().model("haiku").addUserMessage("Hello").build();
    try (var chunks = client.chat().completions().createStreaming(params)) {
      chunks.stream()
          .flatMap(chunk -> chunk.choices().stream())
          .flatMap(choice -> choice.delta().content().stream())
          .forEach(System.out::print);
    }
    System.out.println();
  }
}
`),
    advice: `${withV1} In a build of your own, name the version that you tried in place of RELEASE.`,
  },
  {
    id: "rust-genai",
    title: "Rust: genai",
    group: "SDK",
    format: "chat",
    install: "cargo init --name try-genai && cargo add genai tokio --features tokio/full",
    env: ownKey,
    plain: {
      file: {
        path: "src/main.rs",
        text: `use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatRequest};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{Client, ModelIden, ServiceTarget};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let resolver = ServiceTargetResolver::from_resolver_fn(
        |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
            Ok(ServiceTarget {
                endpoint: Endpoint::from_static("{origin}/v1/"),
                auth: AuthData::from_env("GATEWAY_KEY"),
                model: ModelIden::new(AdapterKind::OpenAI, target.model.model_name),
            })
        },
    );
    let client = Client::builder().with_service_target_resolver(resolver).build()?;
    let request = ChatRequest::new(vec![ChatMessage::user("Hello")]);
    let answer = client.exec_chat("haiku", request, None).await?;
    println!("{}", answer.first_text().unwrap_or_default());
    Ok(())
}
`,
      },
      run: "cargo run --quiet",
    },
    advice: "The address ends with /v1/, with the slash: genai puts its paths behind it.",
  },
];

const codingTools: readonly Tool[] = [
  {
    id: "claude-code",
    title: "Claude Code",
    group: "coding tool",
    format: "native",
    install: "npm install -g @anthropic-ai/claude-code",
    env: {
      ...native,
      ANTHROPIC_DEFAULT_OPUS_MODEL: "claude-opus-4-6",
      ANTHROPIC_DEFAULT_SONNET_MODEL: "claude-sonnet-4-6",
      ANTHROPIC_DEFAULT_HAIKU_MODEL: "claude-haiku-4-5",
    },
    plain: { run: "claude -p Hello" },
    stream: { run: "claude -p Hello --output-format stream-json --verbose" },
    advice:
      "Do not set ANTHROPIC_AUTH_TOKEN, which is the vendor's own login. Its first interactive start asks whether to use the key: say yes. From the three names of models it knows their context size and features; without them it sends the names of its newest models, which also work. With few credits left, set MAX_THINKING_TOKENS=4000: each request then holds less.",
  },
  {
    id: "claude-agent-sdk",
    title: "Claude Agent SDK",
    group: "coding tool",
    format: "native",
    install: "npm init --yes && npm install @anthropic-ai/claude-agent-sdk",
    env: native,
    plain: node(`import { query } from "@anthropic-ai/claude-agent-sdk";

for await (const message of query({ prompt: "Hello", options: { model: "haiku" } }))
  if (message.type === "result") console.log(message.result);
`),
    stream: node(`import { query } from "@anthropic-ai/claude-agent-sdk";

const options = { model: "haiku", includePartialMessages: true };
for await (const message of query({ prompt: "Hello", options }))
  if (message.type === "stream_event" && message.event.type === "content_block_delta")
    process.stdout.write(message.event.delta.text ?? "");
console.log();
`),
    advice: withoutV1,
  },
  {
    id: "codex",
    title: "Codex",
    group: "coding tool",
    format: "responses",
    install: "npm install -g @openai/codex",
    env: ownKey,
    settings: {
      path: "~/.codex/config.toml",
      text: `model = "claude-opus-4-6"
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "{origin}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
`,
    },
    plain: { run: "codex exec --skip-git-repo-check Hello" },
    advice: withV1,
  },
  {
    id: "opencode",
    title: "opencode",
    group: "coding tool",
    format: "chat",
    install: "npm install -g opencode-ai",
    env: ownKey,
    settings: {
      path: "opencode.json",
      text: `{
  "provider": {
    "gateway": {
      "npm": "@ai-sdk/openai-compatible",
      "options": { "baseURL": "{origin}/v1", "apiKey": "{env:GATEWAY_KEY}" },
      "models": { "opus": { "limit": { "context": 1000000, "output": 128000 } } }
    }
  }
}
`,
    },
    plain: { run: "opencode run -m gateway/opus Hello" },
    advice: withV1,
  },
  {
    id: "qwen-code",
    title: "Qwen Code",
    group: "coding tool",
    format: "chat",
    install: "npm install -g @qwen-code/qwen-code",
    env: { ...openai, OPENAI_MODEL: "sonnet" },
    plain: { run: "qwen --auth-type openai -p Hello" },
    stream: { run: "qwen --auth-type openai -p Hello --output-format stream-json" },
    advice: withV1,
  },
  {
    id: "cline",
    title: "Cline",
    group: "coding tool",
    format: "chat",
    install: "npm install -g cline",
    env: ownKey,
    plain: {
      run: `cline auth -p openai-compatible -b {origin}/v1 -m sonnet -k "$GATEWAY_KEY"
cline "Say hello"`,
    },
    advice:
      "A prompt of one word is taken for a command. In its window (which is not tried) the same is in Settings → API Provider: OpenAI Compatible.",
  },
  {
    id: "continue",
    title: "Continue",
    group: "coding tool",
    format: "chat",
    install: "npm install -g @continuedev/cli",
    settings: {
      path: "config.yaml",
      text: `name: Gateway
version: 1.0.0
schema: v1
models:
  - name: sonnet
    provider: openai
    model: sonnet
    apiBase: {origin}/v1
    apiKey: {key}
    roles: [chat, edit, apply]
`,
    },
    plain: { run: "cn --config config.yaml -p Hello" },
    advice: "The extension reads the same file from ~/.continue/config.yaml.",
  },
  {
    id: "cursor",
    title: "Cursor",
    group: "coding tool",
    format: "chat",
    plain: {},
    advice:
      "Settings → Models → API Keys: the key as OpenAI API Key, and Override OpenAI Base URL: {origin}/v1; add the model sonnet. Cursor's servers call the address: it must be reachable from the internet, by https.",
    untried: "has a window",
  },
  {
    id: "zed",
    title: "Zed",
    group: "coding tool",
    format: "chat",
    env: ownKey,
    settings: {
      path: "~/.config/zed/settings.json",
      text: `{
  "language_models": {
    "openai_compatible": {
      "Gateway": {
        "api_url": "{origin}/v1",
        "available_models": [
          { "name": "sonnet", "max_tokens": 1000000, "max_output_tokens": 128000 }
        ]
      }
    }
  }
}
`,
    },
    plain: {},
    advice: "Zed reads the key from GATEWAY_API_KEY, or asks for it in the settings of its agent.",
    untried: "has a window",
  },
  {
    id: "aider",
    title: "Aider",
    group: "coding tool",
    format: "native",
    install: "pip install aider-chat",
    env: { ANTHROPIC_API_BASE: "{origin}", ANTHROPIC_API_KEY: "{key}" },
    plain: {
      run: `aider --model anthropic/claude-opus-4-6 --yes-always --no-git --no-stream \\
  --message Hello`,
    },
    stream: {
      run: "aider --model anthropic/claude-opus-4-6 --yes-always --no-git --message Hello",
    },
    advice: `${withoutV1} The variable is ANTHROPIC_API_BASE.`,
  },
];

const frameworks: readonly Tool[] = [
  {
    id: "langchain-python",
    title: "LangChain, Python",
    group: "framework",
    format: "native",
    install: "pip install langchain-anthropic",
    env: native,
    plain: python(`from langchain_anthropic import ChatAnthropic

print(ChatAnthropic(model="haiku", max_tokens=1000).invoke("Hello").text)
`),
    stream: python(`from langchain_anthropic import ChatAnthropic

for chunk in ChatAnthropic(model="haiku", max_tokens=1000).stream("Hello"):
    print(chunk.text, end="", flush=True)
print()
`),
    advice: "langchain-openai works as well, with OPENAI_BASE_URL={origin}/v1.",
  },
  {
    id: "langchain-js",
    title: "LangChain, JS",
    group: "framework",
    format: "chat",
    install: "npm init --yes && npm install @langchain/openai @langchain/core",
    env: openai,
    plain: node(`import { ChatOpenAI } from "@langchain/openai";

const { text } = await new ChatOpenAI({ model: "haiku" }).invoke("Hello");
console.log(text);
`),
    stream: node(`import { ChatOpenAI } from "@langchain/openai";

for await (const chunk of await new ChatOpenAI({ model: "haiku" }).stream("Hello"))
  process.stdout.write(chunk.text);
console.log();
`),
    advice: withV1,
  },
  {
    id: "litellm",
    title: "LiteLLM",
    group: "framework",
    format: "chat",
    install: "pip install litellm",
    env: openai,
    plain: python(`from litellm import completion

answer = completion(model="openai/haiku", messages=[{"role": "user", "content": "Hello"}])
print(answer.choices[0].message.content)
`),
    stream: python(`from litellm import completion

chunks = completion(
    model="openai/haiku", messages=[{"role": "user", "content": "Hello"}], stream=True
)
for chunk in chunks:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
`),
    advice:
      "Models begin with openai/ and the address ends with /v1; with anthropic/ it is ANTHROPIC_API_BASE={origin}.",
  },
  {
    id: "pydantic-ai",
    title: "pydantic-ai",
    group: "framework",
    format: "chat",
    install: 'pip install "pydantic-ai-slim[openai]"',
    env: openai,
    plain: python(`from pydantic_ai import Agent

print(Agent("openai-chat:haiku").run_sync("Hello").output)
`),
    stream: python(`import asyncio

from pydantic_ai import Agent


async def main():
    async with Agent("openai-chat:haiku").run_stream("Hello") as answer:
        async for text in answer.stream_text(delta=True):
            print(text, end="", flush=True)
    print()


asyncio.run(main())
`),
    advice: withV1,
  },
  {
    id: "openai-agents",
    title: "OpenAI Agents SDK",
    group: "framework",
    format: "responses",
    install: "pip install openai-agents",
    env: { ...openai, OPENAI_AGENTS_DISABLE_TRACING: "1" },
    plain: python(`from agents import Agent, Runner

agent = Agent(name="Greeter", model="haiku")
print(Runner.run_sync(agent, "Hello").final_output)
`),
    stream: python(`import asyncio

from agents import Agent, Runner


async def main():
    result = Runner.run_streamed(Agent(name="Greeter", model="haiku"), "Hello")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            print(event.data.delta, end="", flush=True)
    print()


asyncio.run(main())
`),
    advice: "Without OPENAI_AGENTS_DISABLE_TRACING it sends its traces, and the key, to OpenAI.",
  },
  {
    id: "instructor",
    title: "Instructor",
    group: "framework",
    format: "chat",
    install: "pip install instructor",
    env: openai,
    plain: python(`import instructor
from openai import OpenAI
from pydantic import BaseModel


class Greeting(BaseModel):
    text: str


greeting = instructor.from_openai(OpenAI()).create(
    model="haiku",
    response_model=Greeting,
    messages=[{"role": "user", "content": "Hello"}],
)
print(greeting)
`),
    advice: withV1,
  },
  {
    id: "dspy",
    title: "DSPy",
    group: "framework",
    format: "chat",
    install: "pip install dspy",
    env: openai,
    plain: python(`import dspy

lm = dspy.LM("openai/haiku", max_tokens=4000, cache=False)
print(lm("Hello")[0])
`),
    advice:
      "Models begin with openai/, as with LiteLLM. Without cache=False it answers from its disk.",
  },
  {
    id: "llamaindex",
    title: "LlamaIndex",
    group: "framework",
    format: "chat",
    install: "pip install llama-index-llms-openai-like",
    env: openai,
    plain: python(`import os

from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    is_chat_model=True,
    context_window=200000,
)
print(llm.complete("Hello"))
`),
    stream: python(`import os

from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    is_chat_model=True,
    context_window=200000,
)
for part in llm.stream_complete("Hello"):
    print(part.delta or "", end="", flush=True)
print()
`),
    advice: "The class OpenAI takes names of OpenAI's models alone; OpenAILike takes any.",
  },
  {
    id: "smolagents",
    title: "smolagents",
    group: "framework",
    format: "chat",
    install: 'pip install "smolagents[openai]"',
    env: openai,
    plain: python(`import os

from smolagents import OpenAIModel

model = OpenAIModel(
    model_id="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
print(model([{"role": "user", "content": "Hello"}]).content)
`),
    stream: python(`import os

from smolagents import OpenAIModel

model = OpenAIModel(
    model_id="haiku",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
for delta in model.generate_stream([{"role": "user", "content": "Hello"}]):
    print(delta.content or "", end="", flush=True)
print()
`),
    advice: withV1,
  },
  {
    id: "ai-sdk",
    title: "Vercel AI SDK",
    group: "framework",
    format: "native",
    install: "npm init --yes && npm install ai @ai-sdk/anthropic",
    env: { ANTHROPIC_BASE_URL: "{origin}/v1", ANTHROPIC_API_KEY: "{key}" },
    plain: node(`import { anthropic } from "@ai-sdk/anthropic";
import { generateText } from "ai";

const { text } = await generateText({ model: anthropic("haiku"), prompt: "Hello" });
console.log(text);
`),
    stream: node(`import { anthropic } from "@ai-sdk/anthropic";
import { streamText } from "ai";

for await (const text of streamText({ model: anthropic("haiku"), prompt: "Hello" }).textStream)
  process.stdout.write(text);
console.log();
`),
    advice:
      "Unlike the vendor's own SDK, its address ends with /v1. @ai-sdk/openai-compatible works as well.",
  },
];

const generateJson = `{"model": "haiku", "maxTokens": 1000, "messages": [
  {"role": "ROLE_USER", "content": [{"text": {"text": "Hello"}}]}]}`;

const rpcTools: readonly Tool[] = [
  {
    id: "grpc-python",
    title: "gRPC, Python",
    group: "gRPC",
    format: "gRPC",
    install: `pip install grpcio grpcio-tools
curl -so gateway.binpb {origin}/protos/descriptor.binpb
python -m grpc_tools.protoc --descriptor_set_in=gateway.binpb --python_out=. --grpc_python_out=. \\
  buf/validate/validate.proto gateway/billing/v1/receipt.proto \\
  gateway/common/v1/{actor,family,left_out,options,roles,usage}.proto \\
  gateway/inference/v1/{content,event,inference}.proto`,
    env: ownKey,
    plain: python(`import os

import grpc
from gateway.inference.v1 import content_pb2, inference_pb2, inference_pb2_grpc

request = inference_pb2.GenerateRequest(model="haiku", max_tokens=1000)
message = request.messages.add(role=content_pb2.ROLE_USER)
message.content.add().text.text = "Hello"
call = [("authorization", "Bearer " + os.environ["GATEWAY_KEY"])]
with grpc.insecure_channel("{grpc}") as channel:
    service = inference_pb2_grpc.InferenceServiceStub(channel)
    for part in service.Generate(request, metadata=call):
        print(part.WhichOneof("kind"), end=" ")
print()
`),
    advice: "Every answer is a stream: first the admission, then events, at the end the receipt.",
  },
  {
    id: "grpc-go",
    title: "gRPC, Go",
    group: "gRPC",
    format: "gRPC",
    install: `go install google.golang.org/protobuf/cmd/protoc-gen-go@latest
go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@latest
go install github.com/bufbuild/buf/cmd/buf@latest
curl -so gateway.binpb {origin}/protos/descriptor.binpb
export PATH="$PATH:$(go env GOPATH)/bin"
buf generate gateway.binpb --path gateway --template '{"version": "v2", "plugins": [
  {"local": "protoc-gen-go", "out": ".", "opt": "module=model-gateway"},
  {"local": "protoc-gen-go-grpc", "out": ".", "opt": "module=model-gateway"}]}'
go mod init model-gateway && go mod tidy`,
    env: ownKey,
    plain: go(`package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	inference "model-gateway/gateway/inference/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

func main() {
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient("{grpc}", plaintext)
	if err != nil {
		log.Fatal(err)
	}
	key := "Bearer " + os.Getenv("GATEWAY_KEY")
	call := metadata.AppendToOutgoingContext(context.Background(), "authorization", key)
	text := &inference.Block_Text{Text: &inference.TextBlock{Text: "Hello"}}
	limit := uint32(1000)
	request := &inference.GenerateRequest{
		Model:     "haiku",
		MaxTokens: &limit,
		Messages: []*inference.Message{{
			Role:    inference.Role_ROLE_USER,
			Content: []*inference.Block{{Kind: text}},
		}},
	}
	stream, err := inference.NewInferenceServiceClient(connection).Generate(call, request)
	for err == nil {
		var part *inference.GenerateResponse
		if part, err = stream.Recv(); err == nil {
			fmt.Printf("%T ", part.Kind)
		}
	}
	if err != io.EOF {
		log.Fatal(err)
	}
	fmt.Println()
}
`),
    advice: "The import path model-gateway is free to choose: buf's managed mode replaces it.",
  },
  {
    id: "grpc-java",
    title: "gRPC, Java",
    group: "gRPC",
    format: "gRPC",
    needs: ["protoc", "grpc_java_plugin", "javac"],
    install: `curl -so gateway.binpb {origin}/protos/descriptor.binpb
protoc --descriptor_set_in=gateway.binpb --java_out=. --grpc-java_out=. \\
  --plugin=protoc-gen-grpc-java="$(command -v grpc_java_plugin)" \\
  buf/validate/validate.proto gateway/billing/v1/receipt.proto \\
  gateway/common/v1/{actor,family,left_out,options,roles,usage}.proto \\
  gateway/inference/v1/{content,event,inference}.proto
javac -nowarn -cp "/usr/share/java/*" -d classes $(find gateway -name "*.java")`,
    env: ownKey,
    plain: {
      file: {
        path: "Try.java",
        text: `import gateway.inference.v1.Block;
import gateway.inference.v1.GenerateRequest;
import gateway.inference.v1.InferenceServiceGrpc;
import gateway.inference.v1.Message;
import gateway.inference.v1.Role;
import gateway.inference.v1.TextBlock;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;

class Try {
  public static void main(String[] args) {
    var headers = new Metadata();
    var name = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
    headers.put(name, "Bearer " + System.getenv("GATEWAY_KEY"));
    var channel = ManagedChannelBuilder.forTarget("{grpc}").usePlaintext().build();
    var service =
        InferenceServiceGrpc.newBlockingStub(channel)
            .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    var block = Block.newBuilder().setText(TextBlock.newBuilder().setText("Hello"));
    var message = Message.newBuilder().setRole(Role.ROLE_USER).addContent(block);
    var request =
        GenerateRequest.newBuilder().setModel("haiku").setMaxTokens(1000).addMessages(message);
    var answer = service.generate(request.build());
    answer.forEachRemaining(part -> System.out.println(part.getKindCase()));
    channel.shutdownNow();
  }
}
`,
      },
      run: `javac -cp "classes:/usr/share/java/*" -d classes Try.java
java -cp "classes:/usr/share/java/*" Try`,
    },
    advice:
      "The paths are those of Debian's default-jdk-headless, protobuf-compiler, protobuf-compiler-grpc-java-plugin, libgrpc-java, libnetty-java and libperfmark-java.",
  },
  {
    id: "grpc-node",
    title: "gRPC, Node",
    group: "gRPC",
    format: "gRPC",
    install: `npm init --yes && npm pkg set type=module
npm install @connectrpc/connect @connectrpc/connect-node @bufbuild/protobuf \\
  @bufbuild/buf @bufbuild/protoc-gen-es
curl -so gateway.binpb {origin}/protos/descriptor.binpb
npx buf generate gateway.binpb --template '{"version": "v2", "plugins": [
  {"local": "protoc-gen-es", "out": ".", "opt": "import_extension=js"}]}'`,
    env: ownKey,
    plain: node(`import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Role } from "./gateway/inference/v1/content_pb.js";
import { InferenceService } from "./gateway/inference/v1/inference_pb.js";

const transport = createGrpcTransport({ baseUrl: "http://{grpc}" });
const request = {
  model: "haiku",
  maxTokens: 1000,
  messages: [{ role: Role.USER, content: [{ kind: { case: "text", value: { text: "Hello" } } }] }],
};
const call = { headers: { authorization: \`Bearer \${process.env.GATEWAY_KEY}\` } };
for await (const { kind } of createClient(InferenceService, transport).generate(request, call))
  console.log(kind.case);
`),
  },
  {
    id: "grpcurl",
    title: "grpcurl",
    group: "gRPC",
    format: "gRPC",
    install: "go install github.com/fullstorydev/grpcurl/cmd/grpcurl@latest",
    env: ownKey,
    plain: {
      run: `"$(go env GOPATH)/bin/grpcurl" -plaintext -H "authorization: Bearer $GATEWAY_KEY" \\
  -d '${generateJson}' \\
  {grpc} gateway.inference.v1.InferenceService/Generate`,
    },
    advice: "It reads the services by reflection, on the gRPC port alone.",
  },
  {
    id: "buf-curl",
    title: "buf curl",
    group: "gRPC",
    format: "gRPC",
    install: "npm init --yes && npm install @bufbuild/buf",
    env: ownKey,
    plain: {
      run: `npx buf curl --protocol grpc --http2-prior-knowledge \\
  -H "authorization: Bearer $GATEWAY_KEY" -d '${generateJson}' \\
  http://{grpc}/gateway.inference.v1.InferenceService/Generate`,
    },
    advice: "Over the HTTP port: --schema {origin}/protos/descriptor.binpb, without --protocol.",
  },
];

/** All tools, in the order in which they are shown. */
export const tools: readonly Tool[] = [
  ...commands,
  ...sdks,
  ...codingTools,
  ...frameworks,
  ...rpcTools,
];
