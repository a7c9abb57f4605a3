// Providers and models as the configuration file has them. Secrets are named, never shown.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  type CatalogModelSchema,
  type ListCatalogModelsRequest,
  type ListCatalogModelsResponse,
  ListCatalogModelsResponseSchema,
  type ListProvidersRequest,
  type ListProvidersResponse,
  ListProvidersResponseSchema,
  OperationsService,
  ProviderKind,
  type ProviderOnNodeSchema,
  type ProviderSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { readPage, wholeList } from "../base/paging.ts";
import type { CatalogFile, ProviderSettings } from "../config/catalog.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { hashOf, readReport, type StatusParts } from "./status.ts";

/** A price at which requests were admitted. */
type UsedPrice = { readonly model: string; readonly price: Price; readonly firstUsedAt: Date };

export type ConfiguredParts = Pick<StatusParts, "file" | "providers"> & {
  readonly ledger: Pick<StatusParts["ledger"], "nodes"> & {
    /** By model, newest first. */
    prices(): Promise<readonly UsedPrice[]>;
  };
  /** The price of new requests. Undefined: no such model. */
  readonly priceOf: (model: string) => Price | undefined;
  /** Its prices under other conditions. */
  readonly conditionalPricesOf: (model: string) => readonly Price[];
};

export async function listProviders(
  { file, ledger }: ConfiguredParts,
  request: ListProvidersRequest,
  call: AuthenticatedCall,
): Promise<ListProvidersResponse> {
  const { providers, models } = file();
  const reports = (await ledger.nodes()).flatMap((record) => {
    const report = readReport(record);
    return report ? [{ nodeId: record.nodeId, report }] : [];
  });
  const page = await readPage(
    OperationsService.method.listProviders,
    request,
    call,
    wholeList(Object.entries(providers), ([name]) => name),
  );
  return create(ListProvidersResponseSchema, {
    nextPageToken: page.nextPageToken,
    providers: page.entries.map(
      ([name, settings]): ProviderInit => ({
        ...describe(settings),
        name,
        models: models.filter((model) => routesTo(model, name)).map(({ id }) => id),
        nodes: reports.flatMap(({ nodeId, report }): OnNode[] => {
          const state = report.providers.find(({ provider }) => provider === name);
          return state ? [{ nodeId, state }] : [];
        }),
      }),
    ),
  });
}

type ProviderInit = MessageInitShape<typeof ProviderSchema>;
type OnNode = MessageInitShape<typeof ProviderOnNodeSchema>;

function routesTo({ routes }: CatalogFile["models"][number], provider: string): boolean {
  return routes.flat().some((route) => route.provider === provider);
}

const kinds: Readonly<Record<ProviderSettings["kind"], ProviderKind>> = {
  simulated: ProviderKind.SIMULATED,
  anthropic: ProviderKind.ANTHROPIC,
  openai: ProviderKind.OPENAI,
  bedrock: ProviderKind.BEDROCK,
  vertex: ProviderKind.VERTEX,
  azure: ProviderKind.AZURE,
};

function describe(settings: ProviderSettings) {
  const { kind, concurrency, queue, queueMs, totalMs } = settings;
  const common = {
    kind: kinds[kind],
    concurrency,
    queue,
    queueTimeout: durationFromMs(queueMs),
    totalTimeout: durationFromMs(totalMs),
  };
  if (settings.kind === "simulated") return common;
  const { baseUrl, credentialEnv = "", credentialHeader, headers } = settings;
  const hasKey = credentialEnv !== "" || ("credentialFile" in settings && settings.credentialFile);
  return {
    ...common,
    baseUrl,
    region: regionOf(settings),
    credentialEnv,
    credentialHeader: hasKey ? credentialHeader : "",
    headerNames: Object.keys(headers),
    connectTimeout: durationFromMs(settings.connectMs),
    firstByteTimeout: durationFromMs(settings.firstByteMs),
    idleTimeout: durationFromMs(settings.idleMs),
  };
}

function regionOf(settings: ProviderSettings): string {
  if (settings.kind === "vertex") return settings.location;
  return ("region" in settings && settings.region) || "";
}

export async function listCatalog(
  parts: ConfiguredParts,
  request: ListCatalogModelsRequest,
  call: AuthenticatedCall,
): Promise<ListCatalogModelsResponse> {
  const { file, ledger, providers, priceOf, conditionalPricesOf } = parts;
  const { models, aliases } = file();
  const used = Map.groupBy(await ledger.prices(), ({ model }) => model);
  const usable = new Map(providers.usableModels());
  const pricesOf = (id: string) =>
    (used.get(id) ?? []).map(({ price, firstUsedAt }) => ({
      price,
      firstUsedAt: timestampFromDate(firstUsedAt),
    }));
  const offered = models.map((model): MessageInitShape<typeof CatalogModelSchema> => {
    const { id, displayName, tier = "", contextTokens, maxOutputTokens, routes } = model;
    const price = priceOf(id);
    return {
      modelId: id,
      displayName,
      tier,
      contextTokens,
      maxOutputTokens,
      aliases: Object.keys(aliases).filter((alias) => aliases[alias] === id),
      ...(price && { price }),
      routes: routes.flatMap((group, index) =>
        group.map(({ provider, model: name, weight }) => ({
          provider,
          model: name,
          weight,
          group: index + 1,
        })),
      ),
      usable: usable.get(id) ?? false,
      prices: pricesOf(id),
      conditional: [...conditionalPricesOf(id)],
    };
  });
  const ids = new Set(models.map(({ id }) => id));
  const gone = [...used.keys()]
    .filter((id) => !ids.has(id))
    .map((id) => ({ modelId: id, displayName: id, prices: pricesOf(id) }));
  const list = wholeList<MessageInitShape<typeof CatalogModelSchema>>(
    [...offered, ...gone],
    ({ modelId: id = "" }) => id,
  );
  const page = await readPage(OperationsService.method.listCatalogModels, request, call, list);
  return create(ListCatalogModelsResponseSchema, {
    models: page.entries,
    nextPageToken: page.nextPageToken,
    configuration: hashOf(file()),
  });
}
