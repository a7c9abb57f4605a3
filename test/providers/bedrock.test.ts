// Amazon Bedrock at its three addresses.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { AttemptOutcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { attemptOutcomeName } from "../../src/base/attempt-outcomes.ts";
import { leftOutReasonName } from "../../src/base/left-out.ts";
import { createLog } from "../../src/base/log.ts";
import { decodeRequest } from "../../src/formats/native/native.ts";
import { awsAuthenticator, awsServiceOf } from "../../src/providers/aws.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { Renewal } from "../../src/providers/renewal.ts";
import { awsFrame, awsFrames, exceptionFrame } from "../support/aws-frames.ts";
import {
  type AwsCredentials,
  awsError,
  type Bedrock,
  refusalOf,
  startBedrock,
  unknownOperation,
} from "../support/bedrock.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { chatStream } from "../support/provider-answers.ts";
import {
  attemptsOf,
  endOf,
  nativeOrigin,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  textOf,
} from "../support/providers.ts";

const model = "us.anthropic.claude-opus-4-6-v1:0";
const keys = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret-of-the-operator-0123456789" };

let bedrock: Bedrock;
let providers: ManagedProviders;
let clock: ManualClock;
beforeEach(async () => {
  bedrock = await startBedrock();
  bedrock.credentials = [keys];
  clock = new ManualClock();
  vi.stubEnv("AWS_ACCESS_KEY_ID", keys.accessKeyId);
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", keys.secretAccessKey);
  vi.stubEnv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere");
  vi.stubEnv("AWS_CONFIG_FILE", "/nowhere");
});
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const spy of [errors, warnings]) spy.mockClear();
  await providers.close();
  await bedrock.stop();
});

const apis = {
  messages: "api: messages",
  mantle: "endpoint: mantle",
  invoke: "api: invoke",
} as const;
type Api = keyof typeof apis;
const everyApi: readonly Api[] = ["messages", "mantle", "invoke"];

/** The configuration of one model at a Bedrock. */
function catalogOf(api: Api, url: string, more = ""): string {
  return `
price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }
models:
  - { id: model-opus-4.6, tier: opus, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000,
      max_output_tokens: 64000, thinking: adaptive, price: { input: 3.50, output: 17.50 },
      routes: [[{ provider: aws, model: "${model}" }]] }
providers:
  aws: { kind: bedrock, region: us-east-1, base_url: "${url}", ${apis[api]}${more} }
`;
}

function open(api: Api, more = "", env: NodeJS.ProcessEnv = {}): void {
  providers = openProviders(catalogOf(api, bedrock.provider.url, more), { clock, env, log });
}

const log = createLog("silent");
const errors = vi.spyOn(log, "error");
const warnings = vi.spyOn(log, "warn");
const alarms = () =>
  errors.mock.calls.flatMap(([{ code }, message]) => (code === "provider_alarm" ? message : []));
const logged = () => [...errors.mock.calls, ...warnings.mock.calls];

const ask = (more: MessageInitShape<typeof GenerateRequestSchema> = {}) =>
  passDuring(() => clock.endPause(2_000), readAll(providers, requestOf("Hi", more)));
const sent = () => bedrock.provider.requests.at(-1);

