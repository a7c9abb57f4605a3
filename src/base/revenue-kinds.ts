// What an order is for: the values of the API, and the names that the database and exports have.

import { RevenueKind } from "../../gen/gateway/sales/v1/sales_pb.ts";

const byName: ReadonlyMap<string, RevenueKind> = new Map([
  ["pack", RevenueKind.PACK],
  ["direct", RevenueKind.DIRECT],
]);
const names = new Map([...byName].map(([name, kind]) => [kind, name]));

/** The value of a name. UNSPECIFIED: it is none of them. */
export function revenueKindOf(name: string): RevenueKind {
  return byName.get(name) ?? RevenueKind.UNSPECIFIED;
}

/** The name of a value. Empty: it is not set. */
export function revenueKindName(kind: RevenueKind): string {
  return names.get(kind) ?? "";
}
