// The providers of the configuration file.

import type { Section } from "./section.ts";

/** One entry of `providers`. */
export type ProviderSettings = SimulatedSettings | HttpProviderSettings;

/** How many calls an provider carries at once, and for how long; those beyond it wait. */
type LoadSettings = {
  readonly concurrency: number;
  /** Most calls that wait; the next one is refused at once. */
  readonly queue: number;
  /** Longest wait. */
  readonly queueMs: number;
  /** The whole call, the attempt before it included. */
  readonly totalMs: number;
};

/** A deterministic model inside the gateway. */
export type SimulatedSettings = LoadSettings & {
  readonly kind: "simulated";
  /** Pause before the first token. */
  readonly firstTokenMs: number;
  /** Pause before each further token. */
  readonly tokenMs: number;
  /** Whether `[[simulate key=value …]]` in the last user text is obeyed. */
  readonly directives: boolean;
};

/** A provider with an API of the named kind. */
export type HttpProviderSettings = LoadSettings & {
  readonly kind: "anthropic" | "openai";
  /**
   * What `/v1/messages` (anthropic) or `/chat/completions` (openai) is appended to. No slash at the
   * end.
   */
  readonly baseUrl: string;
  /** Environment variable that holds the credential. Absent: none is sent. */
  readonly credentialEnv?: string;
  /** Header that carries it. */
  readonly credentialHeader: "x-api-key" | "authorization";
  /** Further request headers, lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly connectMs: number;
  /** Until the response headers. */
  readonly firstByteMs: number;
  /** Between two reads of the body. */
  readonly idleMs: number;
  /**
   * Whether tools that a conversation has used are defined for it where its request defines none.
   */
  readonly toolStubs: boolean;
  /**
   * openai: whether `cache_control` marks are passed on, and the name of the output limit there.
   */
  readonly cacheMarks: boolean;
  readonly maxTokensName: (typeof maxTokensNames)[number];
};

const maxTokensNames = ["max_tokens", "max_completion_tokens"] as const;
const kinds = ["simulated", "anthropic", "openai"] as const;

const hourMs = 3_600_000;
// No request lives longer than this, whatever its provider allows.
const totalMaxMs = hourMs / 2;

/** Reads one provider; every problem is noted in the section. */
export function readProvider(section: Section): ProviderSettings {
  const kind = section.choice("kind", kinds);
  const load: LoadSettings = {
    concurrency: section.whole("concurrency", { min: 1, max: 1_000_000, otherwise: 10_000 }),
    queue: section.whole("queue", { min: 0, max: 100_000, otherwise: 1_000 }),
    queueMs: section.whole("queue_ms", { min: 0, max: hourMs, otherwise: 5_000 }),
    totalMs: section.whole("total_ms", { min: 1, max: totalMaxMs, otherwise: totalMaxMs }),
  };
  const settings =
    kind === "simulated" ? readSimulated(section, load) : readHttpProvider(section, kind, load);
  // A kind that does not exist says nothing about which members do.
  if (kinds.some((known) => known === section.text("kind", kind))) section.end();
  return settings;
}

function readSimulated(section: Section, load: LoadSettings): SimulatedSettings {
  return {
    ...load,
    kind: "simulated",
    firstTokenMs: section.whole("first_token_ms", { min: 0, max: hourMs, otherwise: 50 }),
    tokenMs: section.whole("token_ms", { min: 0, max: hourMs, otherwise: 5 }),
    directives: section.flag("directives", true),
  };
}

function readHttpProvider(
  section: Section,
  kind: HttpProviderSettings["kind"],
  load: LoadSettings,
): HttpProviderSettings {
  const limit = (key: string, otherwise: number) =>
    section.whole(key, { min: 1, max: 24 * hourMs, otherwise });
  const credentialEnv = section.has("credential_env") ? section.text("credential_env") : undefined;
  return {
    ...load,
    kind,
    baseUrl: readBaseUrl(section),
    ...(credentialEnv !== undefined && { credentialEnv }),
    credentialHeader: section.choice(
      "credential_header",
      ["x-api-key", "authorization"],
      kind === "anthropic" ? "x-api-key" : "authorization",
    ),
    headers: readHeaders(section.optionalSection("headers")),
    connectMs: limit("connect_ms", 5_000),
    firstByteMs: limit("first_byte_ms", 120_000),
    idleMs: limit("idle_ms", 120_000),
    toolStubs: section.flag("tool_stubs", false),
    cacheMarks: kind === "openai" && section.flag("cache_marks", false),
    maxTokensName:
      kind === "openai"
        ? section.choice("max_tokens_name", maxTokensNames, "max_tokens")
        : "max_tokens",
  };
}

function readBaseUrl(section: Section): string {
  const text = section.text("base_url");
  if (text === "") return text;
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) {
    section.problem("base_url", "must be an http or https address");
  } else if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    section.problem("base_url", "must have no credentials, query or fragment");
  }
  return text.replace(/\/+$/, "");
}

// Those of the connection and of the gateway itself are not the file's to set.
const ownHeaders = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "content-type",
  "accept-encoding",
]);

function readHeaders(section: Section | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of section?.names() ?? []) {
    const value = section?.text(name) ?? "";
    const lower = name.toLowerCase();
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(lower) || ownHeaders.has(lower))
      section?.problem(name, "is no header you can set");
    else if (!/^[\x20-\x7e]+$/.test(value)) section?.problem(name, "must be printable ASCII");
    else headers[lower] = value;
  }
  return headers;
}

/** What is missing from the environment for these providers. */
export function findMissingCredentials(
  providers: Readonly<Record<string, ProviderSettings>>,
  env: NodeJS.ProcessEnv,
): string[] {
  const problems: string[] = [];
  for (const [name, settings] of Object.entries(providers)) {
    if (settings.kind === "simulated" || settings.credentialEnv === undefined) continue;
    if (!/^[\x21-\x7e]+$/.test(env[settings.credentialEnv] ?? "")) {
      problems.push(
        `providers.${name}.credential_env: ${settings.credentialEnv} is not set to a credential`,
      );
    }
  }
  return problems;
}