describe.each(everyApi)("over %s", (api) => {
  test.each([true, false])("a request is signed and answered, streamed: %s", async (stream) => {
    open(api);
    bedrock.content = { text: ["Hel", "lo 👍"], usage: { input: 12, output: 5 } };
    const outcome = await ask({ origin: nativeOrigin({ streamed: stream }), maxTokens: 100 });
    expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "Hello 👍"]);
    expect(endOf(outcome.events)?.usage).toMatchObject({ outputTokens: 5 });
    expect(attemptsOf(outcome)).toEqual(["aws delivered 200"]);
  });

  test("what the cloud does not know is left out with its members, and said", async () => {
    open(api);
    if (api === "mantle") bedrock.betas.push("claude-code");
    const outcome = await ask({
      origin: nativeOrigin({
        vendorBeta:
          "claude-code-20250219,interleaved-thinking-2025-05-14,prompt-caching-scope-2026-01-05," +
          "advanced-tool-use-2025-11-20,fast-mode-2026-02-01,never-heard-of-2027-01-01," +
          "context-management-2025-06-27",
      }),
      system: {
        content: [
          {
            kind: { case: "text", value: { text: "Be brief." } },
            cacheControl: { extensions: { type: "ephemeral", scope: "global" } },
          },
        ],
      },
      tools: [{ name: "f", inputSchema: { type: "object" }, extensions: { defer_loading: true } }],
      extensions: {
        metadata: { user_id: "u" },
        diagnostics: {},
        context_management: { edits: [] },
        never_heard_of: 1,
      },
    });
    expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "Hello"]);
    const { headers = {}, body = {} } = sent() ?? {};
    const betas =
      api === "invoke" ? body.anthropic_beta : String(headers["anthropic-beta"]).split(",");
    expect(betas).toEqual([
      ...(api === "mantle" ? ["claude-code-20250219"] : []),
      "interleaved-thinking-2025-05-14",
      "tool-search-tool-2025-10-19",
      "context-management-2025-06-27",
    ]);
    expect(body.tools).toMatchObject([{ defer_loading: true }]);
    expect(body).toMatchObject({ context_management: { edits: [] }, metadata: { user_id: "u" } });
    const start = outcome.events[0]?.kind;
    const left = start?.case === "messageStart" ? start.value.leftOut : [];
    expect(left.map(({ what, why }) => `${what} ${leftOutReasonName(why)}`).sort()).toEqual(
      [
        "cache_control.scope unsupported",
        ...(api === "mantle" ? [] : ["claude-code-20250219 unsupported"]),
        "diagnostics unsupported",
        "fast-mode-2026-02-01 unsupported",
        "never-heard-of-2027-01-01 unsupported",
        "never_heard_of unsupported",
        "prompt-caching-scope-2026-01-05 unsupported",
      ].sort(),
    );
  });

  test("a member that the cloud refuses all the same is left out for an hour", async () => {
    open(api);
    bedrock.members = bedrock.members.filter((name) => name !== "metadata");
    const extensions = { metadata: { user_id: "u" } };
    for (const requests of [2, 3]) {
      expect(textOf((await ask({ extensions })).events)).toBe("Hello");
      expect(bedrock.provider.requests).toHaveLength(requests);
    }
    expect(providers.conditions()).toMatchObject([{ health: "good", lastFailure: undefined }]);
    await clock.advance(3_600_000);
    expect(textOf((await ask({ extensions })).events)).toBe("Hello");
    expect(bedrock.provider.requests).toHaveLength(5);
  });

  test("a beta that it refuses without a name takes all betas along", async () => {
    open(api);
    bedrock.betas = [];
    const vendorBeta = "context-1m-2025-08-07,interleaved-thinking-2025-05-14";
    for (const requests of [2, 3]) {
      expect(textOf((await ask({ origin: nativeOrigin({ vendorBeta }) })).events)).toBe("Hello");
      expect(bedrock.provider.requests).toHaveLength(requests);
    }
  });

  test("a member whose beta the client did not send is left out", async () => {
    open(api);
    const outcome = await ask({
      tools: [{ name: "f", inputSchema: { type: "object" }, extensions: { defer_loading: true } }],
      extensions: { context_management: { edits: [] } },
    });
    expect(textOf(outcome.events)).toBe("Hello");
    expect(sent()?.body).not.toHaveProperty("context_management");
    expect(JSON.stringify(sent()?.body)).not.toContain("defer_loading");
  });

  test.each([
    "tools.0.custom.anthropic_beta: Extra inputs are not permitted",
    "tools.0.custom.x stop_sequences: Extra inputs are not permitted",
    "tools.0.custom.x invalid beta flag: Extra inputs are not permitted",
    "metadata: Extra inputs are not permitted",
  ])("the refusal %j of one client's request changes no other's", async (message) => {
    open(api);
    bedrock.scripts.push(awsError(400, "ValidationException", message));
    const context = "context-1m-2025-08-07";
    expect((await ask({ origin: nativeOrigin({ vendorBeta: context }) })).apiError?.reason).toBe(
      "upstream_refused",
    );
    const extensions = { metadata: { user_id: "u" }, stop_sequences: ["x"] };
    await ask({ origin: nativeOrigin({ vendorBeta: context }), extensions });
    const { headers = {}, body = {} } = sent() ?? {};
    expect(body).toMatchObject(extensions);
    expect(String(body.anthropic_beta ?? headers["anthropic-beta"])).toBe(context);
    expect(bedrock.provider.requests).toHaveLength(2);
  });

  test("an unnamed beta takes along those of its own request alone", async () => {
    open(api);
    bedrock.betas = bedrock.betas.filter((name) => name !== "context-1m");
    await ask({ origin: nativeOrigin({ vendorBeta: "context-1m-2025-08-07" }) });
    const other = "interleaved-thinking-2025-05-14";
    await ask({ origin: nativeOrigin({ vendorBeta: `context-1m-2025-08-07,${other}` }) });
    const { headers = {}, body = {} } = sent() ?? {};
    expect(String(body.anthropic_beta ?? headers["anthropic-beta"])).toBe(other);
    expect(bedrock.provider.requests).toHaveLength(3);
  });

  test("a search of tools leaves nothing of itself where it is left out", async () => {
    open(api);
    const messages = [
      { role: "user", content: "Hi" },
      {
        role: "assistant",
        content: [
          { type: "server_tool_use", id: "s1", name: "tool_search_tool_regex", input: {} },
          { type: "tool_search_tool_result", tool_use_id: "s1", content: { type: "x" } },
        ],
      },
      {
        role: "assistant",
        content: [{ type: "tool_use", id: "t1", name: "find", input: {} }],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "t1",
            content: [{ type: "tool_reference", tool_name: "f" }],
          },
        ],
      },
    ];
    const tools = [{ type: "tool_search_tool_regex_20251119", name: "tool_search_tool_regex" }];
    const body = { messages, tools, tool_choice: { type: "auto" }, max_tokens: 50, model: "m" };
    const request = decodeRequest(body, { version: "2023-06-01", beta: "" });
    const outcome = await ask({ ...request, model: requestOf("Hi").model });
    expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "Hello"]);
    const got = sent()?.body ?? {};
    expect(got).not.toHaveProperty("tools");
    expect(got).not.toHaveProperty("tool_choice");
    expect(JSON.stringify(got)).not.toContain("tool_search");
    expect(got.messages).toMatchObject([{}, { content: [{ id: "t1" }] }, { role: "user" }]);
    expect(got.messages).not.toMatchObject([{}, {}, { content: [{ content: [] }] }]);
  });

  test("a member without which the request is another one is refused", async () => {
    open(api);
    bedrock.members = bedrock.members.filter((name) => name !== "system");
    const system = { content: [{ kind: { case: "text" as const, value: { text: "Be brief." } } }] };
    const { apiError } = await ask({ system });
    expect(apiError?.reason).toBe("upstream_refused");
    expect(bedrock.provider.requests).toHaveLength(1);
  });

  test("an API key is sent as it is", async () => {
    open(api, ", credential_env: BEDROCK_KEY", { BEDROCK_KEY: "bedrock-api-key-abc" });
    bedrock.keys = ["bedrock-api-key-abc"];
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(sent()?.headers.authorization).toBe("Bearer bedrock-api-key-abc");
  });

  test("a clock that is 20 minutes off signs by AWS's from then on", async () => {
    open(api);
    for (const minutes of [20, -20]) {
      bedrock.now = () => Date.now() + minutes * 60_000;
      const before = bedrock.provider.requests.length;
      for (const requests of [2, 3]) {
        expect(textOf((await ask()).events)).toBe("Hello");
        expect(bedrock.provider.requests).toHaveLength(before + requests);
      }
    }
  });
});

