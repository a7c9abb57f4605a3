// The habits of model providers within a format: what they answer with, what they take back, and
// what they refuse. Data, one row each; no other code asks for a vendor's name.

/** How a provider's ids of tool calls must look. */
export type IdForm = {
  /** Accepted as it is. Any other id is replaced, for the call and its result alike. */
  readonly accepted: RegExp;
  /** `digest`: so many letters and digits. `counted`: `functions.NAME:N`, over the conversation. */
  readonly replacement: { readonly kind: "digest"; readonly length: number } | { kind: "counted" };
};

/** What encoders must know of a provider. */
export type Dialect = {
  /** Where its `base_url` is: a host, or `.` and the end of one. */
  readonly hosts?: readonly string[];
  /** Members of a turn with reasoning that it takes back. Absent: all that it wrote. */
  readonly reasoning?: readonly string[];
  /**
   * The member in which every turn with calls must have its reasoning, even that of other
   * providers. Absent: it needs none.
   */
  readonly reasoningNeeded?: string;
  /** Whether its signed reasoning is good for all its models. Default: for one. */
  readonly boundTo?: "host";
  /**
   * kind anthropic: takes thinking without a signature, and needs it in every turn with calls.
   */
  readonly unsignedThinking?: true;
  /** With the Responses API: refuses a reasoning item without encrypted content. */
  readonly needsEncrypted?: true;
  /** Members that stand in a call whose own were lost, at the first call of each turn. */
  readonly callPlaceholder?: Readonly<Record<string, Placeholder>>;
  /** Members of messages and calls that it refuses. */
  readonly refusedMembers?: readonly string[];
  /** Whether it refuses request members that are not in OpenAI's reference. */
  readonly isStrict?: true;
  /** Members beyond that reference that it knows all the same. */
  readonly ownMembers?: readonly string[];
  /** Members of that reference that it refuses: always, or beside a reasoning effort. */
  readonly refusedRequestMembers?: readonly string[];
  readonly refusedBesideEffort?: readonly string[];
  /** The one part of `extra_body` that it documents. */
  readonly extraBody?: readonly [outer: string, inner: string];
  /** True: knows no role `developer`. */
  readonly noDeveloper?: true;
  /** True: knows no `$ref` in the schemas of tools. */
  readonly noReferences?: true;
  /** True: refuses an empty description of a tool. */
  readonly noEmptyDescription?: true;
  readonly ids?: IdForm;
  /** Its word for each reasoning effort that it lacks. */
  readonly efforts?: Readonly<Record<string, string>>;
  /** Members that turn its thinking off, which is on by default. */
  readonly thinkingOff?: Readonly<Record<string, { readonly type: string }>>;
};

type Placeholder = string | { readonly [name: string]: Placeholder };

/** Members with reasoning, under all the names in use. */
const reasoningMembers = [
  "reasoning_content",
  "reasoning",
  "reasoning_text",
  "reasoning_details",
  "thinking_blocks",
  "encrypted_content",
];
const foreignMembers = [...reasoningMembers, "extra_content", "images", "cache_control"];
const shortIds: IdForm = {
  accepted: /^.{1,64}$/s,
  replacement: { kind: "digest", length: 40 },
};
const openai = {
  reasoning: [],
  refusedMembers: foreignMembers,
  isStrict: true,
  needsEncrypted: true,
  // Only for stored answers, and nothing is stored.
  refusedRequestMembers: ["metadata"],
  ids: shortIds,
} as const;
const everyTurn = {
  reasoning: ["reasoning_content"],
  reasoningNeeded: "reasoning_content",
  unsignedThinking: true,
} as const;

/** The default: passes everything on as it came. */
const generic: Dialect = {};

const rows = {
  generic,
  anthropic: { hosts: ["api.anthropic.com"], boundTo: "host" },
  openai: { hosts: ["api.openai.com"], ...openai },
  azure: {
    hosts: [".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"],
    ...openai,
    noEmptyDescription: true,
  },
  deepseek: {
    hosts: ["api.deepseek.com"],
    ...everyTurn,
    efforts: { minimal: "low", medium: "high", xhigh: "max", max: "max" },
    thinkingOff: { thinking: { type: "disabled" } },
  },
  kimi: {
    hosts: ["api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"],
    ...everyTurn,
    // Its template counts calls by their ids, and fails after a few of any other form.
    ids: { accepted: /^functions\.[\w-]+:\d+$/, replacement: { kind: "counted" } },
  },
  gemini: {
    hosts: ["generativelanguage.googleapis.com"],
    reasoning: ["extra_content"],
    refusedMembers: [...reasoningMembers, "images"],
    extraBody: ["google", "thinking_config"],
    noReferences: true,
    // The vendor's own text for a turn that another model wrote.
    callPlaceholder: {
      extra_content: { google: { thought_signature: "skip_thought_signature_validator" } },
    },
  },
  openrouter: { hosts: ["openrouter.ai"], reasoning: ["reasoning", "reasoning_details"] },
  mistral: {
    hosts: ["api.mistral.ai", "codestral.mistral.ai"],
    reasoning: ["content"],
    refusedMembers: [...foreignMembers, "refusal", "annotations", "audio", "function_call"],
    isStrict: true,
    ownMembers: ["safe_prompt", "random_seed", "prompt_mode"],
    noDeveloper: true,
    ids: { accepted: /^[a-zA-Z0-9]{9}$/, replacement: { kind: "digest", length: 9 } },
  },
  qwen: {
    hosts: [".aliyuncs.com"],
    reasoning: ["reasoning_content", "encrypted_content"],
  },
  xai: {
    hosts: ["api.x.ai"],
    reasoning: [],
    refusedBesideEffort: ["stop", "presence_penalty", "frequency_penalty"],
  },
  groq: {
    hosts: ["api.groq.com"],
    reasoning: [],
    refusedMembers: foreignMembers,
    isStrict: true,
    ownMembers: ["reasoning_format", "include_reasoning"],
  },
  vllm: {},
  sglang: {},
  llamacpp: {},
} as const satisfies Readonly<Record<string, Dialect>>;

export type DialectName = keyof typeof rows;

const byName: Readonly<Record<DialectName, Dialect>> = rows;
const hosts = Object.entries(byName).flatMap(([name, { hosts: own = [] }]) =>
  own.map((host) => [host, name] as const),
);

/** What `dialect` of a provider may say. */
export const dialectNames: readonly [DialectName, ...DialectName[]] = [
  "generic",
  ...Object.keys(rows)
    .filter(isDialectName)
    .filter((name) => name !== "generic"),
];

function isDialectName(name: string): name is DialectName {
  return Object.hasOwn(rows, name);
}

/** The dialect at a URL. An unknown host, or a text that is no URL, is `generic`. */
export function dialectAt(baseUrl: string): DialectName {
  const host = URL.parse(baseUrl)?.hostname ?? "";
  const found = hosts.find(([one]) => (one.startsWith(".") ? host.endsWith(one) : host === one));
  return found && isDialectName(found[1]) ? found[1] : "generic";
}

export function dialectOf(name: DialectName): Dialect {
  return byName[name];
}
