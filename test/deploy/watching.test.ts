// The rules for Prometheus and the dashboard for Grafana name only metrics that exist.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { type Definition, definitions } from "../../src/metrics/metrics.ts";
import { findProgram } from "../support/programs.ts";

const folder = join(import.meta.dirname, "../../deploy");
const rulesFile = join(folder, "alerts.yaml");

const all: Readonly<Record<string, Definition>> = definitions;
const known = new Map<string, readonly string[]>(
  Object.entries(all).flatMap(([name, { kind, labels }]): [string, readonly string[]][] => {
    const suffixes = kind === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
    return suffixes.map((suffix) => [`${name}${suffix}`, [...labels, "le", "worker"]]);
  }),
);
/** What Prometheus itself adds to each sample. */
const targetLabels = ["job", "instance"];

/** The metrics and labels that an expression names and nothing exports. */
function unknownIn(expression: string): string[] {
  const names = expression.match(/\b(gateway|process|nodejs|gen_ai)_\w+\b/g) ?? [];
  const labels = [
    ...[...expression.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map((match) => match[1] ?? ""),
    ...[...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap((match) =>
      (match[1] ?? "").split(",").map((label) => label.trim()),
    ),
  ];
  const theirs = [...targetLabels, ...names.flatMap((name) => known.get(name) ?? [])];
  return [
    ...names.filter((name) => !known.has(name)),
    ...labels.filter((label) => !theirs.includes(label)),
  ];
}

test("every rule names metrics and labels that exist", () => {
  const { groups } = parse(readFileSync(rulesFile, "utf8"));
  const rules: { expr: string; alert?: string; labels?: { severity: string } }[] = groups.flatMap(
    (group: { rules: unknown[] }) => group.rules,
  );
  expect(rules.length).toBeGreaterThan(10);
  expect(rules.flatMap(({ expr }) => unknownIn(expr))).toEqual([]);
  for (const { alert, labels } of rules)
    if (alert !== undefined) expect(["page", "ticket"]).toContain(labels?.severity);
});

test("the dashboard shows every metric of the gateway, and no other", () => {
  const { panels } = JSON.parse(readFileSync(join(folder, "dashboard.json"), "utf8"));
  const expressions: string[] = panels.flatMap(
    ({ targets = [] }: { targets?: { expr: string }[] }) => targets.map(({ expr }) => expr),
  );
  expect(expressions.flatMap(unknownIn)).toEqual([]);
  const shown = expressions.join("\n");
  const missing = Object.keys(all).filter(
    (name) => !name.startsWith("gen_ai_") && !shown.includes(name),
  );
  expect(missing).toEqual([]);
});

const promtool = findProgram("promtool");
if (!promtool) console.warn("skipped: promtool is not installed (Debian: prometheus)");

test.skipIf(!promtool)("promtool finds nothing wrong with the rules", () => {
  execFileSync(promtool ?? "", ["check", "rules", rulesFile]);
});

test.skipIf(!promtool)("the alerts fire when they should, and not before", () => {
  execFileSync(promtool ?? "", ["test", "rules", join(import.meta.dirname, "alerts-cases.yaml")], {
    stdio: "pipe",
  });
});