test("an empty variable holds no API key", async () => {
  open("messages", "", { AWS_BEARER_TOKEN_BEDROCK: "" });
  expect(textOf((await ask()).events)).toBe("Hello");
});

test("a refused request is not sent once more for a client that has left", async () => {
  open("messages");
  bedrock.members = bedrock.members.filter((name) => name !== "metadata");
  const client = new AbortController();
  client.abort();
  const asked = providerRequestFor(requestOf("Hi", { extensions: { metadata: {} } }));
  const outcome = await readAll(providers, { ...asked, client: client.signal });
  expect(outcome.apiError?.reason).toBe("upstream_refused");
  expect(bedrock.provider.requests).toHaveLength(1);
});

test("a refusal before the request is sent once more takes its acceptance back", async () => {
  open("messages");
  bedrock.members = bedrock.members.filter((name) => name !== "metadata");
  const { ask: asked } = await ask({ extensions: { metadata: {} } });
  expect([asked.accepted, asked.rejected]).toEqual([2, 1]);
});

test("refusals of one wrong clock are reported once", async () => {
  open("messages");
  bedrock.now = () => Date.now() + 20 * 60_000;
  await Promise.all([ask(), ask(), ask()]);
  const adjusted = errors.mock.calls.filter(([{ code }]) => code === "provider_adjusted");
  expect(adjusted).toHaveLength(1);
});

