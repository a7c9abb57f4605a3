// What the page of usage asks for: sums over time, sums of the whole range by name, and those of
// the largest names over time.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Bucket,
  type QueryRefusalsResponse,
  type QueryUsageResponse,
  UsageGroup,
  type UsageRow,
  UsageService,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { type Call, type Pages, together } from "../api.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { learnKeys } from "../parts/key-names.ts";
import {
  type Compared,
  type Measure,
  measured,
  type Period,
  type Plan,
} from "../parts/usage-report.ts";
import type { Money } from "./unit.ts";

/** What the parts of a bar, and the rows of the table, are. */
export type By = "category" | "model" | "key" | "tag";
/** What the parts are split by once more. Empty: nothing. */
export type Second = "" | "model" | "key";

/** What a person chose to see. */
export type Chosen = {
  readonly period: Period;
  /** What is wanted. Without a tag, `tag` cannot be shown: then `by` is `category`. */
  readonly wantedBy: By;
  readonly by: By;
  readonly second: Second;
  readonly money: Money;
  /** The parts of the bars that are left out, by the ids of their series. */
  readonly hidden: ReadonlySet<string>;
  /** The name of a tag. Empty: none. */
  readonly tag: string;
  readonly measure: Measure;
  /** Empty: as the range needs it. */
  readonly bucket: "" | "hour" | "day" | "month";
  /** Undefined, as `plan`: the chosen days are no range. */
  readonly compared: Compared | undefined;
  readonly plan: Plan | undefined;
  readonly filter: {
    readonly accountId: string;
    readonly keyIds: string[];
    readonly models: string[];
    readonly tags: Readonly<Record<string, string>>;
  };
};

type List = Pages<UsageRow, QueryUsageResponse>;
type Answer = NonNullable<List["data"]>;

export type UsageCalls = {
  /** The sums over time, the list by name, and the sums over time of the largest names. */
  readonly report: Call<readonly [Answer, Answer, Answer]>;
  /** The list by name, as far as it is read. */
  readonly rows: readonly UsageRow[];
  /** The names with a colour of their own, the largest first. */
  readonly largest: readonly string[];
  readonly refused: QueryRefusalsResponse | undefined;
};

const buckets = { hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH } as const;
/** So many models or keys have a colour of their own. */
const namedMax = 6;

/** The rows of an answer, whose keys are learned. */
export const rowsOf = ({ rows, keys }: QueryUsageResponse) => {
  learnKeys(keys);
  return rows;
};

/** The calls of the page. Without a range, nothing is asked. */
export function useUsage(chosen: Chosen): UsageCalls {
  const { compared, plan, filter, by, second, tag } = chosen;
  const { queryUsage } = UsageService.method;
  const following = { isLive: compared?.isOpen === true };
  const range = compared && {
    ...filter,
    startAt: timestampFromDate(compared.range.from),
    ...(!compared.isOpen && { endAt: timestampFromDate(compared.range.to) }),
  };
  const bucket = plan && buckets[plan.bucket];
  const groupBy = [by === "category" ? "key" : by, second].flatMap((one) =>
    one === "model" ? [UsageGroup.MODEL] : one === "key" ? [UsageGroup.KEY] : [],
  );
  const group = { groupBy, ...(by === "tag" && { groupByTag: tag }) };
  const chart = useAllPages(
    queryUsage,
    range &&
      plan && { ...range, startAt: timestampFromDate(plan.askFrom), ...(bucket && { bucket }) },
    rowsOf,
    following,
  );
  const table = useAllPages(
    queryUsage,
    range && { ...range, bucket: Bucket.NONE, ...group, includeRefusals: true },
    rowsOf,
    following,
  );
  const rows = table.data?.items ?? [];
  const largest = largestOf(rows, chosen);
  const areNamed = by !== "category" && table.data?.isLast === true && largest.length > 0;
  const ofLargest = useAllPages(
    queryUsage,
    areNamed && range && bucket
      ? {
          ...range,
          ...{ bucket, ...group },
          ...filterOf(
            rows.filter((row) => largest.includes(nameIn(row, chosen))),
            chosen,
          ),
        }
      : undefined,
    rowsOf,
    following,
  );
  const isEmpty = table.data?.isLast === true && rows.length === 0;
  // By category, and where nothing was used, no names are asked for.
  const report = together(chart, table, by === "category" || isEmpty ? table : ofLargest);
  return { report, rows, largest, refused: table.data?.first.refusals };
}

/** The models and keys of rows, where the page is grouped by them. */
function filterOf(rows: readonly UsageRow[], { by, second }: Grouping) {
  const named = (kind: By) => by === kind || second === kind;
  return {
    ...(named("model") && { models: [...new Set(rows.map(({ model }) => model))] }),
    ...(named("key") && { keyIds: [...new Set(rows.map(({ keyId }) => keyId))] }),
  };
}

/** How a row is grouped. */
export type Grouping = Pick<Chosen, "by" | "second">;

/** The names of a row: of its key, model or value of the tag, and of the second one. */
export function namesIn(row: UsageRow, { by, second }: Grouping): string[] {
  const of = (kind: By) =>
    kind === "tag" ? row.tagValue : kind === "model" ? row.model : row.keyId;
  return second === "" ? [of(by)] : [of(by), of(second)];
}

/** The same as one text. */
export function nameIn(row: UsageRow, grouping: Grouping): string {
  return namesIn(row, grouping).join("\t");
}

function largestOf(rows: readonly UsageRow[], chosen: Chosen): string[] {
  const sumOf = ({ sums }: UsageRow) => (sums ? measured(chosen.measure, sums) : 0n);
  return (
    [...rows]
      .sort((a, b) => (sumOf(b) > sumOf(a) ? 1 : sumOf(b) < sumOf(a) ? -1 : 0))
      // Requests without the tag are among the others.
      .filter((row) => namesIn(row, chosen)[0] !== "")
      .map((row) => nameIn(row, chosen))
      .slice(0, namedMax)
  );
}
