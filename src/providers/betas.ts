// Betas of the native API and the members of requests that belong to them, for the clouds: those
// refuse a whole request for one name that they do not know, while coding tools send new ones with
// every release. What a cloud does not offer is left out with its members, and said.
//
// The tables are of AWS's, Google's, Microsoft's and the vendor's pages, November 2026.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Clock } from "../base/clock.ts";
import type { Fit } from "../formats/fit.ts";
import { isObject } from "../formats/json.ts";
import { type ErrorAnswer, readErrorBody } from "./failures.ts";

const everyCloud = [
  ...["compact-2026-01-12", "computer-use-2025-01-24", "computer-use-2025-11-24"],
  ...["context-1m-2025-08-07", "context-management-2025-06-27", "dangerous-tool-use-2026-09-03"],
  ...["interleaved-thinking-2025-05-14", "thinking-display-updates-2026-08-18"],
];
const toolSearch = "tool-search-tool-2025-10-19";
const bedrock = [
  ...everyCloud,
  ...["effort-2025-11-24", "fine-grained-tool-streaming-2025-05-14", "tool-examples-2025-10-29"],
  ...["mid-conversation-output-config-2026-07-01", "mid-conversation-tool-changes-2026-07-01"],
  ...["thinking-binding-controls-2026-08-01", toolSearch],
];
/** Where the three betas of advanced tool use have names of their own. */
const renamed = { "advanced-tool-use-2025-11-20": toolSearch };
const same = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, name]));

/** The betas that each cloud offers, with its names for them. It gets no others. */
export const betaTables = {
  bedrock: { ...same(bedrock), ...renamed },
  mantle: {
    ...same([
      ...bedrock,
      ...["claude-code-20250219", "output-128k-2025-02-19", "structured-outputs-2025-11-13"],
      "token-efficient-tools-2025-02-19",
    ]),
    ...renamed,
  },
  vertex: {
    ...same([
      ...everyCloud,
      ...["compact-2026-09-04", "per-turn-control-2026-07-01", toolSearch],
      ...["thinking-binding-controls-2026-08-01", "web-search-2025-03-05"],
    ]),
    ...renamed,
  },
  azure: same([
    ...everyCloud.filter((name) => !name.startsWith("compact-")),
    ...["advanced-tool-use-2025-11-20", "effort-2025-11-24", "per-turn-control-2026-07-01"],
    ...["prompt-caching-scope-2026-01-05", "structured-outputs-2025-11-13"],
  ]),
} as const satisfies Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Members at the top of a request, with the beginnings of the betas that one of them needs. */
const tiedMembers: ReadonlyMap<string, readonly string[]> = new Map([
  ["context_management", ["context-management-", "compact-"]],
  ["output_format", ["structured-outputs-"]],
  ["speed", ["fast-mode-"]],
  ["mcp_servers", ["mcp-client-"]],
  ["container", ["skills-", "code-execution-"]],
]);
const searchBetas = ["tool-search-tool-", "advanced-tool-use-"];
/** Members of tools, in the same way. */
const tiedToolMembers: Readonly<Record<string, readonly string[]>> = {
  defer_loading: searchBetas,
  input_examples: ["tool-examples-", "advanced-tool-use-"],
};
const scopeBetas = ["prompt-caching-scope-"];

/** Members that every cloud knows. No table knows the others. */
const knownMembers: ReadonlySet<string> = new Set([
  ...["model", "messages", "system", "max_tokens", "stream", "temperature", "top_p", "top_k"],
  ...["stop_sequences", "tools", "tool_choice", "thinking", "output_config", "cache_control"],
  "metadata",
]);
/** Without these a request is another one. */
const neededMembers: ReadonlySet<string> = new Set([
  ...["messages", "system", "tools", "tool_choice", "thinking", "max_tokens", "output_config"],
  ...["model", "stream"],
]);

const offMs = 3_600_000;

/** A request that a cloud gets, and its betas by the cloud's names. */
export type Fitted = { readonly body: JsonObject; readonly betas: readonly string[] };

export class Betas {
  /** By the client's names. */
  readonly #offered: ReadonlyMap<string, string>;
  readonly #clock: Clock;
  readonly #report: (message: string) => void;
  /**
   * Names that were refused, by model, and until when they are off. Few: only those of the tables
   * and of the operator are sent.
   */
  readonly #off = new Map<string, number>();

  /** `own`: names by the operator, or `false`. `report`: hears of what is left out from now on. */
  constructor(
    table: Readonly<Record<string, string>>,
    own: Readonly<Record<string, string>>,
    { clock, report }: { clock: Clock; report: (message: string) => void },
  ) {
    const all = Object.entries({ ...table, ...own });
    this.#offered = new Map(all.filter(([, name]) => name !== "false"));
    this.#clock = clock;
    this.#report = report;
  }