test("a refusal of status 401 without a name renews the credential", async () => {
  open("messages");
  const html = { status: 401, headers: { "content-type": "text/html" }, writes: ["<html>"] };
  bedrock.scripts.push(html);
  expect(textOf((await ask()).events)).toBe("Hello");
  providers = openProviders(catalogOf("invoke", bedrock.provider.url), { clock, log });
  bedrock.scripts.push(html);
  expect(await providers.countTokens(providerRequestFor(requestOf("Hi")))).toEqual({
    inputTokens: 21,
  });
});

test.each([
  "https://bedrock-mantle.us-east-1.api.aws",
  "https://vpce-0abc-1.bedrock-mantle.us-east-1.vpce.amazonaws.com",
])("requests to %s are signed for mantle", (url) => {
  expect(awsServiceOf(url)).toBe("bedrock-mantle");
});

test.each([0, -1, Number.NaN])("a credential that lives %d ms is none", async (lifeMs) => {
  const fetched = vi.fn(async () => ({ value: "gone", lifeMs }));
  const renewal = new Renewal(clock, "a test", fetched);
  open("messages");
  for (let times = 0; times < 20; times++)
    await expect(async () => renewal.get()).rejects.toThrow("it gives a credential that has ended");
  expect(fetched).toHaveBeenCalledOnce();
});

