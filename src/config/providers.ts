// The section `providers` of the configuration file.

import * as v from "valibot";
import { type HttpProxy, parseAuthorities, parseProxy } from "../base/outbound.ts";
import { parseSecret, readFileNow } from "../base/watched-file.ts";
import { type DialectName, dialectAt, dialectNames } from "./dialects.ts";
import {
  checked,
  choice,
  flag,
  formed,
  httpUrl,
  integer,
  named,
  type Settings,
  section,
  text,
  variable,
  variant,
} from "./schema.ts";

const hourMs = 3_600_000;
// The longest duration of any request.
const totalMaxMs = hourMs / 2;

const load = {
  /** Calls at the same time. Further calls wait. */
  concurrency: v.optional(integer(1, 1_000_000), "10000"),
  /** Calls that may wait. Further calls fail at once with `overloaded`. */
  queue: v.optional(integer(0, 100_000), "1000"),
  /** Longest wait of a call. */
  queue_ms: v.optional(integer(0, hourMs), "5000"),
  /** Longest duration of a request, including an earlier attempt. */
  total_ms: v.optional(integer(1, totalMaxMs), `${totalMaxMs}`),
};

/** A deterministic model inside the gateway. */
const simulated = section({
  kind: v.literal("simulated"),
  ...load,
  /** Pause before the first token. */
  first_token_ms: v.optional(integer(0, hourMs), "50"),
  /** Pause before each further token. */
  token_ms: v.optional(integer(0, hourMs), "5"),
  /** Obey `[[simulate key=value …]]` in the last user text. */
  directives: v.optional(flag, "true"),
});

// Headers that the gateway sets itself.
const ownHeaders =
  /^(host|connection|content-length|transfer-encoding|content-type|accept-encoding)$/i;

const headers = v.pipe(
  named(
    checked((value) => (/^[\x20-\x7e]+$/.test(value) ? undefined : "must be printable ASCII")),
    checked((name) =>
      /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(name) && !ownHeaders.test(name)
        ? undefined
        : "is not a header that can be set",
    ),
  ),
  v.transform((given) =>
    Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value])),
  ),
);

/** A proxy whose URL is in an environment variable, since it may hold a password. */
export const proxyUrl = section({ url_env: variable });

/** Reads the proxy of a section. Throws an Error that names its variable alone. */
export function readProxy(
  { urlEnv }: { readonly urlEnv: string },
  env: NodeJS.ProcessEnv,
): HttpProxy {
  try {
    return parseProxy(env[urlEnv]?.trim() ?? "");
  } catch (error) {
    const problem = error instanceof Error ? error.message : `${error}`;
    throw new Error(`the environment variable ${urlEnv} ${problem}`);
  }
}

// A URL in its place may hold a password, so it is not repeated.
const usualProxies = v.picklist(["env", "none"], "must be env, none, or { url_env: NAME }");
const proxy = v.lazy((input) => (typeof input === "string" ? usualProxies : proxyUrl));

/** Things that a request may need and that not every provider has. */
const features = section({
  /** A schema for the answer. */
  structured_output: v.exactOptional(flag),
  /** Tools with `strict: true`. */
  strict_tools: v.exactOptional(flag),
  /** Images and documents by their URL. */
  url_sources: v.exactOptional(flag),
  /** Web searches that the provider makes. */
  web_search: v.exactOptional(flag),
  /** All other tools that it runs itself. */
  server_tools: v.exactOptional(flag),
  /** `speed: fast`. */
  fast: v.exactOptional(flag),
  /** `inference_geo`. */
  geo: v.exactOptional(flag),
});

export type ProviderFeatures = v.InferOutput<typeof features>;

const limitMs = integer(1, 24 * hourMs);