  /** A body with what the cloud offers, and its betas. `asked`: those of the client. */
  fit(body: JsonObject, asked: string, model: string, fit?: Fit): Fitted {
    const betas = this.#betasOf(asked, model, fit);
    // A cloud refuses a member without its beta, also one that it offers.
    const has = (tied: readonly string[]) =>
      [...betas].some((name) => tied.some((begin) => name.startsWith(begin)));
    const fitted: Record<string, JsonValue> = {};
    for (const [name, value] of Object.entries(body)) {
      const tied = tiedMembers.get(name);
      const isThere = tied ? has(tied) : knownMembers.has(name);
      if (isThere && !this.#isOff(model, name)) fitted[name] = value;
      else if (value !== null) fit?.leaveOut({ where: name, what: name, why: "unsupported" });
    }
    const drops = {
      scope: !has(scopeBetas),
      search: !has(searchBetas),
      toolMembers: Object.keys(tiedToolMembers).filter((name) => !has(tiedToolMembers[name] ?? [])),
    };
    for (const name of ["system", "tools", "messages", "cache_control"]) {
      if (fitted[name] === undefined) continue;
      const left = cleaned(fitted[name], name, drops, fit);
      if (left !== undefined) fitted[name] = left;
      else {
        delete fitted[name];
        if (name === "tools") delete fitted.tool_choice;
      }
    }
    return { body: fitted, betas: [...betas] };
  }

  #betasOf(asked: string, model: string, fit: Fit | undefined): ReadonlySet<string> {
    const betas = new Set<string>();
    for (const beta of asked.split(",").map((one) => one.trim())) {
      if (beta === "") continue;
      const name = this.#offered.get(beta);
      if (name !== undefined && !this.#isOff(model, name)) betas.add(name);
      else fit?.leaveOut({ where: "anthropic-beta", what: beta, why: "unsupported" });
    }
    return betas;
  }

  /**
   * Leaves out from now on what such an answer refuses, of what stood in its request: the words of
   * a client are part of the answer. `members`: those at the top of it. False if none of that can
   * be left out.
   */
  learn(
    { status, body }: ErrorAnswer,
    model: string,
    { members, betas }: { readonly members: readonly string[]; readonly betas: readonly string[] },
  ): boolean {
    if (status !== 400) return false;
    const { message } = readErrorBody(body);
    const member = /^([a-z_]+): Extra inputs are not permitted/.exec(message)?.[1];
    if (member !== undefined && member !== "anthropic_beta")
      return (
        members.includes(member) && !neededMembers.has(member) && this.#turnOff(model, [member])
      );
    if (!/^(?:invalid beta flag|unexpected value\(s\)|anthropic[-_]beta)/i.test(message))
      return false;
    const named = betas.filter((name) => message.includes(name));
    return this.#turnOff(model, named.length > 0 ? named : betas);
  }

  /** True if one of them was sent. */
  #turnOff(model: string, names: readonly string[]): boolean {
    for (const name of names) {
      if (this.#isOff(model, name)) continue;
      this.#off.set(keyOf(model, name), this.#clock.now() + offMs);
      this.#report(`the provider refuses ${name} for ${model}: it is left out for an hour`);
    }
    return names.length > 0;
  }

  #isOff(model: string, name: string): boolean {
    if (this.#off.size === 0) return false;
    const key = keyOf(model, name);
    const untilMs = this.#off.get(key);
    if (untilMs === undefined) return false;
    if (untilMs > this.#clock.now()) return true;
    this.#off.delete(key);
    return false;
  }
}

function keyOf(model: string, name: string): string {
  return `${model}\0${name}`;
}

/** What is left out below the top of a request. */
type Drops = {
  /** `cache_control.scope`. */
  readonly scope: boolean;
  /** References to tools that a search found, and the search itself. */
  readonly search: boolean;
  readonly toolMembers: readonly string[];
};

/**
 * The value of the member `where` without those. The same one where it has none; undefined if
 * nothing is left.
 */
function cleaned(
  value: JsonValue,
  where: string,
  drops: Drops,
  fit: Fit | undefined,
): JsonValue | undefined {
  if (Array.isArray(value)) return cleanedList(value, where, drops, fit);
  if (!isObject(value)) return value;
  if (drops.search && isSearch(value)) {
    fit?.leaveOut({ where, what: "tool_search", why: "unsupported" });
    return undefined;
  }
  const changes: Record<string, JsonValue | undefined> = {};
  const { cache_control: mark, content } = value;
  const marked = where === "cache_control" ? value : mark;
  if (drops.scope && isObject(marked) && marked.scope !== undefined) {
    const { scope: _, ...rest } = marked;
    fit?.leaveOut({ where, what: "cache_control.scope", why: "unsupported" });
    if (where === "cache_control") return rest;
    changes.cache_control = rest;
  }
  const members = where === "tools" ? drops.toolMembers : [];
  for (const name of members.filter((one) => value[one] !== undefined)) {
    fit?.leaveOut({ where, what: name, why: "unsupported" });
    changes[name] = undefined;
  }
  if (Array.isArray(content)) {
    const left = cleaned(content, where, drops, fit);
    // A message without content is none, while a result may have none.
    if (left === undefined && value.role !== undefined) return undefined;
    if (left !== content) changes.content = left;
  }
  if (Object.keys(changes).length === 0) return value;
  const entries = Object.entries({ ...value, ...changes });
  return Object.fromEntries(
    entries.flatMap(([name, one]) => (one === undefined ? [] : [[name, one] as const])),
  );
}

function cleanedList(
  list: JsonValue[],
  where: string,
  drops: Drops,
  fit: Fit | undefined,
): JsonValue | undefined {
  let left: JsonValue[] | undefined;
  for (const [at, one] of list.entries()) {
    const kept = cleaned(one, where, drops, fit);
    if (kept !== one) left ??= list.slice(0, at);
    if (kept !== undefined) left?.push(kept);
  }
  return left?.length === 0 ? undefined : (left ?? list);
}

function isSearch({ type, name }: JsonObject): boolean {
  const named = type === "server_tool_use" ? name : type;
  if (typeof named !== "string") return false;
  return type === "tool_reference" || named.startsWith("tool_search_tool");
}