test("an API key may come from a file", async () => {
  const folder = mkdtempSync(join(tmpdir(), "bedrock-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "key");
  writeFileSync(file, "bedrock-api-key-of-a-file\n");
  bedrock.keys = ["bedrock-api-key-of-a-file"];
  open("messages", `, credential_file: ${JSON.stringify(file)}`);
  expect(textOf((await ask()).events)).toBe("Hello");
});

test("counts come from mantle and from invoke", async () => {
  for (const [api, inputTokens] of [
    ["mantle", 21],
    ["invoke", 21],
    ["messages", undefined],
  ] as const) {
    open(api);
    const counted = await providers.countTokens(providerRequestFor(requestOf("Hi")));
    expect(counted?.inputTokens).toBe(inputTokens);
  }
});

test("a model that invoke cannot count with is not asked again for an hour", async () => {
  open("invoke");
  const count = () => providers.countTokens(providerRequestFor(requestOf("Hi")));
  bedrock.scripts.push(
    awsError(400, "ValidationException", "The provided model doesn't support counting tokens."),
  );
  for (let times = 0; times < 3; times++) expect(await count()).toBeUndefined();
  expect(bedrock.provider.requests).toHaveLength(1);
  await clock.advance(3_600_000);
  expect(await count()).toEqual({ inputTokens: 21 });
});

test.each([
  ["ValidationException", "max_tokens: must be positive"],
  ["ValidationException", "tools.0.custom.support count: Extra inputs are not permitted"],
  ["ExpiredTokenException", "The security token included in the request is expired"],
])("one count that is refused with %s, %s, stops no others", async (type, message) => {
  open("invoke");
  const count = () => providers.countTokens(providerRequestFor(requestOf("Hi")));
  bedrock.scripts.push(awsError(400, type, message));
  await count().catch(() => {});
  expect(await count()).toEqual({ inputTokens: 21 });
});

const failures: readonly [status: number, type: string, outcome: string, alarm: RegExp | null][] = [
  [429, "ThrottlingException", "overloaded failed 429", null],
  [429, "ModelNotReadyException", "overloaded failed 429", null],
  [400, "ServiceQuotaExceededException", "upstream_error failed 400", /a quota of our account/],
  [400, "ValidationException", "upstream_refused refused 400", null],
  [403, "AccessDeniedException", "upstream_error failed 403", /refuses our account: .*the reason/],
  [404, "ResourceNotFoundException", "upstream_error failed 404", /no model|api: invoke/],
  [408, "ModelTimeoutException", "timeout timeout 408", null],
  [424, "ModelErrorException", "upstream_error failed 424", null],
  [500, "InternalServerException", "upstream_error failed 500", null],
  [503, "ServiceUnavailableException", "upstream_error failed 503", null],
];

describe.each(["messages", "invoke"] as const)("a failure over %s", (api) => {
  test.each(failures)("%i %s is %s", async (status, type, expected, alarm) => {
    open(api);
    const script = awsError(status, type, "the reason");
    bedrock.scripts.push(script, script, script);
    const { apiError, ask: asked } = await ask();
    const [first] = asked.run?.attempts() ?? [];
    expect(`${apiError?.reason} ${attemptOutcomeName(first?.outcome ?? 0)} ${first?.status}`).toBe(
      expected,
    );
    const [reported] = alarms();
    if (alarm) expect(reported).toMatch(alarm);
    else expect(reported).toBeUndefined();
    const reason = providers.conditions()[0]?.lastFailure?.reason;
    if (first?.outcome !== AttemptOutcome.REFUSED) expect(reason).toContain("the reason");
  });
});

test("a quota of the account pauses the provider for a minute", async () => {
  open("messages");
  bedrock.scripts.push(awsError(400, "ServiceQuotaExceededException", "no more"));
  await ask();
  expect(providers.conditions()).toMatchObject([{ waitingModels: [model] }]);
  await clock.advance(60_000);
  expect(providers.conditions()).toMatchObject([{ waitingModels: [] }]);
});

test("the daily quota of Bedrock pauses for ten minutes", async () => {
  open("messages");
  const words = "Too many tokens per day, please wait before trying again.";
  bedrock.scripts.push(awsError(429, "ThrottlingException", words));
  await ask();
  await clock.advance(599_000);
  expect(providers.conditions()).toMatchObject([{ waitingModels: [model] }]);
});

test("a path that Bedrock does not know names the other surface", async () => {
  open("messages");
  bedrock.scripts.push(unknownOperation);
  const { apiError } = await ask({ origin: nativeOrigin({ streamed: false }), maxTokens: 100 });
  expect(apiError?.reason).toBe("upstream_error");
  expect(alarms()).toEqual([expect.stringContaining("set api: invoke")]);
});

describe("frames of an answer over invoke", () => {
  const play = (...writes: Uint8Array[]) => {
    bedrock.scripts.push({
      headers: { "content-type": "application/vnd.amazon.eventstream" },
      writes,
    });
  };

  test.each([
    ["throttlingException", "overloaded"],
    ["modelTimeoutException", "timeout"],
    ["internalServerException", "upstream_error"],
  ])(
    "an exception %s in the first frame is a failed call, and another one is made",
    async (name) => {
      open("invoke");
      play(exceptionFrame(name, "the reason"));
      const outcome = await ask();
      expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "Hello"]);
      expect(outcome.ask.run?.attempts().map(({ outcome: one }) => one)).toEqual([
        name === "modelTimeoutException" ? AttemptOutcome.TIMED_OUT : AttemptOutcome.FAILED,
        AttemptOutcome.DELIVERED,
      ]);
    },
  );

  test("an exception after content ends the answer", async () => {
    open("invoke");
    const frames = awsFrames({ text: ["Hel", "lo"] });
    play(...frames.slice(0, 4), exceptionFrame("modelStreamErrorException", "the reason"));
    const outcome = await ask();
    expect([outcome.apiError?.reason, textOf(outcome.events)]).toEqual(["upstream_error", "Hello"]);
    expect(attemptsOf(outcome)).toEqual(["aws broke 200"]);
  });

  test("a flipped bit and a cut frame end the answer, and are no verdict on the others", async () => {
    open("invoke");
    const frames = awsFrames({ text: ["Hel", "lo"] });
    const broken = Uint8Array.from(frames[3] ?? []);
    broken[40] = (broken[40] ?? 0) ^ 1;
    for (const last of [broken, (frames[3] ?? broken).subarray(0, 50)]) {
      play(...frames.slice(0, 3), last);
      const outcome = await ask();
      expect([outcome.apiError?.reason, textOf(outcome.events)]).toEqual(["upstream_error", "Hel"]);
      expect(providers.conditions()).toMatchObject([{ health: "good" }]);
    }
  });

  test("other frames are skipped", async () => {
    open("invoke");
    const [first, ...rest] = awsFrames({ text: ["Hel", "lo"] });
    const other = awsFrame({ ":message-type": "event", ":event-type": "new" }, "{}");
    play(first ?? other, other, ...rest);
    expect(textOf((await ask()).events)).toBe("Hello");
  });
});

