// Client format × provider format: every combination gives the same answer at the same price.

import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  type GatewayWithProvider,
  openai,
  providerFormats,
  providerPaths,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";

const content = {
  thinking: { pieces: ["I look ", "it up."] },
  text: ["One ", "moment."],
  tool: { id: "toolu_clock1", name: "clock", input: ['{"zone":', '"Oslo"}'] },
  usage: { input: 100, output: 40, cacheRead: 30, cacheWrite: 20, thinking: 15 },
};
const schema = { type: "object" as const, properties: { zone: { type: "string" } } };
const question = "What time is it?";
const expected = {
  thinking: "I look it up.",
  text: "One moment.",
  call: { id: "toolu_clock1", name: "clock", input: { zone: "Oslo" } },
  stop: "tool",
};

/** The answer as a client parsed it, and the id of its request. */
type ClientResult = { answer: unknown; requestId: string };

const clients: Record<
  string,
  (stage: GatewayWithProvider, stream: boolean) => Promise<ClientResult>
> = {
  async native({ gateway }, stream) {
    const client = new Anthropic({ apiKey: gateway.v1, baseURL: gateway.address, maxRetries: 0 });
    const request = {
      model: "sonnet",
      max_tokens: 1000,
      messages: [{ role: "user" as const, content: question }],
      tools: [{ name: "clock", input_schema: schema }],
    };
    let requestId = "";
    const remember = (id: string | null | undefined) => {
      requestId = id ?? "";
    };
    const streamed = async () => {
      const sent = client.messages.stream(request);
      const message = await sent.finalMessage();
      remember(sent.request_id);
      return message;
    };
    const plain = async () => {
      const message = await client.messages.create(request);
      remember(message._request_id);
      return message;
    };
    const message = await (stream ? streamed() : plain());
    const [thinking, text, call] = message.content;
    return {
      requestId,
      answer: {
        thinking: thinking?.type === "thinking" && thinking.thinking,
        text: text?.type === "text" && text.text,
        call: call?.type === "tool_use" && { id: call.id, name: call.name, input: call.input },
        stop: message.stop_reason === "tool_use" && "tool",
      },
    };
  },

  async chat(stage, stream) {
    const request = {
      model: "sonnet",
      max_tokens: 1000,
      messages: [{ role: "user" as const, content: question }],
      tools: [{ type: "function" as const, function: { name: "clock", parameters: schema } }],
    };
    let requestId = "";
    const watching: typeof fetch = async (...given) => {
      const response = await fetch(...given);
      requestId = response.headers.get("x-request-id") ?? "";
      return response;
    };
    const { completions } = openai(stage, { fetch: watching }).chat;
    let thinking = "";
    const helper = stream ? completions.stream(request) : undefined;
    helper?.on("chunk", (chunk) => {
      // The helper keeps only the last fragment of members that it does not know.
      thinking += Object(chunk.choices[0]?.delta).reasoning_content ?? "";
    });
    const { choices } = helper
      ? await helper.finalChatCompletion()
      : await completions.create(request);
    const [choice] = choices;
    const [call] = choice?.message.tool_calls ?? [];
    return {
      requestId,
      answer: {
        thinking: thinking || Object(choice?.message).reasoning_content,
        text: choice?.message.content,
        call: call?.type === "function" && {
          id: call.id,
          name: call.function.name,
          input: JSON.parse(call.function.arguments),
        },
        stop: choice?.finish_reason === "tool_calls" && "tool",
      },
    };
  },

  async responses(stage, stream) {
    const request = {
      model: "sonnet",
      max_output_tokens: 1000,
      input: question,
      tools: [{ type: "function" as const, name: "clock", parameters: schema, strict: false }],
      reasoning: { summary: "auto" as const },
    };
    let requestId = "";
    const watching: typeof fetch = async (...given) => {
      const response = await fetch(...given);
      requestId = response.headers.get("x-request-id") ?? "";
      return response;
    };
    const { responses } = openai(stage, { fetch: watching });
    const response = await (stream
      ? responses.stream(request).finalResponse()
      : responses.create(request));
    const [thinking, text, call] = response.output;
    const [part] = text?.type === "message" ? text.content : [];
    return {
      requestId,
      answer: {
        thinking: thinking?.type === "reasoning" && thinking.summary[0]?.text,
        text: part?.type === "output_text" && part.text,
        call: call?.type === "function_call" && {
          id: call.call_id,
          name: call.name,
          input: JSON.parse(call.arguments),
        },
        stop: response.status === "completed" && "tool",
      },
    };
  },
};

