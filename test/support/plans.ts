// Plans of our statements, as PostgreSQL makes them for prepared statements.

import { Client, escapeLiteral } from "pg";
import type { Query } from "../../src/postgres/statement.ts";

/** A node of a plan: its kind, and the table that it reads, if it does. */
export type PlanNode = { readonly kind: string; readonly table: string | undefined };

/**
 * The plan of a statement in the database at `url`. `isGeneric`: the plan that serves all values,
 * else the one for these.
 */
export async function planOf(
  url: string,
  [{ text }, values]: Query,
  isGeneric: boolean,
): Promise<PlanNode[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(`set plan_cache_mode = force_${isGeneric ? "generic" : "custom"}_plan`);
    await client.query(`prepare planned as ${text}`);
    const { rows } = await client.query<{ "QUERY PLAN": unknown }>(
      `explain (format json) execute planned (${values.map(literalOf).join(", ")})`,
    );
    const nodes: PlanNode[] = [];
    collect(rows[0]?.["QUERY PLAN"], nodes);
    return nodes;
  } finally {
    await client.end();
  }
}

/**
 * The pages that a statement reads where it has to follow indexes, and the tables that it reads
 * from end to end all the same, because they have none for it.
 */
export async function costOf(client: Client, [{ text }, values]: Query) {
  await client.query("set enable_seqscan = off; set plan_cache_mode = force_custom_plan");
  await client.query(`prepare planned as ${text}`);
  const { rows } = await client.query<{ "QUERY PLAN": unknown }>(
    "explain (analyze, buffers, format json) " +
      `execute planned ${values.length > 0 ? `(${values.map(literalOf).join(", ")})` : ""}`,
  );
  await client.query("deallocate planned");
  const [{ Plan: plan }] = Object(rows[0]?.["QUERY PLAN"]);
  const nodes: PlanNode[] = [];
  collect(plan, nodes);
  return {
    pages: Number(plan["Shared Hit Blocks"]) + Number(plan["Shared Read Blocks"]),
    scanned: nodes.flatMap(({ kind, table }) => (kind === "Seq Scan" && table ? [table] : [])),
  };
}

function literalOf(value: unknown): string {
  if (value === null) return "null";
  if (value instanceof Uint8Array) return `'\\x${Buffer.from(value).toString("hex")}'`;
  if (Array.isArray(value)) return escapeLiteral(`{${value.map(elementOf).join(",")}}`);
  return escapeLiteral(value instanceof Date ? value.toISOString() : String(value));
}

function elementOf(value: unknown): string {
  return value === null ? "null" : JSON.stringify(String(value));
}

/**
 * The partitions of `charges` that the plan reads from end to end. Those of months to come have no
 * charge, and a server that knows so reads them in any way.
 */
export function scannedCharges(plan: readonly PlanNode[]): string[] {
  const current = `charges_${new Date().toISOString().slice(0, 7).replace("-", "_")}`;
  return plan.flatMap(({ kind, table = "" }) =>
    kind === "Seq Scan" && table.startsWith("charges") && table <= current ? [table] : [],
  );
}

function collect(value: unknown, nodes: PlanNode[]): void {
  if (typeof value !== "object" || value === null) return;
  const kind: unknown = Reflect.get(value, "Node Type");
  const table: unknown = Reflect.get(value, "Relation Name");
  if (typeof kind === "string")
    nodes.push({ kind, table: typeof table === "string" ? table : undefined });
  for (const inner of Object.values(value)) collect(inner, nodes);
}