/** Of all providers over HTTP. */
const http = {
  ...load,
  /** What it has, or has not, other than its kind. */
  features: v.exactOptional(features),
  /** Environment variable with the credential. Absent: none is sent, or a cloud's own is. */
  credential_env: v.exactOptional(variable),
  /** Further request headers, by their names in lower case. */
  headers: v.optional(headers, {}),
  /** The way to it: as the environment says, directly, or through a proxy of its own. */
  proxy: v.optional(proxy, "env"),
  /** File in PEM with authorities to trust beside those that Node trusts. */
  ca_file: v.exactOptional(text),
  /** Longest time until the connection is established. */
  connect_ms: v.optional(limitMs, "5000"),
  /** Longest time from there to the response headers. */
  first_byte_ms: v.optional(limitMs, "120000"),
  /** Longest time between two reads of the body. */
  idle_ms: v.optional(limitMs, "120000"),
  /** Define the tools that a conversation has called, if its request defines none. */
  tool_stubs: v.optional(flag, "false"),
  /** Whether the provider hears of traces. */
  trace_headers: v.optional(flag, "false"),
};

const region = formed(/^[a-z]{2,}(-[a-z0-9]+)+$/, "a region such as us-east-1");

/** What AWS may need to know of the caller. */
const ofAws = {
  /** A role to take on, by its ARN. */
  assume_role: v.exactOptional(
    formed(/^arn:aws[\w-]*:iam::\d{12}:role\/[\w+=,.@/-]+$/, "the ARN of a role"),
  ),
  /** What its owner asks for. */
  external_id: v.exactOptional(text),
};

const ofGoogle = {
  /** Address of a service account to speak for. */
  impersonate: v.exactOptional(formed(/^[^@\s/]+@[^@\s/]+$/, "the address of a service account")),
};

const guid = formed(/^[\w.-]{1,100}$/, "an id");

const ofEntra = {
  /** Default: `AZURE_TENANT_ID`. */
  tenant: v.exactOptional(guid),
  /** Default: `AZURE_CLIENT_ID`. */
  client: v.exactOptional(guid),
};

/** Who proves what, at an address in the form of a vendor. */
const auths = {
  /** `key` (default), a signature of AWS, or a token of Google or Entra. */
  auth: v.exactOptional(choice(["key", "aws", "google", "entra"])),
  /** Of AWS. */
  region: v.exactOptional(region),
  ...ofAws,
  ...ofGoogle,
  ...ofEntra,
};

const authOf = {
  ...{ region: "aws", assume_role: "aws", external_id: "aws" },
  ...{ impersonate: "google", tenant: "entra", client: "entra" },
} as const;

/** The rule of sections that have both. */
const onePlace = (
  rule: (at: "credential_file", of: readonly [], find: () => string | undefined) => void,
  has: (name: string) => boolean,
) =>
  rule("credential_file", [], () =>
    has("credential_file") && has("credential_env")
      ? "set it or credential_env, not both"
      : undefined,
  );

/** Of those that are at an address of the operator's choice. */
const addressed = {
  ...load,
  /**
   * The URL before `/v1/messages` (anthropic), or before `/chat/completions` or `/responses`
   * (openai). No slash at the end.
   */
  base_url: httpUrl,
  /** Its habits within the format. Default: by the host of its URL. */
  dialect: v.exactOptional(choice(dialectNames)),
  /** File with the credential, which may be replaced while the gateway runs. */
  credential_file: v.exactOptional(text),
  /** Header of the credential. `authorization` sends it as Bearer. */
  credential_header: v.exactOptional(choice(["x-api-key", "authorization"])),
  ...auths,
  ...http,
};

/** The rules of `auths`. */
const provenByOne = (
  rule: (
    at: string,
    of: readonly ["auth"],
    find: (members: { readonly auth: string | undefined }) => string | undefined,
  ) => void,
  has: (name: string) => boolean,
) => {
  for (const [name, wanted] of Object.entries(authOf))
    rule(name, ["auth"], ({ auth }) =>
      has(name) && auth !== wanted ? `needs auth: ${wanted}` : undefined,
    );
  rule("region", ["auth"], ({ auth }) =>
    auth === "aws" && !has("region") ? "is required with auth: aws" : undefined,
  );
  rule("auth", ["auth"], ({ auth }) => {
    const isSet = has("credential_env") || (auth === "aws" && has("credential_file"));
    return isSet && (auth === "aws" || auth === "google")
      ? "must be key or entra beside that credential"
      : undefined;
  });
};

