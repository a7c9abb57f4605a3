// The packages of AWS cost 45 ms and 10 MiB, so only a provider that signs for AWS loads them.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const root = new URL("../../", import.meta.url);

/** The modules of AWS that a program loads, one of each package. */
async function modulesOf(program: string): Promise<string[]> {
  const script = `
    import { registerHooks } from "node:module";
    const loaded = new Set();
    registerHooks({
      load(url, context, next) {
        const [, name] = /node_modules\\/(@(?:aws-sdk|smithy)\\/[^/]+)/.exec(url) ?? [];
        if (name) loaded.add(name);
        return next(url, context);
      },
    });
    ${program}
    console.log(JSON.stringify([...loaded].sort()));
    process.exit();`;
  const args = ["--input-type=module", "--no-warnings", "-e", script];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root });
  return JSON.parse(stdout);
}

const load = (file: string) => `await import(${JSON.stringify(`./src/${file}.ts`)})`;

const open = (provider: string) => `
  const { createProviders } = ${load("providers/providers")};
  const { readCatalogFile } = ${load("config/catalog")};
  const { createLog } = ${load("base/log")};
  const file = readCatalogFile(\`
models:
  - { id: m, tier: opus, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000,
      max_output_tokens: 64000, thinking: none, routes: [[{ provider: one }]],
      price: { input: 1, output: 1, thinking: 1, cache_write_5m: 1, cache_write_1h: 1,
               cache_read: 1 } }
providers:
  one: ${provider}
\`);
  const providers = createProviders({ file, log: createLog("silent"), env: {} });`;

test("the whole program without a provider of AWS loads not one of their modules", async () => {
  const program = `${load("server/gateway")};`;
  const vendor = open('{ kind: anthropic, base_url: "http://127.0.0.1:9" }');
  expect(await modulesOf(program + vendor)).toEqual([]);
});

test("the first request to a provider of AWS loads them", async () => {
  const counting = `await providers.countTokens({
    request: { model: "m", messages: [], tools: [], vendorBeta: "", vendorVersion: "" },
    affinity: () => "", accountId: "a", signal: AbortSignal.timeout(5_000),
  }).catch(() => {});`;
  const settings =
    '{ kind: bedrock, region: us-east-1, base_url: "http://127.0.0.1:9", api: invoke }';
  expect(await modulesOf(open(settings))).toEqual([]);
  expect(await modulesOf(open(settings) + counting)).toEqual(
    expect.arrayContaining(["@aws-sdk/credential-providers", "@smithy/signature-v4"]),
  );
});
