// The samples of the documents run as they are printed, against a started gateway. Only its
// addresses are put in place of those that the documents name.

import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { bitcoinAccountKey, evmAccountKey } from "../support/onchain.ts";
import { documents, readSamples, root } from "./documents.ts";

const run = promisify(execFile);

// Almost every command starts a process of its own, and some start three.

/** Shell samples that do not run here, by a part of their text, with the reason. */
const byHand = {
  "npm ci --omit=dev\nnpm start": "test/server/process.deep.test.ts starts gateways",
  "METRICS_PORT=9464 npm start": "test/server/metrics.test.ts reads metrics",
  "npx --package": "test/deploy/package.deep.test.ts starts the package",
  "npm ci && npm test": "runs this very suite",
  "npm ci\nnpm test": "runs this very suite",
  "npm run test:deep": "runs this very suite",
  "PROVIDER_KEY=… npm start": "needs a credential of a provider",
  "HTTPS_PROXY=http://gateway": "test/base/outbound.test.ts goes through proxies",
  "ROLE=core PUBLIC_URL": "test/grpc/split.deep.test.ts starts both roles",
  "WORKERS=auto npm start": "test/server/workers.deep.test.ts starts workers",
  "npm run bench": "takes minutes",
  $MANAGEMENT_KEY: "test/http/management.test.ts creates a key over Connect",
  "docker compose": "needs a registry of images; test/deploy/shipping.deep.test.ts reads the file",
  "helm install": "needs a cluster; test/deploy/chart.deep.test.ts runs what it renders",
  "systemctl enable": "needs systemd; test/deploy/shipping.deep.test.ts judges the unit",
  "openssl dgst": "test/payments/hooks.test.ts signs webhooks",
  "npm run backup": "test/postgres/backup.deep.test.ts backs up and restores",
  "npm run close-month": "test/history closes and exports months of its own",
};

/** The pages of each reader, in the order of their names. */
const customers = documents.filter((path) => path.startsWith("docs/customers/"));
const operating = documents.filter((path) => path.startsWith("docs/operating/"));

let gateway: TestGateway;
/** Looks like the folder of the repository, with the keys of the started gateway. */
let folder: string;

beforeAll(async () => {
  gateway = await startTestGateway();
  folder = await mkdtemp(join(tmpdir(), "gateway-samples-"));
  for (const name of ["deploy", "gen", "node_modules", "package.json", "src"])
    await symlink(join(root, name), join(folder, name));
  const { v1, v2, adminToken, accountId } = gateway;
  await mkdir(join(folder, "data"));
  await writeFile(
    join(folder, "data/first-keys.json"),
    JSON.stringify({ v1, v2, adminToken, accountId }),
  );
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await gateway.stop();
});

function withAddresses(text: string): string {
  return text
    .replaceAll("http://127.0.0.1:8080", gateway.address)
    .replaceAll("127.0.0.1:50051", gateway.grpcAddress);
}

/** Runs shell commands in a folder; returns what they print. Throws when one of them fails. */
async function runShell(text: string, cwd = folder): Promise<string> {
  const { PATH, HOME, TMPDIR } = process.env;
  const env = { PATH, HOME, TMPDIR, GATEWAY_KEY: gateway.v1 };
  const script = `set -euo pipefail\n${withAddresses(text)}`;
  // A sample that waits for what does not come ends, and says what it had.
  const { stdout } = await run("bash", ["-c", script], { cwd, env, timeout: 150_000 });
  return stdout;
}

/** The samples of one language in some documents, in their order. */
function samplesOf(paths: readonly string[], language: string): string[] {
  return paths
    .flatMap(readSamples)
    .filter((sample) => sample.language === language)
    .map(({ text }) => text);
}

/** The shell samples of some documents, as one script: a page may use what an earlier one set. */
function shellOf(...paths: readonly string[]): string {
  const isByHand = (text: string) => Object.keys(byHand).some((part) => text.includes(part));
  return samplesOf(paths, "sh")
    .filter((text) => !isByHand(text))
    .join("\n");
}

test("each sample that is run by hand exists", () => {
  const samples = samplesOf(documents, "sh");
  for (const part of Object.keys(byHand))
    expect(samples.filter((text) => text.includes(part))).not.toEqual([]);
});

test("no other document has samples that could run here", () => {
  // `test/tools` runs those of docs/tools.md.
  const tested = ["README.md", "docs/tools.md", ...customers, ...operating];
  const others = documents.filter((path) => !tested.includes(path));
  const runs = (path: string) =>
    shellOf(path) !== "" || ["ts", "js"].some((one) => samplesOf([path], one).length > 0);
  expect(others.filter(runs)).toEqual([]);
});