describe("credentials of a container", () => {
  let source: FakeProvider;
  let given: AwsCredentials;
  let lifeMs: number;
  beforeEach(async () => {
    source = await startFakeProvider();
    given = { ...keys, sessionToken: "session-token-0123456789abcdef" };
    lifeMs = 3_600_000;
    for (const name of ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]) vi.stubEnv(name, "");
    vi.stubEnv("AWS_CONTAINER_CREDENTIALS_FULL_URI", `${source.url}/credentials`);
    source.always(() => {
      bedrock.credentials = [given];
      const { accessKeyId, secretAccessKey, sessionToken } = given;
      const body = {
        ...{ AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, Token: sessionToken },
        Expiration: new Date(Date.now() + lifeMs).toISOString(),
      };
      return { headers: { "content-type": "application/json" }, writes: [JSON.stringify(body)] };
    });
  });
  afterEach(() => source.stop());

  test("are fetched once for many requests, and again five minutes before their end", async () => {
    open("messages");
    const all = await Promise.all(Array.from({ length: 50 }, () => ask()));
    expect(all.map(({ events }) => textOf(events))).toEqual(all.map(() => "Hello"));
    expect(source.requests).toHaveLength(1);
    await clock.advance(lifeMs - 301_000);
    await ask();
    expect(source.requests).toHaveLength(1);
    await clock.advance(2_000);
    await Promise.all(Array.from({ length: 50 }, () => ask()));
    expect(source.requests).toHaveLength(2);
  });

  test("that ended early are replaced within the call", async () => {
    open("messages");
    await ask();
    given = { ...given, sessionToken: "session-token-of-later-0123456789" };
    bedrock.credentials = [given];
    await clock.advance(10_000);
    const outcome = await ask();
    expect(textOf(outcome.events)).toBe("Hello");
    expect(attemptsOf(outcome)).toEqual(["aws delivered 200"]);
    expect(source.requests).toHaveLength(2);
  });

  test("that cannot be had are an alarm, and their source is not asked once per request", async () => {
    source.always({ status: 404, writes: ["gone"] });
    open("messages");
    for (let times = 0; times < 5; times++)
      expect((await ask()).apiError?.reason).toBe("upstream_error");
    const asked = source.requests.length;
    expect(alarms()[0]).toMatch(/^no credential can be had from AWS's chain: /);
    await ask();
    expect(source.requests).toHaveLength(asked);
    expect(bedrock.provider.requests).toEqual([]);
  });

  test("are in no error and no reason", async () => {
    open("messages");
    const leak = `key ${given.secretAccessKey} and ${given.sessionToken} are bad`;
    bedrock.scripts.push(awsError(500, "InternalServerException", leak));
    bedrock.scripts.push(awsError(400, "ValidationException", leak));
    const { apiError } = await ask();
    expect(apiError?.reason).toBe("upstream_refused");
    const said = JSON.stringify([apiError?.facts, providers.conditions(), logged()]);
    expect(said).toContain("[redacted] are bad");
    for (const secret of [given.secretAccessKey, given.sessionToken ?? ""])
      expect(said).not.toContain(secret);
  });
});

