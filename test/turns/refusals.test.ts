// A refusal in words, an answer that a filter cut, and one that reached its limit: each provider's
// form in each client's, whole and streamed, read by the official SDK.

import type { JsonObject } from "@bufbuild/protobuf";
import type OpenAI from "openai";
import { ContentFilterFinishReasonError, LengthFinishReasonError } from "openai/error";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  type GatewayWithProvider,
  openai,
  type ProviderFormat,
  providerFormats,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import type { Respond, Script } from "../support/provider.ts";
import { nativeAnswer, nativeStream, sseEvent } from "../support/provider-answers.ts";

const endings = ["words", "filter", "length"] as const;
type Ending = (typeof endings)[number];

const [words, cut] = ["I cannot help with that.", '{"city":"Os'];
const json = { "content-type": "application/json" };
const sse = { "content-type": "text/event-stream" };

/** An answer of a provider, whole or streamed. */
type Scripts = { readonly whole: Script; readonly streamed: Script };

function chat(ending: Ending): Scripts {
  const reason = { words: "stop", filter: "content_filter", length: "length" }[ending];
  const said = ending === "words" ? { content: null, refusal: words } : { content: cut };
  const head = { id: "c", created: 1, model: "m" };
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
  const choice = { index: 0, message: { role: "assistant", ...said }, finish_reason: reason };
  const chunk = (delta: JsonObject, finish_reason: string | null, more: JsonObject = {}) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason }], ...more })}\n\n`;
  return {
    whole: { headers: json, writes: [JSON.stringify({ ...head, choices: [choice], usage })] },
    streamed: {
      headers: sse,
      writes: [
        chunk({ role: "assistant", content: "" }, null),
        ...Object.entries(said).flatMap(([name, text]) =>
          text === null
            ? []
            : [chunk({ [name]: text.slice(0, 5) }, null), chunk({ [name]: text.slice(5) }, null)],
        ),
        chunk({}, reason, { usage }),
        "data: [DONE]\n\n",
      ],
    },
  };
}

function responses(ending: Ending): Scripts {
  const isWords = ending === "words";
  const [member, text] = isWords ? ["refusal", words] : ["text", cut];
  const type = isWords ? "refusal" : "output_text";
  const part = { type, [member]: text, ...(!isWords && { annotations: [] }) };
  const status = isWords ? "completed" : "incomplete";
  const message = { id: "msg_1", type: "message", role: "assistant", status, content: [part] };
  const reason = ending === "filter" ? "content_filter" : "max_output_tokens";
  const response = {
    id: "resp_1",
    object: "response",
    created_at: 1,
    model: "m",
    status,
    incomplete_details: isWords ? null : { reason },
    output: [message],
    usage: { input_tokens: 3, output_tokens: 2, total_tokens: 5 },
  };
  const place = { output_index: 0, content_index: 0, item_id: "msg_1" };
  const begun = { ...response, status: "in_progress", incomplete_details: null, output: [] };
  const events: JsonObject[] = [
    { type: "response.created", response: begun },
    { type: "response.output_item.added", output_index: 0, item: { ...message, content: [] } },
    { type: "response.content_part.added", ...place, part: { ...part, [member]: "" } },
    { type: `response.${type}.delta`, ...place, delta: text.slice(0, 5) },
    { type: `response.${type}.delta`, ...place, delta: text.slice(5) },
    { type: `response.${type}.done`, ...place, [member]: text },
    { type: "response.content_part.done", ...place, part },
    { type: "response.output_item.done", output_index: 0, item: message },
    { type: `response.${status}`, response },
  ];
  return {
    whole: { headers: json, writes: [JSON.stringify(response)] },
    streamed: {
      headers: sse,
      writes: events.map(({ type: name, ...members }, sequence_number) =>
        sseEvent(String(name), { sequence_number, ...members }),
      ),
    },
  };
}

/** A native provider refuses by its stop reason alone. */
function native(ending: Ending): Scripts {
  const stopReason = ending === "length" ? "max_tokens" : "refusal";
  const content = { text: [cut.slice(0, 5), cut.slice(5)], stopReason };
  return { whole: nativeAnswer(content), streamed: nativeStream(content) };
}

const scripts = { native, chat, responses };

/** What a client sees of an ending. A native refusal is one that cut the answer. */
type Seen = { readonly text: string; readonly refusal: string; readonly reason: string };
function expected(client: ProviderFormat, provider: ProviderFormat, ending: Ending): Seen {
  const isWords = ending === "words" && provider !== "native";
  if (client === "native")
    return {
      text: isWords ? words : cut,
      refusal: "",
      reason: ending === "length" ? "max_tokens" : "refusal",
    };
  const cutReasons = {
    chat: { length: "length", filter: "content_filter" },
    responses: { length: "max_output_tokens", filter: "content_filter" },
  }[client];
  const stopped = client === "chat" ? "stop" : "completed";
  const reason = isWords ? stopped : cutReasons[ending === "length" ? "length" : "filter"];
  return { text: isWords ? "" : cut, refusal: isWords ? words : "", reason };
}

const city = z.object({ city: z.string() });
const messages = [{ role: "user" as const, content: "Where?" }];

for (const provider of providerFormats) {
  describe(`from a ${provider} provider`, () => {
    let stage: GatewayWithProvider;
    beforeAll(async () => {
      stage = await startGatewayWithProvider(provider);
    });
    afterAll(() => stage.stop());

    /** A client of the gateway, whose provider ends its next answers so. */
    const clientFor = (ending: Ending): OpenAI => {
      const { whole, streamed } = scripts[provider](ending);
      const reply: Respond = ({ body }) => (body.stream === true ? streamed : whole);
      stage.provider.always(reply);
      return openai(stage);
    };

    test.each(endings)("%s, as a native client reads it", async (ending) => {
      clientFor(ending);
      for (const stream of [false, true]) {
        const answer = await stage.post({ model: "opus", max_tokens: 64, messages, stream });
        const body = await answer.text();
        const { text, reason } = expected("native", provider, ending);
        expect(body).toContain(`"stop_reason":"${reason}"`);
        const deltas = [...body.matchAll(/"text":("(?:[^"\\]|\\.)*")/g)];
        expect(deltas.map(([, one = ""]) => JSON.parse(one)).join("")).toBe(text);
      }
    });

    test.each(endings)("%s, as a client of chat reads it", async (ending) => {
      const client = clientFor(ending);
      const seen = expected("chat", provider, ending);
      const request = { model: "opus", messages };
      const answer = await client.chat.completions.create(request);
      const [choice] = answer.choices;
      expect(choice?.message).toMatchObject({
        content: seen.text === "" ? null : seen.text,
        ...(seen.refusal !== "" && { refusal: seen.refusal }),
      });
      expect(choice?.finish_reason).toBe(seen.reason);

      const streamed: Seen[] = [];
      for await (const chunk of await client.chat.completions.create({ ...request, stream: true }))
        for (const { delta, finish_reason } of chunk.choices)
          streamed.push({
            text: delta.content ?? "",
            refusal: delta.refusal ?? "",
            reason: finish_reason ?? "",
          });
      const join = (name: keyof Seen) => streamed.map((one) => one[name]).join("");
      expect({ text: join("text"), refusal: join("refusal"), reason: join("reason") }).toEqual(
        seen,
      );

      const parsed = client.chat.completions.parse({
        ...request,
        response_format: zodResponseFormat(city, "city"),
      });
      if (seen.reason === "length") await expect(parsed).rejects.toThrow(LengthFinishReasonError);
      else if (seen.reason === "content_filter")
        await expect(parsed).rejects.toThrow(ContentFilterFinishReasonError);
      else {
        const { message } = (await parsed).choices[0] ?? {};
        expect([message?.parsed, message?.refusal]).toEqual([null, words]);
      }
    });

    test.each(endings)("%s, as a client of Responses reads it", async (ending) => {
      const client = clientFor(ending);
      const seen = expected("responses", provider, ending);
      const request = { model: "opus", input: "Where?" };
      const seenIn = (response: OpenAI.Responses.Response): Seen => {
        const parts = response.output.flatMap((item) =>
          item.type === "message" ? item.content : [],
        );
        const of = (type: string) =>
          parts.map((part) =>
            part.type !== type ? "" : "text" in part ? part.text : part.refusal,
          );
        return {
          text: of("output_text").join(""),
          refusal: of("refusal").join(""),
          reason: response.incomplete_details?.reason ?? response.status ?? "",
        };
      };
      expect(seenIn(await client.responses.create(request))).toEqual(seen);

      const stream = client.responses.stream(request);
      const deltas: string[] = [];
      stream.on("response.refusal.delta", ({ delta }) => deltas.push(delta));
      expect(seenIn(await stream.finalResponse())).toEqual(seen);
      expect(deltas.join("")).toBe(seen.refusal);

      if (seen.text !== "") return;
      const format = zodTextFormat(city, "city");
      const parsed = await client.responses.parse({ ...request, text: { format } });
      expect([parsed.output_parsed, seenIn(parsed)]).toEqual([null, seen]);
    });
  });
}
