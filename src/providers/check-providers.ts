// One smallest call to each provider of a configuration file, for operators.

import { create } from "@bufbuild/protobuf";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ApiError } from "../base/errors.ts";
import { createLog } from "../base/log.ts";
import type { Outbound } from "../base/outbound.ts";
import type { CatalogFile, ModelEntry, Route } from "../config/catalog.ts";
import { isObject } from "../formats/json.ts";
import { createProviders, type ManagedProviders } from "./providers.ts";

/** What a call came to. */
export type ProviderCheck = {
  /** As the configuration names it. */
  readonly provider: string;
  /** Its cheapest model: as the provider names it, and the id in the catalogue. */
  readonly model: string;
  readonly modelId: string;
  readonly isAnswered: boolean;
  /** HTTP status; 0 if none was received. */
  readonly status: number;
  readonly ms: number;
  /** The provider's own words, or the error of the connection, without secrets. */
  readonly reason: string;
};

/** The least that every API takes. */
const tokensMax = 16;

/**
 * Calls one provider after another. Throws as `createProviders`. A provider without a route is
 * called for no model, so it is left out.
 */
export async function* checkProviders(
  file: CatalogFile,
  parts: { env: NodeJS.ProcessEnv; outbound: Outbound },
): AsyncGenerator<ProviderCheck> {
  const providers = createProviders({ file, log: createLog("silent"), ...parts });
  try {
    for (const name of Object.keys(file.providers)) {
      const cheapest = cheapestOf(file.models, name);
      if (!cheapest) continue;
      const { model, route } = cheapest;
      // Its other routes would answer in its place.
      providers.reload({ ...file, models: [{ ...model, routes: [[route]] }] });
      yield await check(providers, name, cheapest);
    }
  } finally {
    await providers.close();
  }
}

type RouteOfModel = { readonly model: ModelEntry; readonly route: Route };

function cheapestOf(models: readonly ModelEntry[], provider: string): RouteOfModel | undefined {
  const all = models.flatMap((model) => {
    const route = model.routes.flat().find((one) => one.provider === provider);
    return route ? [{ model, route }] : [];
  });
  return all.sort((one, other) => (one.model.price.output < other.model.price.output ? -1 : 1))[0];
}

async function check(
  providers: ManagedProviders,
  provider: string,
  { model, route }: RouteOfModel,
): Promise<ProviderCheck> {
  const request = create(GenerateRequestSchema, {
    model: model.id,
    maxTokens: tokensMax,
    messages: [{ role: Role.USER, content: [{ kind: { case: "text", value: { text: "Hi" } } }] }],
  });
  const never = new AbortController().signal;
  const begunMs = performance.now();
  const run = providers.generate(
    { request, affinity: () => "", accountId: "", signal: never, client: never },
    {
      takesRuns: false,
      accepted() {},
      mayRepeat: async () => false,
      begin() {},
      write: () => undefined,
    },
  );
  const error = await run.ended;
  const condition = providers.conditions().find(({ name }) => name === provider);
  return {
    provider,
    model: route.model,
    modelId: model.id,
    isAnswered: error === undefined,
    status: run.attempts().at(-1)?.status ?? 0,
    ms: Math.round(performance.now() - begunMs),
    reason: error ? (condition?.lastFailure?.reason ?? wordsOf(error)) : "",
  };
}

/** Of a request that the provider refused. */
function wordsOf({ message, facts }: ApiError): string {
  const body = facts.providerAnswer?.body;
  const words = isObject(body?.error) ? body.error.message : undefined;
  return typeof words === "string" ? words : message;
}
