// The mock provider of the benchmark, a process of its own: answers in either format, and counts
// what it served. The model's name says how: `bench` at once, `bench-2` with 2 ms before each part,
// `bench-idle` with the start at once and the rest after POST /release. It prints its port; GET
// /served answers the totals.

import { createServer, type ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";

export const answerUsage = { input: 100, output: 100 };

const text = "four";
const served = { requests: 0, input: 0, output: 0, waiting: 0 };
/** Ends the idle streams. */
let release = Promise.withResolvers<void>();

const nativeUsage = { input_tokens: answerUsage.input, output_tokens: answerUsage.output };
const chatUsage = {
  prompt_tokens: answerUsage.input,
  completion_tokens: answerUsage.output,
  total_tokens: 200,
};

const nativeAnswer = JSON.stringify({
  id: "msg_bench0123456789",
  type: "message",
  role: "assistant",
  model: "bench",
  content: [{ type: "text", text: text.repeat(100) }],
  stop_reason: "end_turn",
  stop_sequence: null,
  usage: nativeUsage,
});
const chatAnswer = JSON.stringify({
  id: "chatcmpl-bench",
  object: "chat.completion",
  created: 1,
  model: "bench",
  choices: [
    { index: 0, message: { role: "assistant", content: text.repeat(100) }, finish_reason: "stop" },
  ],
  usage: chatUsage,
});

const native = (type: string, members: object) =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;
const chat = (members: object) =>
  `data: ${JSON.stringify({ id: "chatcmpl-bench", object: "chat.completion.chunk", created: 1, model: "bench", ...members })}\n\n`;
const chatDelta = (delta: object, finish: string | null = null) =>
  chat({ choices: [{ index: 0, delta, finish_reason: finish }] });

const nativeStream = [
  native("message_start", {
    message: {
      ...JSON.parse(nativeAnswer),
      content: [],
      stop_reason: null,
      usage: { ...nativeUsage, output_tokens: 0 },
    },
  }) + native("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
  ...Array.from({ length: 100 }, () =>
    native("content_block_delta", { index: 0, delta: { type: "text_delta", text } }),
  ),
  native("content_block_stop", { index: 0 }) +
    native("message_delta", {
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: answerUsage.output },
    }) +
    native("message_stop", {}),
];
const chatStream = [
  chatDelta({ role: "assistant" }),
  ...Array.from({ length: 100 }, () => chatDelta({ content: text })),
  `${chatDelta({}, "stop")}${chat({ choices: [], usage: chatUsage })}data: [DONE]\n\n`,
];

// Ten deltas a write: what one read of a busy connection brings.
const unpacedParts = (parts: readonly string[]) =>
  Array.from({ length: Math.ceil(parts.length / 10) }, (_, index) =>
    parts.slice(index * 10, index * 10 + 10).join(""),
  );
const streams = {
  native: { paced: nativeStream, unpaced: unpacedParts(nativeStream) },
  chat: { paced: chatStream, unpaced: unpacedParts(chatStream) },
};

async function play(
  response: ServerResponse,
  parts: readonly string[],
  paceMs: number,
  isIdle: boolean,
): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const [index, part] of parts.entries()) {
    response.write(part);
    if (paceMs > 0) await delay(paceMs);
    if (isIdle && index === 0) {
      served.waiting += 1;
      await release.promise;
      served.waiting -= 1;
    }
  }
  response.end();
}

const server = createServer((request, response) => {
  if (request.url === "/served") {
    response.end(JSON.stringify(served));
    return;
  }
  if (request.url === "/release") {
    release.resolve();
    release = Promise.withResolvers();
    response.end();
    return;
  }
  let body = "";
  request.setEncoding("utf8");
  request.on("data", (chunk: string) => {
    body += chunk;
  });
  request.on("end", async () => {
    const format = request.url?.includes("chat") ? "chat" : "native";
    served.requests += 1;
    served.input += answerUsage.input;
    served.output += answerUsage.output;
    const [, pace] = /"model":"[a-z]*-?([a-z]*\d*)/.exec(body) ?? [];
    const paceMs = Number.parseInt(pace ?? "", 10) || 0;
    if (!body.includes('"stream":true')) {
      if (paceMs > 0) await delay(paceMs);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(format === "chat" ? chatAnswer : nativeAnswer);
    } else {
      const parts = streams[format][paceMs > 0 ? "paced" : "unpaced"];
      play(response, parts, paceMs, pace === "idle").catch(() => response.destroy());
    }
  });
});
server.keepAliveTimeout = 60_000;
// Thousands of connections come at once.
server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === "object" ? address?.port : 0 }));
});
