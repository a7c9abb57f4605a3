// Named statements, read from `.sql` files.

import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { expandChargeLine } from "../base/charge-line.ts";

/** One SQL statement. The server's statistics list it under the same name. */
export type Statement = {
  readonly name: string;
  readonly text: string;
  /** Query timeout. Default: 30 s. */
  readonly timeoutMs?: number;
};

/**
 * Reads `sql/<file>.sql` beside the caller's module, and expands its token categories, sums and
 * lines of charges. The name of the statement is `<folder>/<file>`. Call once, when the module
 * loads.
 */
export function statement(moduleUrl: string, file: string): Statement {
  const folder = dirname(fileURLToPath(moduleUrl));
  const text = readFileSync(`${folder}/sql/${file}.sql`, "utf8");
  return {
    name: `${basename(folder)}/${file}`,
    text: expandChargeLine(expandCharged(text)),
  };
}

// What the view `charge_sums` has, for statements that do not read it yet.

const tokens = ["input", "output", "thinking", "cache_write_5m", "cache_write_1h", "cache_read"];
const parts = ["amount_input", "amount_output", "amount_cache", "amount_thinking"];
const charged = [...tokens, "amount", ...parts, "requests", "completed", "failed", "cut"];

/** Expands `each_charged(…)`, with each column as `#`, and `charged_of(c, p)`. */
function expandCharged(sql: string): string {
  return sql
    .replace(/\beach_charged\(((?:[^()]|\([^()]*\))*)\)/g, (_, template: string) =>
      charged.map((name) => template.replaceAll("#", name)).join(", "),
    )
    .replace(
      /\bcharged_of\(c, p\)/g,
      `${tokens.map((name) => `c.${name}`).join(", ")}, c.amount,
        least(c.input * p.input, c.hold) as amount_input,
        c.amount - ${upTo(5)} as amount_output,
        ${upTo(4)} - least(c.input * p.input, c.hold) as amount_cache,
        ${upTo(5)} - ${upTo(4)} as amount_thinking,
        1 as requests, (c.outcome = 'completed')::int as completed,
        (c.outcome in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
          'input_above_hold'))::int as failed,
        (c.outcome in ('client_left_before_acceptance', 'client_left_before_content',
          'client_left', 'revoked', 'time_limit'))::int as cut`,
    );
}

/** The cost of the first categories in the order in which a hold covers them. */
function upTo(count: number): string {
  const order = ["input", "cache_write_5m", "cache_write_1h", "cache_read", "thinking"];
  const costs = order.slice(0, count).map((name) => `c.${name} * p.${name}`);
  return `least(${costs.join(" + ")}, c.hold)`;
}