test("README.md: the first paid requests, the receipt and the credits", async () => {
  const output = await runShell(shellOf("README.md"));
  expect(output).toContain("HTTP/1.1 200 OK");
  expect(output).toContain("x-gateway-cost-credits: ");
  expect(output).toContain('"object":"chat.completion"');
  expect(output).toContain("event: message_stop");
  expect(output).toContain('"outcome":"COMPLETED"');
  expect(output).toContain('"object":"credits"');
  expect(output).not.toContain('"error"');
});

test("docs/customers/: a first request, usage, gRPC and Connect, from the command line and from Node", async () => {
  const [createKey = "", generate = ""] = samplesOf(customers, "ts");
  await writeFile(join(folder, "create-key.ts"), withAddresses(createKey));
  await writeFile(join(folder, "generate.ts"), withAddresses(generate));
  const output = await runShell(`${shellOf(...customers)}\necho "key: $JOB_KEY"`);
  expect(output).toContain('"accounts"');
  expect(output).toContain('"keys"');
  expect(output).toMatch(/admission\n(events\n)+receipt$/m);
  expect(output).toMatch(/key: sk-gw2-1\w{49}$/m);
});

for (const text of samplesOf(customers, "js")) {
  const [, name] = /from "(.+)"/.exec(text) ?? [];
  test(`docs/customers/: the sample with ${name}`, async () => {
    await writeFile(join(folder, "sample.mjs"), withAddresses(text));
    expect(await runShell("node sample.mjs")).toContain("Hello");
  });
}

test("docs/operating/: an account, its credits and a key, from creation to revocation", async () => {
  const output = await runShell(shellOf(...operating));
  expect(output).toContain('"kind":"TRANSFER_KIND_PURCHASE"');
  expect(output).toContain('"monthlyCapMicrocredits":"500000000"');
  expect(output).toContain('"secret":"sk-gw2-1');
  expect(output).toContain('"state":"KEY_STATE_REVOKED"');
  expect(output).toContain('"state":"ORDER_STATE_PAID"');
  expect(output).toContain('"kind":"TRANSFER_KIND_BONUS"');
  expect(output).toContain('"promotion"');
  // An error of Connect begins with its code.
  expect(output).not.toMatch(/^\{"code"/m);
  // The last command describes the configuration file.
  expect(output).toContain("model-haiku-4.5");
});

const settings = operating
  // `test/config/clouds.test.ts` reads the pages of the clouds, and the next test that of coins.
  .filter((path) => !/(azure|bedrock|coins|vertex)\.md$/.test(path))
  .flatMap((path) => samplesOf([path], "yaml").map((sample) => ({ path, sample })));

test.each(settings)("$path: the settings fit into the built-in file", ({ sample }) => {
  const { models = [], providers, price, cost, ...sections } = parse(sample);
  const file = parse(defaultCatalog());
  const find = (id: string) => file.models.find((model: { id: string }) => model.id === id);
  Object.assign(file, sections);
  Object.assign(file.providers, providers);
  for (const model of models) {
    const known = find(model.id);
    if (known) known.routes = model.routes;
    else file.models.push(model);
  }
  // A model with room for long prompts.
  if (price) Object.assign(find("model-sonnet-4.6"), { price, ...(cost && { cost }) });
  const read = readCatalogFile(stringify(file));
  expect(Object.keys(read.providers)).toEqual(Object.keys(file.providers));
  expect(Object.keys(read.people.oidc)).toEqual(Object.keys(sections.people?.oidc ?? {}));
});

test("each block of a page is one that a test runs or reads, or has no commands", () => {
  const run = ["sh", "ts", "js", "javascript", "yaml"];
  const withoutCommands = ["json", "mermaid", "sql", "text", "toml"];
  const others = documents
    .filter((path) => path !== "docs/tools.md" && !path.startsWith("docs/decisions/"))
    .flatMap((path) => readSamples(path).map(({ language }) => ({ path, language })))
    .filter(({ language }) => ![...run, ...withoutCommands].includes(language));
  // A picture of the folders.
  expect(others.filter(({ path }) => path !== "docs/internals.md")).toEqual([]);
});

test("docs/operating/coins.md: the processors of the sample fit into the built-in file", () => {
  const [sample = ""] = samplesOf(["docs/operating/coins.md"], "yaml");
  // The keys are cut short, because nobody should use one that is published.
  const whole = sample
    .replace(/zpub\S+…/, bitcoinAccountKey)
    .replace(/xpub\S+…/, evmAccountKey)
    .replace("9Ak4…", "9Ak4");
  const { payments } = readCatalogFile(`${defaultCatalog()}\n${whole}`);
  expect(payments?.processors.map(({ type }) => type)).toEqual([
    ...["btcpay", "nowpayments", "onchain"],
  ]);
});