test("a role is taken on with the credentials of the chain", async () => {
  const sts = await startFakeProvider();
  onTestFinished(() => sts.stop());
  vi.stubEnv("AWS_ENDPOINT_URL_STS", sts.url);
  const role = {
    accessKeyId: "ASIAROLE",
    secretAccessKey: "role-secret",
    sessionToken: "role-token",
  };
  bedrock.credentials = [role];
  sts.always({
    headers: { "content-type": "text/xml" },
    writes: [
      `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
       <AssumedRoleUser><Arn>arn:aws:sts::111122223333:assumed-role/gateway/s</Arn>
       <AssumedRoleId>AROA:s</AssumedRoleId></AssumedRoleUser>
       <Credentials><AccessKeyId>${role.accessKeyId}</AccessKeyId>
       <SecretAccessKey>${role.secretAccessKey}</SecretAccessKey>
       <SessionToken>${role.sessionToken}</SessionToken>
       <Expiration>${new Date(Date.now() + 3_600_000).toISOString()}</Expiration></Credentials>
       </AssumeRoleResult></AssumeRoleResponse>`,
    ],
  });
  const arn = "arn:aws:iam::111122223333:role/gateway";
  open("messages", `, assume_role: "${arn}", external_id: ext-1`);
  expect(textOf((await ask()).events)).toBe("Hello");
  expect(Object.fromEntries(new URLSearchParams(sts.requests[0]?.bodyText))).toMatchObject({
    Action: "AssumeRole",
    RoleArn: arn,
    ExternalId: "ext-1",
  });
  expect(sts.requests[0]?.headers.authorization).toContain(keys.accessKeyId);
});

test("the APIs of OpenAI at AWS are signed, too", async () => {
  const url = bedrock.provider.url;
  providers = openProviders(
    catalogFor(
      { aws: { kind: "openai", url: `${url}/openai`, more: "auth: aws, region: us-east-1" } },
      `[[{ provider: aws, model: openai.gpt-oss-120b }]]`,
    ),
    { clock, log },
  );
  bedrock.openai = chatStream({ text: ["Hello"] });
  expect(textOf((await ask()).events)).toBe("Hello");
  expect(sent()?.path).toBe("/openai/v1/chat/completions");
});

test("any request is signed as another library signs it", async () => {
  const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 });
  const body = fc.string({ unit: "grapheme", maxLength: 200 });
  const session = fc.option(fc.stringMatching(/^[A-Za-z0-9+/=]{1,60}$/), { nil: undefined });
  await fc.assert(
    fc.asyncProperty(name, body, session, async (model, text, sessionToken) => {
      vi.stubEnv("AWS_SESSION_TOKEN", sessionToken ?? "");
      const path = `/model/${encodeURIComponent(model)}/invoke`;
      const authenticator = awsAuthenticator(
        { region: "eu-central-1", service: "bedrock", baseUrl: bedrock.provider.url },
        { clock, call: async () => Promise.reject(new Error("no call")), report: () => {} },
      );
      const given = await authenticator.headers({
        ...{ method: "POST", path, headers: [], body: Buffer.from(text) },
      });
      const pairs = given.flatMap((one, at) => (at % 2 ? [] : [[one, given[at + 1] ?? ""]]));
      const headers = Object.fromEntries(pairs);
      const { host } = new URL(bedrock.provider.url);
      bedrock.credentials = [{ ...keys, ...(sessionToken && { sessionToken }) }];
      const request = { method: "POST", path, headers: { host, ...headers }, bodyText: text };
      expect(refusalOf(bedrock, request)).toBeUndefined();
    }),
    { numRuns: 50 },
  );
});
