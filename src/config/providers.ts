// The section `providers` of the configuration file.

import { type DialectName, dialectAt, dialectNames } from "./dialects.ts";
import type { Section } from "./section.ts";

/** One entry of `providers`. */
export type ProviderSettings = SimulatedSettings | HttpProviderSettings;

type LoadSettings = {
  /** Calls at the same time. Further calls wait. */
  readonly concurrency: number;
  /** Calls that may wait. Further calls fail at once with `overloaded`. */
  readonly queue: number;
  /** Longest wait of a call. */
  readonly queueMs: number;
  /** Longest duration of a request, including an earlier attempt. */
  readonly totalMs: number;
};

/** A deterministic model inside the gateway. */
export type SimulatedSettings = LoadSettings & {
  readonly kind: "simulated";
  /** Pause before the first token. */
  readonly firstTokenMs: number;
  /** Pause before each further token. */
  readonly tokenMs: number;
  /** Obey `[[simulate key=value …]]` in the last user text. */
  readonly directives: boolean;
};

/** A provider with an API of the named kind. */
export type HttpProviderSettings = LoadSettings & {
  readonly kind: "anthropic" | "openai";
  /** openai: which of its APIs the provider serves. */
  readonly api: (typeof apis)[number];
  /** Its habits within the format. Default: by the host of its URL. */
  readonly dialect: DialectName;
  /** openai with the chat API: request members that it gets beyond the known ones. */
  readonly passMembers: "all" | readonly string[];
  /**
   * The URL before `/v1/messages` (anthropic), or before `/chat/completions` or `/responses`
   * (openai). No slash at the end.
   */
  readonly baseUrl: string;
  /** Environment variable with the credential. Absent: none is sent. */
  readonly credentialEnv?: string;
  /** Header of the credential. `authorization` sends it as Bearer. */
  readonly credentialHeader: "x-api-key" | "authorization";
  /** Further request headers, by their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Longest time until the connection is established. */
  readonly connectMs: number;
  /** Longest time from there to the response headers. */
  readonly firstByteMs: number;
  /** Longest time between two reads of the body. */
  readonly idleMs: number;
  /** Define the tools that a conversation has called, if its request defines none. */
  readonly toolStubs: boolean;
  /** Whether the provider hears of traces. */
  readonly traceHeaders: boolean;
  /** openai with the chat API: send `cache_control` marks. */
  readonly cacheMarks: boolean;
  /** openai with the chat API: name of the output limit. */
  readonly maxTokensName: (typeof maxTokensNames)[number];
};

const apis = ["chat", "responses"] as const;
const maxTokensNames = ["max_tokens", "max_completion_tokens"] as const;
const kinds = ["simulated", "anthropic", "openai"] as const;

const hourMs = 3_600_000;
// The longest duration of any request.
const totalMaxMs = hourMs / 2;

/** Reads one provider. Adds its problems to the section. */
export function readProvider(section: Section): ProviderSettings {
  const kind = section.choice("kind", kinds);
  const load: LoadSettings = {
    concurrency: section.integer("concurrency", { min: 1, max: 1_000_000, fallback: 10_000 }),
    queue: section.integer("queue", { min: 0, max: 100_000, fallback: 1_000 }),
    queueMs: section.integer("queue_ms", { min: 0, max: hourMs, fallback: 5_000 }),
    totalMs: section.integer("total_ms", { min: 1, max: totalMaxMs, fallback: totalMaxMs }),
  };
  const settings =
    kind === "simulated" ? readSimulated(section, load) : readHttpProvider(section, kind, load);
  // The kind decides which members are known.
  if (kinds.some((known) => known === section.text("kind", kind))) section.rejectUnknown();
  return settings;
}

function readSimulated(section: Section, load: LoadSettings): SimulatedSettings {
  return {
    ...load,
    kind: "simulated",
    firstTokenMs: section.integer("first_token_ms", { min: 0, max: hourMs, fallback: 50 }),
    tokenMs: section.integer("token_ms", { min: 0, max: hourMs, fallback: 5 }),
    directives: section.flag("directives", true),
  };
}

function readHttpProvider(
  section: Section,
  kind: HttpProviderSettings["kind"],
  load: LoadSettings,
): HttpProviderSettings {
  const limit = (key: string, fallback: number) =>
    section.integer(key, { min: 1, max: 24 * hourMs, fallback });
  const credentialEnv = section.variable("credential_env");
  const api = kind === "openai" ? section.choice("api", apis, "chat") : "chat";
  const isChat = kind === "openai" && api === "chat";
  const baseUrl = readBaseUrl(section);
  return {
    ...load,
    kind,
    api,
    dialect: section.choice("dialect", dialectNames, dialectAt(baseUrl)),
    passMembers: isChat ? readPassMembers(section) : [],
    baseUrl,
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
    traceHeaders: section.flag("trace_headers", false),
    cacheMarks: isChat && section.flag("cache_marks", false),
    maxTokensName: isChat
      ? section.choice("max_tokens_name", maxTokensNames, "max_tokens")
      : "max_tokens",
  };
}

function readPassMembers(section: Section): HttpProviderSettings["passMembers"] {
  if (!section.has("pass_members")) return [];
  if (!section.isText("pass_members")) return section.texts("pass_members");
  return section.choice("pass_members", ["all"]) === "all" ? "all" : [];
}

function readBaseUrl(section: Section): string {
  const text = section.text("base_url");
  if (text === "") return text;
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) {
    section.problem("base_url", "must be an http or https URL");
  } else if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    section.problem("base_url", "must have no credentials, query or fragment");
  }
  return text.replace(/\/+$/, "");
}

// Headers that the gateway sets itself.
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
      section?.problem(name, "is not a header that can be set");
    else if (!/^[\x20-\x7e]+$/.test(value)) section?.problem(name, "must be printable ASCII");
    else headers[lower] = value;
  }
  return headers;
}

/** A problem for each credential that the environment lacks. The value is never repeated. */
export function findMissingCredentials(
  providers: Readonly<Record<string, ProviderSettings>>,
  env: NodeJS.ProcessEnv,
): string[] {
  const problems: string[] = [];
  for (const [name, settings] of Object.entries(providers)) {
    if (settings.kind === "simulated" || settings.credentialEnv === undefined) continue;
    if (!/^[\x21-\x7e]+$/.test(env[settings.credentialEnv] ?? "")) {
      problems.push(
        `providers.${name}.credential_env: the environment variable ${settings.credentialEnv} holds no credential`,
      );
    }
  }
  return problems;
}