/** Of those that are at a cloud. */
const cloud = {
  ...http,
  /** Default: the cloud's own for the other settings. */
  base_url: v.exactOptional(httpUrl),
};

const secretFile = {
  /** File with the credential, which may be replaced while the gateway runs. */
  credential_file: v.exactOptional(text),
};

/** Of clouds that serve the native API. */
const betas = {
  /** Names of betas at the cloud by those of clients, or `false` for one that it does not offer. */
  betas: v.optional(named(formed(/^[\w.-]+$/, "a name, or false")), {}),
};

const chat = {
  /** Request members that the provider gets beyond the known ones. */
  pass_members: v.pipe(
    v.optional(
      v.lazy((input) =>
        typeof input === "string"
          ? choice(["all"])
          : v.pipe(v.array(text, "must be all, or a list"), v.readonly()),
      ),
    ),
    v.transform((given) => given ?? []),
  ),
  /** Send `cache_control` marks. */
  cache_marks: v.optional(flag, "false"),
  /** Name of the output limit. */
  max_tokens_name: v.optional(choice(["max_tokens", "max_completion_tokens"]), "max_tokens"),
};

type Addressed = Settings<typeof addressed>;
type Kind = "anthropic" | "openai";

/** What a provider with a URL does unless its section says otherwise. */
function habitsOf(
  one: Addressed & { readonly kind: Kind },
): Required<Pick<Addressed, "dialect" | "credentialHeader">> {
  const usual = one.kind === "anthropic" ? "x-api-key" : "authorization";
  const { dialect = dialectAt(one.baseUrl), credentialHeader = usual } = one;
  return { dialect, credentialHeader };
}

/** What every provider over HTTP has. */
export type HttpSettings = Settings<typeof http> & {
  readonly baseUrl: string;
  readonly dialect: DialectName;
  readonly credentialHeader: string;
};
/** A provider with an API of the named kind. `api`: which of OpenAI's it serves. */
export type HttpProviderSettings = Addressed &
  ReturnType<typeof habitsOf> &
  Settings<typeof chat> & { readonly kind: Kind; readonly api: "chat" | "responses" };
export type SimulatedSettings = v.InferOutput<typeof simulated>;
/** One entry of `providers`. */
export type ProviderSettings =
  | SimulatedSettings
  | HttpProviderSettings
  | BedrockSettings
  | VertexSettings
  | AzureSettings;

/** The members of the chat API, at a provider of another one. */
const notChat = { passMembers: [], cacheMarks: false, maxTokensName: "max_tokens" } as const;

const anthropic = v.pipe(
  section({ kind: v.literal("anthropic"), ...addressed }, (rule, has) => {
    onePlace(rule, has);
    provenByOne(rule, has);
  }),
  v.transform(
    (one): HttpProviderSettings => ({ ...one, ...notChat, api: "chat", ...habitsOf(one) }),
  ),
);
const openaiChat = v.pipe(
  section(
    {
      kind: v.literal("openai"),
      api: v.optional(v.literal("chat"), "chat"),
      ...addressed,
      ...chat,
    },
    (rule, has) => {
      onePlace(rule, has);
      provenByOne(rule, has);
    },
  ),
  v.transform((one): HttpProviderSettings => ({ ...one, ...habitsOf(one) })),
);
const openaiResponses = v.pipe(
  section({ kind: v.literal("openai"), api: v.literal("responses"), ...addressed }, (rule, has) => {
    onePlace(rule, has);
    provenByOne(rule, has);
  }),
  v.transform((one): HttpProviderSettings => ({ ...one, ...notChat, ...habitsOf(one) })),
);

