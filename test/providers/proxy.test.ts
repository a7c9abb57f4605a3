// Providers behind a company's proxy and its authority: a real proxy, real TLS, and what operators
// hear when either does not let us through.

import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Outbound, parseDirectHosts, parseProxy } from "../../src/base/outbound.ts";
import { catalogFor } from "../support/catalog.ts";
import { createAuthority } from "../support/certificates.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import {
  type ForwardProxy,
  proxyPassword,
  startForwardProxy,
  startTlsFront,
} from "../support/forward-proxy.ts";
import { recordLog } from "../support/log.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { nativeEvents, nativeStream } from "../support/provider-answers.ts";
import {
  attemptsOf,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  startAnswer,
  textOf,
} from "../support/providers.ts";

const authority = createAuthority("a company");
const pair = authority.issue("model.example", { host: "model.example" });

let folder: string;
let caFile: string;
let provider: FakeProvider;
let other: FakeProvider;
let front: Awaited<ReturnType<typeof startTlsFront>>;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "proxy-"));
  caFile = join(folder, "ca.pem");
  writeFileSync(caFile, authority.certificate);
});
afterAll(() => rmSync(folder, { recursive: true }));
beforeEach(async () => {
  [provider, other] = [await startFakeProvider(), await startFakeProvider()];
  front = await startTlsFront(pair, provider.port);
  provider.always(nativeStream({ text: ["by the ", "proxy"] }));
  other.always(nativeStream({ text: ["directly"] }));
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  front.stop();
  await Promise.all([provider.stop(), other.stop()]);
});

async function startProxy(options?: Parameters<typeof startForwardProxy>[0]) {
  const proxy = await startForwardProxy(options);
  cleanups.push(() => proxy.stop());
  return proxy;
}

type Way = {
  scheme?: "http" | "https";
  /** Path of its `ca_file`. Default: that of the authority of the provider. */
  ca?: string | undefined;
  more?: string;
  env?: NodeJS.ProcessEnv;
  outbound?: Outbound;
  clock?: ManualClock;
};

/** The provider as `model.example`, and after it one that is called directly. */
function open({ scheme = "https", more = "", env = {}, outbound, clock, ...way }: Way) {
  const port = scheme === "https" ? front.port : provider.port;
  const ca = "ca" in way ? way.ca : scheme === "https" ? caFile : undefined;
  const settings = ["credential_env: KEY", ...(ca ? [`ca_file: ${ca}`] : []), more];
  const { log, lines } = recordLog();
  const providers = openProviders(
    catalogFor({
      far: {
        kind: "anthropic",
        url: `${scheme}://model.example:${port}`,
        more: settings.filter((one) => one !== "").join(", "),
      },
      near: { kind: "anthropic", url: other.url, more: "proxy: none" },
    }),
    { env: { KEY: "a-key-of-the-operator", ...env }, log, outbound, ...(clock && { clock }) },
  );
  cleanups.push(() => providers.close());
  const alarms = () => lines().flatMap((one) => (one.code === "provider_alarm" ? [one.msg] : []));
  return { providers, lines, alarms };
}

/** Of `proxy: { url_env: EGRESS }`. */
const own = (proxy: Pick<ForwardProxy, "url">) => ({
  more: "proxy: { url_env: EGRESS }",
  env: { EGRESS: proxy.url },
});