for (const format of providerFormats) {
  describe(`with a ${format} provider`, () => {
    let stage: GatewayWithProvider;
    beforeAll(async () => {
      stage = await startGatewayWithProvider(format);
    });
    afterAll(() => stage.stop());

    for (const [client, send] of Object.entries(clients)) {
      for (const stream of [false, true]) {
        test(`a ${client} client gets ${stream ? "a stream" : "a plain answer"} of thinking, text and a call, and pays for each category`, async () => {
          stage.provider.play(stage.reply(content));
          const { answer, requestId } = await send(stage, stream);
          expect(answer).toEqual(expected);
          expect(stage.provider.requests.at(-1)?.path).toBe(providerPaths[format]);

          const { accountId, admin } = stage.gateway;
          const { receipt } = await admin.core.billing.getReceipt(
            { requestId, accountId },
            admin.call,
          );
          expect(receipt).toMatchObject({
            usage: {
              input: 100,
              output: 25,
              thinking: 15,
              cacheRead: 30,
              cacheWrite5m: 20,
              cacheWrite1h: 0,
            },
            outcome: Outcome.COMPLETED,
            basis: Basis.REPORTED,
          });
          expect(receipt?.chargedMicrocredits).toBe(
            100n * 420n + 25n * 2_100n + 15n * 2_100n + 30n * 42n + 20n * 525n,
          );
        });
      }

      test(`a ${client} client gets the error when the provider rejects its request`, async () => {
        const providerError = {
          type: "error",
          error: {
            type: "invalid_request_error",
            message: "messages: odd",
            code: null,
            param: null,
          },
        };
        stage.provider.play({
          status: 400,
          headers: { "content-type": "application/json" },
          writes: [JSON.stringify(providerError)],
        });
        await expect(send(stage, true)).rejects.toMatchObject({
          status: 400,
          message: expect.stringContaining("messages: odd"),
        });
      });
    }
  });
}

test("a request of the native command line client becomes a plain chat request to a chat provider", async () => {
  const stage = await startGatewayWithProvider("chat");
  try {
    stage.provider.play(stage.reply({ text: ["Done."] }));
    const cached = { cache_control: { type: "ephemeral" } };
    const response = await fetch(`${stage.gateway.address}/v1/messages?beta=true`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-api-key": stage.gateway.v2,
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
      },
      body: JSON.stringify({
        model: "claude-opus-5-5",
        max_tokens: 32000,
        stream: true,
        system: [
          { type: "text", text: "x-anthropic-billing-header: cc_version=2.1.329; cch=00000;" },
          { type: "text", text: "You are a coding agent.", ...cached },
          { type: "text", text: "Be brief.", ...cached },
        ],
        messages: [
          { role: "user", content: [{ type: "text", text: "List the files." }] },
          {
            role: "system",
            output_config: { effort: "high" },
            content: [{ type: "text", text: "Today is Monday.", ...cached }],
          },
          {
            role: "assistant",
            content: [
              { type: "thinking", thinking: "", signature: "c2ln" },
              { type: "tool_use", id: "toolu_01", name: "Bash", input: { command: "ls" } },
            ],
          },
          {
            role: "user",
            content: [
              {
                type: "tool_result",
                tool_use_id: "toolu_01",
                content: "a.ts",
                is_error: false,
                ...cached,
              },
            ],
          },
        ],
        tools: [
          {
            name: "Bash",
            description: "Runs a command.",
            input_schema: { type: "object", properties: {} },
            ...cached,
          },
        ],
        thinking: { type: "adaptive", display: "omitted" },
        context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
        output_config: { effort: "medium" },
        metadata: { user_id: "{}" },
        safeguards: [],
      }),
    });
    expect(response.status).toBe(200);
    const text = await response.text();
    expect(text).toContain('"text":"Done."');
    expect(text).toContain("event: message_stop");
    expect(stage.provider.requests.at(-1)?.body).toEqual({
      model: "provider-model",
      max_tokens: expect.any(Number),
      messages: [
        { role: "system", content: "You are a coding agent.\nBe brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "List the files." },
            { type: "text", text: "<system-reminder>\nToday is Monday.\n</system-reminder>" },
          ],
        },
        {
          role: "assistant",
          content: null,
          tool_calls: [
            {
              id: "toolu_01",
              type: "function",
              function: { name: "Bash", arguments: '{"command":"ls"}' },
            },
          ],
        },
        { role: "tool", tool_call_id: "toolu_01", content: "a.ts" },
      ],
      tools: [
        {
          type: "function",
          function: {
            name: "Bash",
            description: "Runs a command.",
            parameters: { type: "object", properties: {} },
          },
        },
      ],
      reasoning_effort: "medium",
      stream: true,
      stream_options: { include_usage: true },
    });
  } finally {
    await stage.stop();
  }
});