const openai = variant(
  "api",
  { chat: openaiChat, responses: openaiResponses },
  { always: addressed, usual: "chat" },
);

const bedrockMembers = {
  kind: v.literal("bedrock"),
  ...cloud,
  ...secretFile,
  ...betas,
  region,
  /** The native API, or the older one that invokes a model. */
  api: v.optional(choice(["messages", "invoke"]), "messages"),
  /** Where the native API is: mantle has Opus 4.7 and newer models, runtime the earlier ones. */
  endpoint: v.optional(choice(["runtime", "mantle"]), "runtime"),
  ...ofAws,
};

const bedrock = v.pipe(
  section(bedrockMembers, (rule, has) => {
    onePlace(rule, has);
    rule("endpoint", ["api", "endpoint"], ({ api, endpoint }) =>
      api === "invoke" && endpoint === "mantle" ? "must be runtime with api: invoke" : undefined,
    );
    rule("assume_role", ["assume_role"], ({ assume_role }) =>
      assume_role !== undefined && (has("credential_env") || has("credential_file"))
        ? "needs credentials of AWS, in place of an API key"
        : undefined,
    );
    rule("external_id", ["external_id"], ({ external_id }) =>
      external_id !== undefined && !has("assume_role") ? "needs assume_role" : undefined,
    );
  }),
  v.transform((one) => ({
    ...one,
    baseUrl:
      one.baseUrl ??
      (one.endpoint === "mantle"
        ? `https://bedrock-mantle.${one.region}.api.aws`
        : `https://bedrock-runtime.${one.region}.amazonaws.com`),
    dialect: "anthropic" as const,
    credentialHeader: "authorization" as const,
  })),
);

export type BedrockSettings = v.InferOutput<typeof bedrock>;

const vertexMembers = {
  kind: v.literal("vertex"),
  ...cloud,
  ...betas,
  project: formed(/^[a-z][a-z0-9:.-]{4,60}$/, "the id of a project"),
  /** A region, `global`, `us` or `eu`. */
  location: formed(/^[a-z]+(-[a-z0-9]+)*$/, "a location such as global or us-east5"),
  /**
   * Path of a JSON file: the key of a service account, or what describes another identity. Read
   * anew for each token. Absent: the account of the machine.
   */
  credential_file: v.exactOptional(text),
  ...ofGoogle,
};

const vertex = v.pipe(
  section(vertexMembers, (rule, has) => {
    rule("credential_env", ["credential_env"], ({ credential_env }) =>
      credential_env !== undefined && (has("credential_file") || has("impersonate"))
        ? "holds a token, which credential_file and impersonate would replace"
        : undefined,
    );
  }),
  v.transform((one) => ({
    ...one,
    baseUrl: one.baseUrl ?? vertexUrl(one.location),
    dialect: "anthropic" as const,
    credentialHeader: "authorization" as const,
  })),
);

function vertexUrl(location: string): string {
  if (location === "global") return "https://aiplatform.googleapis.com";
  const isWide = location === "us" || location === "eu";
  return isWide
    ? `https://aiplatform.${location}.rep.googleapis.com`
    : `https://${location}-aiplatform.googleapis.com`;
}

export type VertexSettings = v.InferOutput<typeof vertex>;

const azureMembers = {
  kind: v.literal("azure"),
  ...cloud,
  ...secretFile,
  ...betas,
  /** Its name, the first part of its host. */
  resource: formed(/^[A-Za-z0-9][A-Za-z0-9-]{0,62}$/, "the name of a resource"),
  /** Claude over the native API, or models of OpenAI over the chat or the Responses API. */
  api: v.optional(choice(["messages", "chat", "responses"]), "messages"),
  /** Of the older paths, such as 2024-10-21. Absent: v1. */
  api_version: v.exactOptional(formed(/^[\w.-]{1,40}$/, "a version such as 2024-10-21")),
  /**
   * A key in `credential_env`; or tokens of Entra, for the client's secret in `credential_env`, for
   * a federated token, or for the identity of the machine.
   */
  auth: v.optional(choice(["key", "entra"]), "key"),
  ...ofEntra,
  pass_members: chat.pass_members,
  /** Name of the output limit, in the chat API. */
  max_tokens_name: v.optional(
    choice(["max_tokens", "max_completion_tokens"]),
    "max_completion_tokens",
  ),
};