describe.for([
  ["https by CONNECT", "https", { hasPassword: false }],
  ["https by CONNECT with a password", "https", { hasPassword: true }],
  ["http as it is", "http", { hasPassword: false }],
  ["http as it is with a password", "http", { hasPassword: true }],
] as const)("%s", ([, scheme, options]) => {
  test("the proxy of the environment is taken, and the provider does not hear of it", async () => {
    const proxy = await startProxy(options);
    const outbound = new Outbound({ [scheme]: parseProxy(proxy.url) });
    const { providers } = open({ scheme, outbound });
    const outcome = await readAll(providers, "Hi");
    expect([textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      "by the proxy",
      ["far delivered 200"],
    ]);
    const [asked] = proxy.seen;
    const target = `model.example:${scheme === "https" ? front.port : provider.port}`;
    expect([asked?.method, asked?.url]).toEqual(
      scheme === "https" ? ["CONNECT", target] : ["POST", `http://${target}/v1/messages`],
    );
    expect(asked?.headers.host).toBe(target);
    expect("proxy-authorization" in (asked?.headers ?? {})).toBe(options.hasPassword);
    const [received] = provider.requests;
    expect(received?.headers).toMatchObject({ host: target, "x-api-key": "a-key-of-the-operator" });
    expect(Object.keys(received?.headers ?? {}).filter((name) => /proxy/.test(name))).toEqual([]);
  });

  test("40 streams at once have connections of their own, which are kept", async () => {
    const proxy = await startProxy(options);
    const gate = new Gate();
    provider.always(() => {
      const [first = "", ...rest] = nativeEvents({ text: ["by the ", "proxy"] });
      return { ...nativeStream(), writes: [first, gate, ...rest] };
    });
    const { providers } = open({ scheme, ...own(proxy) });
    const round = Array.from({ length: 40 }, () => readAll(providers, "Hi"));
    await provider.received(40);
    gate.open();
    const texts = (await Promise.all(round)).map(({ events }) => textOf(events));
    expect(texts).toEqual(Array.from({ length: 40 }, () => "by the proxy"));
    expect([proxy.seen.length, await provider.connections()]).toEqual([40, 40]);
    // As soon as their ends are read, they serve other calls.
    const askOnce = async () => {
      const before = proxy.seen.length;
      await readAll(providers, "Hi");
      return proxy.seen.length - before;
    };
    await expect.poll(askOnce).toBe(scheme === "https" ? 0 : 1);
  });

  test("an abort in the middle of a stream closes at the provider", async () => {
    const proxy = await startProxy(options);
    const [first = "", ...rest] = nativeEvents({ text: ["by the ", "proxy"] });
    provider.always({ ...nativeStream(), writes: [first, new Gate(), ...rest] });
    const { providers } = open({ scheme, ...own(proxy) });
    const ask = providerRequestFor(requestOf("Hi"));
    const answer = await startAnswer(providers, ask);
    const request = await provider.received(1);
    ask.abort.abort();
    const read = async () => {
      for await (const _ of answer);
    };
    await expect(read()).rejects.toThrow();
    expect(await request.over).toEqual({ by: "client" });
  });

  test("a wrong password is an alarm, and another provider answers", async () => {
    const proxy = await startProxy({ hasPassword: true });
    const wrong = { url: `http://gateway:not-that-one@localhost:${proxy.port}` };
    const { providers, alarms } = open({ scheme, ...own(wrong) });
    const outcome = await readAll(providers, "Hi");
    expect(textOf(outcome.events)).toBe("directly");
    expect(alarms()).toEqual(["the proxy refuses our credential"]);
    expect(provider.requests).toEqual([]);
  });

  test("a proxy that is not there is an alarm that says proxy", async () => {
    const proxy = await startForwardProxy();
    proxy.stop();
    const { providers, alarms } = open({ scheme, ...own(proxy) });
    const outcome = await readAll(providers, "Hi");
    expect([textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      "directly",
      ["far failed 0", "near delivered 200"],
    ]);
    expect(alarms()).toEqual(["the proxy cannot be reached (ECONNREFUSED)"]);
  });

  test("a proxy that closes is no answer, and another provider answers", async () => {
    const proxy = await startProxy(options);
    proxy.become("closes");
    const { providers, alarms } = open({ scheme, ...own(proxy) });
    expect(textOf((await readAll(providers, "Hi")).events)).toBe("directly");
    expect(alarms()).toEqual(scheme === "https" ? ["the proxy closes the connection"] : []);
  });
});

test.for([403, 502, 301])("a proxy that answers CONNECT with %s is an alarm", async (status) => {
  const proxy = await startProxy();
  proxy.become(status);
  const { providers, alarms } = open(own(proxy));
  expect(textOf((await readAll(providers, "Hi")).events)).toBe("directly");
  expect(alarms()).toEqual([`the proxy answers ${status} for model.example:${front.port}`]);
});

test("a proxy that stalls is given up after connect_ms", async () => {
  const proxy = await startProxy();
  proxy.become("stalls");
  const { more, env } = own(proxy);
  const { providers, alarms } = open({ more: `${more}, connect_ms: 50`, env });
  const outcome = await readAll(providers, "Hi");
  expect([textOf(outcome.events), attemptsOf(outcome)]).toEqual([
    "directly",
    ["far timeout 0", "near delivered 200"],
  ]);
  expect(alarms()).toEqual([`the proxy does not answer for model.example:${front.port}`]);
});

test("a proxy over TLS is trusted by the same authorities, and named when it is not", async () => {
  const proxy = await startProxy({ hasPassword: true, tls: authority.issue("proxy") });
  const { providers } = open(own(proxy));
  expect(textOf((await readAll(providers, "Hi")).events)).toBe("by the proxy");
  const plain = open({ scheme: "http", ...own(proxy) });
  expect(textOf((await readAll(plain.providers, "Hi")).events)).toBe("directly");
  expect(plain.alarms()).toEqual([
    "the proxy has a certificate of an authority that is not known here",
  ]);
});

