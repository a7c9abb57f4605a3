// GET /v1/models, /v1/models/{id} and /v1/models/info. Each entry has the members that the SDKs of
// both formats parse.

import assert from "node:assert/strict";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import { InferenceService, type Model } from "../../gen/gateway/inference/v1/inference_pb.ts";
import {
  boolean,
  closed,
  count,
  decimal,
  described,
  list,
  oneOf,
  orNull,
  ref,
  type Schema,
  text,
  time,
} from "../base/json-schema.ts";
import { credits, microPerMillion, usd } from "../base/money.ts";
import { categoryColumns, tokenCategories } from "../base/token-categories.ts";
import type { Core } from "../contract/contract.ts";
import { pageSizeMaxOf } from "../contract/limits.ts";
import { callFor, pathParam, rfc3339OrNull, sendJson } from "./context.ts";
import { json, type Operation } from "./operation.ts";

const model = {
  id: text,
  object: oneOf("model"),
  type: oneOf("model"),
  display_name: text,
  created: described("Seconds since 1970.", count),
  created_at: orNull(time),
  owned_by: text,
  max_input_tokens: count,
  max_tokens: count,
  lifecycle: text,
  line: described("`opus`, `sonnet` or `haiku`.", text),
  deprecated_at: orNull(time),
  retires_at: orNull(time),
  capabilities: { type: "null" },
};
const alias = { alias_for: described("The model that an alias names.", text) };
const prices = closed(
  Object.fromEntries(tokenCategories.map((category) => [categoryColumns[category], decimal])),
);

export const modelSchemas: Readonly<Record<string, Schema>> = {
  Model: closed(model, alias),
  ModelList: closed({
    object: oneOf("list"),
    data: list(ref("Model")),
    has_more: boolean,
    first_id: orNull(text),
    last_id: orNull(text),
  }),
  ModelInfo: closed(
    {
      ...model,
      aliases: list(text),
      context_window: count,
      max_output_tokens: count,
      pricing: orNull(ref("Pricing")),
      public_pricing: described("Of everybody, where yours is another.", orNull(ref("Pricing"))),
      conditional_pricing: list(
        closed({
          speed: orNull(text),
          inference_geo: orNull(text),
          service_tier: orNull(text),
          pricing: ref("Pricing"),
        }),
      ),
    },
    alias,
  ),
  ModelInfoList: closed({ object: oneOf("list"), data: list(ref("ModelInfo")) }),
  Pricing: described(
    "What a million tokens of each category cost, and 1,000 web searches where they are offered.",
    closed({
      unit: oneOf("per_million_tokens"),
      usd: prices,
      credits: prices,
      per_1000_web_searches: orNull(closed({ usd: decimal, credits: decimal })),
      above_prompt_tokens: described(
        "Prompts of more tokens have the prices in `above`.",
        orNull(count),
      ),
      above: orNull(ref("Pricing")),
      note: described("Why it is another price than the plain one.", orNull(text)),
      price_version: text,
    }),
  ),
};

export const modelsOperation: Operation = {
  id: "listModels",
  summary: "Lists the models and aliases that the key may use",
  answer: { [json]: ref("ModelList") },
};

export const modelOperation: Operation = {
  id: "getModel",
  summary: "Returns one model or alias",
  path: { id: described("Id or alias of a model.", text) },
  answer: { [json]: ref("Model") },
  errors: ["model_not_found"],
};

export const modelsInfoOperation: Operation = {
  id: "listModelInfo",
  summary: "Lists the models with their limits and prices",
  answer: { [json]: ref("ModelInfoList") },
};

/** The vendors' formats have their models in one list. */
async function listAll(core: Core, request: FastifyRequest): Promise<Model[]> {
  const models: Model[] = [];
  const pageSize = pageSizeMaxOf(InferenceService.method.listModels);
  let pageToken = "";
  do {
    const page = await core.inference.listModels({ pageSize, pageToken }, callFor(request));
    models.push(...page.models);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return models;
}

export function getModels(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const models = await listAll(core, request);
    return sendJson(reply, {
      object: "list",
      data: models.map(renderModel),
      // If true, the native SDK would request the next page for ever.
      has_more: false,
      first_id: models[0]?.modelId ?? null,
      last_id: models.at(-1)?.modelId ?? null,
    });
  };
}

export function getModel(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { model } = await core.inference.getModel(
      { modelId: pathParam(request, "id") },
      callFor(request),
    );
    assert(model, "the service returns a model or throws");
    return sendJson(reply, renderModel(model));
  };
}

export function getModelsInfo(core: Core) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const models = await listAll(core, request);
    return sendJson(reply, {
      object: "list",
      data: models.filter((model) => model.aliasFor === "").map(renderModelInfo),
    });
  };
}

function renderModel(model: Model): JsonObject {
  const {
    modelId: id,
    aliasFor,
    displayName,
    tier,
    createdAt,
    contextTokens,
    maxOutputTokens,
  } = model;
  return {
    id,
    object: "model",
    ...(aliasFor !== "" && { alias_for: aliasFor }),
    type: "model",
    display_name: displayName,
    created: createdAt ? Math.floor(timestampDate(createdAt).getTime() / 1000) : 0,
    created_at: rfc3339OrNull(createdAt),
    owned_by: "gateway",
    max_input_tokens: contextTokens,
    max_tokens: maxOutputTokens,
    lifecycle: "active",
    line: tier === "" ? null : tier,
    deprecated_at: null,
    retires_at: null,
    capabilities: null,
  };
}

/** As `GET /v1/models/info` has a model. */
export function renderModelInfo(model: Model): JsonObject {
  const { aliases, contextTokens, maxOutputTokens, price, publicPrice } = model;
  return {
    ...renderModel(model),
    aliases,
    context_window: contextTokens,
    max_output_tokens: maxOutputTokens,
    pricing: price ? renderPrice(price) : null,
    public_pricing: publicPrice ? renderPrice(publicPrice) : null,
    conditional_pricing: model.conditional.flatMap(({ speed, geo, tier, price: one }) =>
      one === undefined
        ? []
        : [
            {
              speed: speed || null,
              inference_geo: geo || null,
              service_tier: tier || null,
              pricing: renderPrice(one),
            },
          ],
    ),
  };
}

/** Prices of a million tokens per category and of 1,000 web searches, as decimals in strings. */
function renderPrice(price: Price): JsonObject {
  const mapPrices = (format: (microcredits: bigint) => string) =>
    Object.fromEntries(
      tokenCategories.map((category) => [
        categoryColumns[category],
        format(microPerMillion(price[category])),
      ]),
    );
  return {
    unit: "per_million_tokens",
    usd: mapPrices(usd),
    credits: mapPrices(credits),
    per_1000_web_searches:
      price.webSearch === 0n
        ? null
        : { usd: usd(price.webSearch * 1_000n), credits: credits(price.webSearch * 1_000n) },
    above_prompt_tokens: price.promptAbove ?? null,
    above: price.abovePrice ? renderPrice(price.abovePrice) : null,
    note: price.note || null,
    price_version: price.priceVersion,
  };
}
