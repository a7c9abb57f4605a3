// Amazon Bedrock: the native API at two addresses, and the older one that invokes a model by its
// path and answers in frames of its own.

import type { BedrockSettings } from "../config/catalog.ts";
import { createAwsParser } from "../formats/aws-event-stream.ts";
import type { AnswerCodec } from "../formats/codec.ts";
import * as native from "../formats/native/native.ts";
import { betaTables } from "./betas.ts";
import { cloudErrorOf } from "./cloud-failures.ts";
import {
  type CloudParts,
  cloudMessages,
  countingBelow,
  type Place,
  vendorHeaders,
} from "./cloud-messages.ts";
import { failed, readErrorBody } from "./failures.ts";
import type { Feature } from "./provider.ts";
import type { Surface } from "./surface.ts";

export function bedrockSurface(settings: BedrockSettings, parts: CloudParts): Surface {
  const { api, endpoint } = settings;
  const place = api === "invoke" ? invoke(parts) : endpoint === "mantle" ? mantle : runtime;
  return cloudMessages(place, settings, parts);
}

const path = "/anthropic/v1/messages";

/** Of the newest models alone these have no schemas yet, but for mantle. */
const newest = /claude-[a-z]+-5(?!\d)/;

const supports = (feature: Feature, model: string): boolean =>
  (feature === "structuredOutput" || feature === "strictTools") && !newest.test(model);

const runtime: Place = {
  betas: betaTables.bedrock,
  foldsSystem: true,
  write: ({ body, betas }) => ({ path, headers: vendorHeaders(betas), body }),
  supports,
  // Bedrock answers 200 at paths that it does not know.
  failureOf(answer) {
    const { status, reason } = answer;
    const isUnknown = cloudErrorOf(answer) === "unknownoperation";
    if (status !== 404 && !isUnknown) return undefined;
    const alarm = "the provider has no messages API for this model or region: set api: invoke";
    return { ...failed(status, { alarm }), ...(reason !== undefined && { reason }) };
  },
};

const mantle: Place = {
  betas: betaTables.mantle,
  write: runtime.write,
  counting: countingBelow(path),
  supports: (feature) => feature === "structuredOutput" || feature === "strictTools",
};

const invokeCodec: AnswerCodec = {
  createEventDecoder: (_, source) => native.createEventDecoder(false, source, createAwsParser()),
  decodeAnswer: native.decodeAnswer,
};

/** Not of a message about a place in the request: names in it are the client's. */
const saysCountless = /^(?!\w+[.:]).*(?:support.{0,20}count|count.{0,20}not support)/i;

/** After a refusal, a model is not asked for a count again for so long. */
const countlessMs = 3_600_000;

function invoke({ clock }: CloudParts): Place {
  const anthropic_version = "bedrock-2023-05-31";
  /** Models that cannot count, and until when that is believed. */
  const countless = new Map<string, number>();
  const pathOf = (model: string, action: string) => `/model/${encodeURIComponent(model)}/${action}`;
  return {
    codec: invokeCodec,
    accept: "application/json",
    betas: betaTables.bedrock,
    foldsSystem: true,
    write({ body: { model: _, stream: __, ...body }, model, stream, betas }) {
      const lists = betas.length === 0 ? {} : { anthropic_beta: [...betas] };
      return {
        path: pathOf(model, stream ? "invoke-with-response-stream" : "invoke"),
        headers: [],
        body: { anthropic_version, ...lists, ...body },
      };
    },
    counting: {
      write({ body: { model: _, ...body }, model, betas }, maxTokens = 1) {
        if ((countless.get(model) ?? 0) > clock.now()) return undefined;
        const lists = betas.length === 0 ? {} : { anthropic_beta: [...betas] };
        const invoked = { anthropic_version, ...lists, max_tokens: maxTokens, ...body };
        const bytes = Buffer.from(JSON.stringify(invoked)).toString("base64");
        const input = { invokeModel: { body: bytes } };
        return { path: pathOf(model, "count-tokens"), headers: [], body: { input } };
      },
      read: ({ inputTokens }) => native.decodeCount({ input_tokens: inputTokens ?? null }),
      isMissing({ status, body }, model) {
        // Models that only profiles reach cannot count. They say so as of a wrong request.
        const isSaid = status === 400 && saysCountless.test(readErrorBody(body).message);
        if (!isSaid && status !== 404 && status !== 405) return false;
        countless.set(model, clock.now() + countlessMs);
        return true;
      },
    },
    supports,
  };
}
