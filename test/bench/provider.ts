// The provider of the bench: the fake provider of the tests, in a process of its own. The name of
// the model chooses the pace of the answer: `bench` at once, `bench-2` with a pause of 2 ms before
// each part, `bench-first20` at once after a pause of 20 ms, `bench-idle` with the first part at
// once and the rest after GET /release. It prints its port as JSON; GET /served returns the totals
// of requests and tokens that it served.

import type { JsonObject } from "@bufbuild/protobuf";
import { Gate, type ReceivedRequest, type Script, startFakeProvider } from "../support/provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
  responsesAnswer,
  responsesStream,
} from "../support/provider-answers.ts";

const usage = { input: 100, output: 100 };
const deltas = 100;
/** Deltas in one write without pauses: about what one read of a busy connection returns. */
const deltasPerWrite = 10;

const content: AnswerContent = {
  id: "msg_bench0123456789",
  model: "bench",
  text: Array.from({ length: deltas }, () => "four"),
  usage,
};
const answers = {
  native: plain(nativeAnswer(content)),
  chat: plain(chatAnswer(content)),
  responses: plain(responsesAnswer(content)),
};
const streams = {
  native: streamsOf(nativeStream(content), 2, 3),
  chat: streamsOf(chatStream(content), 1, 3),
  responses: streamsOf(responsesStream(content), 4, 4),
};

// Every answer is complete before the first request, so that no request pays for writing it.

/** With a length, so that the answer is one write without chunk framing. */
function plain({ headers, writes = [] }: Script): Script {
  const length = Buffer.byteLength(writes.map(String).join(""));
  return { headers: { ...headers, "content-length": String(length) }, writes };
}

/** The first and the last events go out together, as a provider sends them. */
function streamsOf({ writes = [] }: Script, opening: number, closing: number) {
  const headers = { "content-type": "text/event-stream" };
  const events = writes.map(String);
  const first = events.slice(0, opening).join("");
  const last = events.slice(-closing).join("");
  const parts = [first, ...events.slice(opening, -closing), last];
  const unpaced = Array.from({ length: Math.ceil(parts.length / deltasPerWrite) }, (_, index) =>
    parts.slice(index * deltasPerWrite, (index + 1) * deltasPerWrite).join(""),
  );
  return { headers, parts, unpaced };
}

const served = { requests: 0, input: 0, output: 0 };
let idle = new Gate();

function json(value: JsonObject): Script {
  return { headers: { "content-type": "application/json" }, writes: [JSON.stringify(value)] };
}

function respond({ path, bodyText }: ReceivedRequest): Script {
  if (path === "/served") return json({ ...served, waiting: idle.waiting });
  if (path === "/release") {
    idle.open();
    idle = new Gate();
    return json({});
  }
  served.requests += 1;
  served.input += usage.input;
  served.output += usage.output;
  const format = path.includes("chat")
    ? "chat"
    : path.includes("responses")
      ? "responses"
      : "native";
  // The text is searched, not parsed: a body can have 100 KB, and only two members matter.
  const [, pace = ""] = /"model":"[a-z]*-?([a-z]*\d*)/.exec(bodyText) ?? [];
  const pauseMs = Number.parseInt(pace, 10) || 0;
  if (!bodyText.includes('"stream":true')) {
    const answer = answers[format];
    if (pauseMs === 0) return answer;
    return { ...answer, writes: [{ pauseMs }, ...(answer.writes ?? [])] };
  }
  const { headers, parts, unpaced } = streams[format];
  if (pace === "idle") return { headers, writes: [unpaced[0] ?? "", idle, ...unpaced.slice(1)] };
  const first = Number(/^first(\d+)$/.exec(pace)?.[1] ?? 0);
  if (first > 0) return { headers, writes: [{ pauseMs: first }, ...unpaced] };
  return pauseMs > 0 ? { headers, writes: parts, pauseMs } : { headers, writes: unpaced };
}

const provider = await startFakeProvider({ record: false });
provider.always(respond);
console.log(JSON.stringify({ port: provider.port }));
