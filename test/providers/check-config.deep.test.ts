// `npm run check-config -- FILE --providers`, behind a proxy and with a private authority.

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { catalogFor } from "../support/catalog.ts";
import { createAuthority } from "../support/certificates.ts";
import { proxyPassword, startForwardProxy, startTlsFront } from "../support/forward-proxy.ts";
import { startFakeProvider } from "../support/provider.ts";
import { errorAnswer, nativeAnswer } from "../support/provider-answers.ts";

const script = join(import.meta.dirname, "../../src/cli/check-config.ts");

/** The exit code, and the whole output. */
function run(args: readonly string[], env: NodeJS.ProcessEnv) {
  return new Promise<{ code: unknown; output: string }>((resolve) =>
    execFile(process.execPath, [script, ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, output: stdout + stderr }),
    ),
  );
}

test("the command calls by HTTPS_PROXY with NODE_EXTRA_CA_CERTS, and tells how it went", async () => {
  const folder = mkdtempSync(join(tmpdir(), "check-config-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const authority = createAuthority("a company");
  const provider = await startFakeProvider();
  onTestFinished(() => provider.stop());
  const pair = authority.issue("model.example", { host: "model.example" });
  const front = await startTlsFront(pair, provider.port);
  onTestFinished(() => front.stop());
  const proxy = await startForwardProxy({ hasPassword: true });
  onTestFinished(() => proxy.stop());
  const url = `https://model.example:${front.port}`;
  const more = "credential_env: KEY";
  const path = join(folder, "catalog.yaml");
  writeFileSync(path, catalogFor({ vendor: { kind: "anthropic", url, more } }));
  const authorities = join(folder, "ca.pem");
  writeFileSync(authorities, authority.certificate);
  const env = { KEY: "a-key-of-the-operator", HTTPS_PROXY: proxy.url };
  const trusting = { ...env, NODE_EXTRA_CA_CERTS: authorities };
  const of = "as provider-model (model-haiku-4.5)";

  provider.always(nativeAnswer({ text: ["Hello"] }));
  const well = await run([path, "--providers"], trusting);
  expect(well.output).toMatch(
    /\n {2}vendor: answered with status 200 in \d+ ms, as provider-model \(model-haiku-4\.5\)\n$/,
  );
  expect(well.code).toBe(0);
  expect(proxy.seen.length).toBe(1);

  const strange = await run(["--providers", path], env);
  expect(strange.output).toMatch(/vendor: failed with status 0 in \d+ ms.*UNABLE_TO_VERIFY/);
  expect(strange.code).toBe(1);

  provider.always(errorAnswer(401, "authentication_error", "invalid x-api-key"));
  const refused = await run([path, "--providers"], trusting);
  expect(refused.output).toContain(`ms, ${of}: authentication_error: invalid x-api-key`);
  expect(refused.code).toBe(1);

  proxy.become(403);
  const shut = await run([path, "--providers"], trusting);
  expect(shut.output).toContain(
    `ms, ${of}: the proxy answers 403 for model.example:${front.port}\n`,
  );
  for (const { output } of [well, strange, refused, shut])
    expect(output).not.toMatch(new RegExp(`${proxyPassword}|:${proxy.port}|a-key-of`));

  const without = await run([path, "--providers"], { NODE_EXTRA_CA_CERTS: authorities });
  expect(without.output).toContain("KEY holds no credential");
  expect(without.code).toBe(78);
  const ranged = await run([path, "--providers"], { ...trusting, no_proxy: "10.0.0.0/33" });
  expect(ranged.output).toContain("NO_PROXY: must list hosts, .suffixes or *");
  expect(ranged.code).toBe(78);
  // Without the flag, nobody is called.
  const asked = proxy.seen.length;
  expect((await run([path], trusting)).code).toBe(0);
  expect(proxy.seen.length).toBe(asked);
});