const azure = v.pipe(
  section(azureMembers, (rule, has) => {
    onePlace(rule, has);
    rule("credential_env", ["auth"], ({ auth }) =>
      auth === "key" && !has("credential_env") && !has("credential_file")
        ? "or credential_file is required with auth: key"
        : undefined,
    );
    for (const name of ["tenant", "client"] as const)
      rule(name, ["auth", name], ({ auth, [name]: id }) =>
        auth === "key" && id !== undefined ? "needs auth: entra" : undefined,
      );
    rule("betas", ["api"], ({ api }) =>
      api !== "messages" && has("betas") ? "needs api: messages" : undefined,
    );
    rule("api_version", ["api", "api_version"], ({ api, api_version }) =>
      api === "messages" && api_version !== undefined ? "is not of api: messages" : undefined,
    );
  }),
  v.transform((one) => {
    const host = one.api === "messages" ? "services.ai.azure.com" : "openai.azure.com";
    const isNative = one.api === "messages";
    const header = one.api === "messages" ? ("x-api-key" as const) : ("api-key" as const);
    return {
      ...one,
      baseUrl: one.baseUrl ?? `https://${one.resource}.${host}`,
      dialect: isNative ? ("anthropic" as const) : ("azure" as const),
      credentialHeader: one.auth === "entra" ? ("authorization" as const) : header,
      cacheMarks: false,
    };
  }),
);

export type AzureSettings = v.InferOutput<typeof azure>;

export const provider = variant(
  "kind",
  { simulated, anthropic, openai, bedrock, vertex, azure },
  { always: load },
);

/**
 * A problem for each credential, authority and proxy that the environment lacks, or that cannot be
 * used. The value is never repeated.
 */
export function findMissingCredentials(
  providers: Readonly<Record<string, ProviderSettings>>,
  env: NodeJS.ProcessEnv,
): string[] {
  return Object.entries(providers).flatMap(([name, settings]) =>
    settings.kind === "simulated"
      ? []
      : Object.entries(checksOf(settings, env)).flatMap(([member, check]) =>
          problemIn(check, `providers.${name}.${member}`),
        ),
  );
}

/** Functions that throw for a member that cannot be used. */
function checksOf(
  settings: Exclude<ProviderSettings, SimulatedSettings>,
  env: NodeJS.ProcessEnv,
): Record<string, () => unknown> {
  const { kind, credentialEnv, credentialFile, caFile, proxy } = settings;
  // One of Google's describes an identity, in JSON.
  const isGoogle = kind === "vertex" || ("auth" in settings && settings.auth === "google");
  const parse = isGoogle ? (content: Buffer) => content.toString() : parseSecret;
  return {
    ...(credentialEnv !== undefined && { credential_env: () => checkVariable(credentialEnv, env) }),
    ...(credentialFile !== undefined && {
      credential_file: () => readFileNow(credentialFile, parse),
    }),
    ...(caFile !== undefined && { ca_file: () => readFileNow(caFile, parseAuthorities) }),
    ...(typeof proxy === "object" && { "proxy.url_env": () => readProxy(proxy, env) }),
  };
}

function checkVariable(name: string, env: NodeJS.ProcessEnv): void {
  if (!/^[\x21-\x7e]+$/.test(env[name] ?? ""))
    throw new Error(`the environment variable ${name} holds no credential`);
}

/** The problem that `check` throws, as a list. */
export function problemIn(check: () => unknown, place: string): string[] {
  try {
    check();
    return [];
  } catch (error) {
    return [`${place}: ${error instanceof Error ? error.message : error}`];
  }
}
