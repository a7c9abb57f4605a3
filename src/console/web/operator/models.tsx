// Models and providers as the configuration file has them, with every price that was charged.

import type { Duration } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import {
  type CatalogModel,
  OperationsService,
  type Provider,
  ProviderKind,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { modelFacts } from "../../../base/model-facts.ts";
import type { TokenCategory } from "../../../base/token-categories.ts";
import { useCall } from "../api.ts";
import { compact, count, credits, duration, perMillion } from "../format.ts";
import { Card, Head } from "../parts/page.tsx";
import { Facts, Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { ListTable, LookOnly, Nothing } from "./common.tsx";
import { HealthOfProvider, LastFailure } from "./health.tsx";
import { words } from "./words.ts";

export function Models(): JSX.Element {
  const catalog = useCall(OperationsService.method.listCatalogModels, {});
  return (
    <>
      <Head
        title={words.models.title}
        detail={
          catalog.data && (
            <span class="faint">{words.models.configuration(catalog.data.configuration)}</span>
          )
        }
      />
      <p class="intro muted">{words.models.intro}</p>
      <LookOnly />
      <Card flush>
        <ListTable
          call={catalog}
          rowsOf={({ models }) => models.filter(({ price }) => price !== undefined)}
          greyRows={6}
          empty={<Empty title={words.models.emptyTitle}>{words.models.empty}</Empty>}
          name="models"
          caption={words.models.caption}
          columns={columns}
          keyOf={({ modelId: id }) => id}
        />
      </Card>
      <Card title={words.models.prices} about={words.models.pricesAbout} flush>
        <View call={catalog} skeleton={<Skeleton rows={3} />}>
          {({ models }) => <Prices models={models} />}
        </View>
      </Card>
      <Providers />
    </>
  );
}

/** As everybody reads them on the open page. */
const factsOf = ({ price, ...model }: CatalogModel) => price && modelFacts({ ...model, price });

function priceColumn(name: keyof typeof words.models.head, category: TokenCategory) {
  return {
    name,
    head: words.models.head[name],
    end: true,
    sortBy: ({ price }: CatalogModel) => price?.[category],
    cell: (model: CatalogModel) =>
      factsOf(model)?.prices.find((one) => one.category === category)?.credits ?? words.none,
  };
}

const columns: readonly Column<CatalogModel>[] = [
  {
    name: "model",
    head: words.models.head.model,
    sortBy: ({ modelId: id }) => id,
    cell: (model) => (
      <>
        <span class="key-name" title={[model.modelId, ...model.aliases].join(", ")}>
          <span class="name">{model.modelId}</span>
          {!model.usable && <Tag tone="bad">{words.models.notUsable}</Tag>}
        </span>
        <span class="faint sentence">{factsOf(model)?.sentences.join(" ")}</span>
      </>
    ),
  },
  priceColumn("input", "input"),
  priceColumn("output", "output"),
  priceColumn("thinking", "thinking"),
  priceColumn("write5m", "cacheWrite5m"),
  priceColumn("write1h", "cacheWrite1h"),
  priceColumn("read", "cacheRead"),
  {
    name: "context",
    head: words.models.head.context,
    sortBy: ({ contextTokens }) => contextTokens,
    end: true,
    cell: ({ contextTokens }) => compact(contextTokens),
  },
  {
    name: "routes",
    head: words.models.head.routes,
    cell: ({ routes }) => (
      <>
        {routes.map(({ provider, model, weight, group }) => {
          const isShared = routes.filter((one) => one.group === group).length > 1;
          return (
            <div key={`${group} ${provider} ${model}`} class="sentence">
              {words.models.route(provider, model, weight, isShared)}
            </div>
          );
        })}
      </>
    ),
  },
];

function Prices({ models }: { readonly models: readonly CatalogModel[] }): JSX.Element {
  const rows = models.flatMap(({ modelId: id, price: current, prices }) =>
    prices.flatMap(({ price, firstUsedAt }) =>
      price ? [{ id, price, firstUsedAt, isGone: current === undefined }] : [],
    ),
  );
  if (rows.length === 0) return <Nothing>{words.models.pricesNone}</Nothing>;
  const { pricesHead: head } = words.models;
  return (
    <Table
      caption={words.models.pricesCaption}
      columns={[
        {
          name: "model",
          head: head.model,
          sortBy: ({ id }) => id,
          cell: ({ id, isGone }) => (
            <span class="row">
              {id} {isGone && <Tag>{words.models.gone}</Tag>}
            </span>
          ),
        },
        {
          name: "since",
          head: head.since,
          sortBy: ({ firstUsedAt }) => momentOf(firstUsedAt),
          cell: ({ firstUsedAt }) => <Time at={firstUsedAt} as="moment" />,
        },
        {
          name: "prices",
          head: head.prices,
          cell: ({ price: { input, output, cacheWrite5m, cacheRead, webSearch } }) => (
            <span class="sentence">
              {words.models.priceText(
                perMillion(input),
                perMillion(output),
                perMillion(cacheWrite5m),
                perMillion(cacheRead),
              )}
              {webSearch > 0n && words.models.searchPrice(credits(webSearch * 1_000n))}
            </span>
          ),
        },
        {
          name: "version",
          head: head.version,
          cell: ({ price: { priceVersion, note } }) => (
            <span class="sentence">
              <code>{priceVersion}</code> {note}
            </span>
          ),
        },
      ]}
      rows={rows}
      keyOf={({ price }) => price.priceVersion}
    />
  );
}

function Providers(): JSX.Element {
  const found = useCall(OperationsService.method.listProviders, {}, { isLive: true });
  return (
    <View
      call={found}
      skeleton={<Skeleton rows={4} />}
      empty={({ providers }) =>
        providers.length === 0 ? (
          <Card title={words.models.providers}>{words.models.providersNone}</Card>
        ) : undefined
      }
    >
      {({ providers }) => (
        <div class="side-by-side">
          {providers.map((provider) => (
            <ProviderCard key={provider.name} provider={provider} />
          ))}
        </div>
      )}
    </View>
  );
}

/** As the configuration file names it. */
function nameOfKind(kind: ProviderKind): string {
  return (Object.entries(ProviderKind).find(([, one]) => one === kind)?.[0] ?? "").toLowerCase();
}

function ProviderCard({ provider }: { readonly provider: Provider }): JSX.Element {
  const { providerFacts: facts } = words.models;
  const { name, kind, region, baseUrl, headerNames } = provider;
  const { concurrency, queue, models, nodes } = provider;
  const queueText = words.models.concurrency(
    count(concurrency),
    count(queue),
    durationText(provider.queueTimeout),
  );
  return (
    <Card title={name}>
      <Facts>
        {[
          [facts.kind, nameOfKind(kind)],
          region === "" ? undefined : [facts.region, region],
          baseUrl === "" ? undefined : [facts.address, <bdi key="url">{baseUrl}</bdi>],
          [facts.credential, <CredentialOf key="credential" provider={provider} />],
          headerNames.length === 0 ? undefined : [facts.headers, headerNames.join(", ")],
          [facts.concurrency, queueText],
          [facts.waits, waitsText(provider)],
          [facts.models, models.join(", ") || words.none],
          [facts.health, <HealthOfProvider key="health" nodes={nodes} />],
          [facts.failure, <LastFailure key="failure" nodes={nodes} />],
        ]}
      </Facts>
    </Card>
  );
}

/** Where the credential is from on the nodes, and the first end of it. */
function CredentialOf({ provider }: { readonly provider: Provider }): JSX.Element {
  const { credentialHeader: header, nodes } = provider;
  const sources = new Set(nodes.flatMap(({ state }) => state?.credentialSource || []));
  const [end] = nodes
    .flatMap(({ state }) => state?.credentialExpiresAt ?? [])
    .sort((one, other) => Number(one.seconds - other.seconds));
  if (sources.size === 0) return <span class="faint">{words.models.noCredential}</span>;
  return (
    <>
      {[...sources].join(", ")}
      {header && words.models.asHeader(header)}
      {end && (
        <>
          {words.models.until} <Time at={end} as="moment" />
        </>
      )}
    </>
  );
}

function waitsText(provider: Provider): string {
  const { connectTimeout, firstByteTimeout, idleTimeout, totalTimeout } = provider;
  const total = durationText(totalTimeout);
  if (!connectTimeout) return words.models.waitsTotal(total);
  const [connect, first, idle] = [connectTimeout, firstByteTimeout, idleTimeout].map(durationText);
  return words.models.waits(connect ?? "", first ?? "", idle ?? "", total);
}

function durationText(time: Duration | undefined): string {
  return time ? duration(Number(time.seconds) * 1000 + time.nanos / 1_000_000) : words.none;
}