test("a provider of an authority that is not known is an alarm that says so", async () => {
  const proxy = await startProxy();
  const stranger = join(folder, "stranger.pem");
  writeFileSync(stranger, createAuthority("another company").certificate);
  for (const ca of [stranger, undefined]) {
    const { providers, alarms } = open({ ...own(proxy), ca });
    const outcome = await readAll(providers, "Hi");
    expect([textOf(outcome.events), attemptsOf(outcome)]).toEqual([
      "directly",
      ["far failed 0", "near delivered 200"],
    ]);
    expect(alarms()).toEqual([
      expect.stringMatching(/^the provider has a certificate of an authority that is not known/),
    ]);
  }
  expect(provider.requests).toEqual([]);
});

test("proxy: none goes directly, NO_PROXY too, and its own proxy goes before both", async () => {
  const proxy = await startProxy();
  const https = parseProxy(proxy.url);
  const direct = parseDirectHosts("model.example");
  for (const [way, count] of [
    [{ outbound: new Outbound({ https }), more: "proxy: none" }, 0],
    [{ outbound: new Outbound({ https, direct }) }, 0],
    [{ outbound: new Outbound({ https, direct }), ...own(proxy) }, 1],
  ] as const) {
    const { providers } = open(way);
    // No name server knows model.example.
    await readAll(providers, "Hi");
    expect(proxy.seen.length).toBe(count);
  }
});

test("the tokens of a cloud go out as the requests of its provider, and say what failed", async () => {
  const proxy = await startProxy();
  proxy.become(403);
  const { log, lines } = recordLog();
  const cloud =
    "{ kind: azure, resource: ours, api: messages, auth: entra, tenant: theirs, client: us, " +
    "credential_env: KEY, proxy: { url_env: EGRESS } }";
  const text = catalogFor({
    far: { kind: "anthropic", url: "https://a.example" },
    near: { kind: "anthropic", url: other.url },
  }).replace(/^( {2}far: ).*$/m, `$1${cloud}`);
  const env = { KEY: "a-secret-of-the-operator", EGRESS: proxy.url };
  const providers = openProviders(text, { env, log });
  cleanups.push(() => providers.close());
  expect(textOf((await readAll(providers, "Hi")).events)).toBe("directly");
  expect(proxy.seen.map(({ method, url }) => [method, url])).toEqual([
    ["CONNECT", "login.microsoftonline.com:443"],
  ]);
  expect(lines().find(({ code }) => code === "provider_alarm")?.msg).toMatch(
    /: the proxy answers 403 for login\.microsoftonline\.com$/,
  );
});

test("a replaced ca_file counts for new connections, without a restart", async () => {
  const clock = new ManualClock();
  const proxy = await startProxy();
  writeFileSync(caFile, createAuthority("another company").certificate);
  const { providers, alarms, lines } = open({ ...own(proxy), clock });
  expect(textOf((await readAll(providers, "Hi")).events)).toBe("directly");
  expect(alarms()).toEqual([
    expect.stringMatching(/^the provider has a certificate of an authority that is not known here/),
  ]);
  const hear = (message: string) =>
    passUntil(
      () => clock.advance(10_000),
      () => expect(lines().map(({ msg }) => msg)).toContain(message),
    );
  writeFileSync(caFile, "no certificate");
  await hear("the ca_file of far cannot be read again: what it held before stays in use");
  const next = join(folder, "next.pem");
  writeFileSync(next, authority.certificate);
  renameSync(next, caFile);
  await hear("new ca_file of far in use");
  expect(textOf((await readAll(providers, "Hi")).events)).toBe("by the proxy");
});

test("the URL of the proxy and its password are in no log, reason or error", async () => {
  const proxy = await startProxy({ hasPassword: true });
  const gone = await startForwardProxy({ hasPassword: true });
  gone.stop();
  const texts: string[] = [];
  const wrong = { ...proxy, url: proxy.url.replace(proxyPassword, `not-${proxyPassword}`) };
  for (const [{ url, port }, mood] of [
    [proxy, 502],
    [proxy, "closes"],
    [gone, "well"],
    [wrong, "well"],
  ] as const)
    for (const scheme of ["http", "https"] as const) {
      proxy.become(mood);
      const { providers, lines } = open({ scheme, ...own({ url }) });
      const { apiError } = await readAll(providers, "Hi");
      const said = JSON.stringify([lines(), providers.conditions(), String(apiError)]);
      texts.push(said);
      expect(said).not.toMatch(new RegExp(`${proxyPassword}|:${port}\\b|Basic `));
    }
  expect(texts.join()).toContain("the proxy");
});
