// Builds the image of deploy/Containerfile with podman, and uses the gateway in it: as its user, on
// a read-only root, without rights. Needs root (Debian: podman runc postgresql-15).
//
//   node test/drill/image.ts [--stand-ins] [further arguments of podman build]
//
// A machine that is a container itself may need this in /etc/containers/containers.conf:
// `default_ulimits = []` under [containers], and `runtime = "runc"` under [engine].
//
// With `--stand-ins` it needs no registry of images: the two bases are made from programs of this
// machine, with a shell in the first and none in the second.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
} from "node:fs";
import { chmod, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parse } from "yaml";
import { startCollector } from "../support/collector.ts";
import { startDebian } from "../support/debian.ts";
import { freePort } from "../support/ports.ts";
import { findProgram } from "../support/programs.ts";

const root = join(import.meta.dirname, "../..");
const containerfile = join(root, "deploy/Containerfile");
const bytesMax = 60e6;
const image = "model-gateway-drill";
const volume = "model-gateway-drill-data";
const userId = 65_532;

const given = process.argv.slice(2);
const hasStandIns = given[0] === "--stand-ins";
const more = hasStandIns ? given.slice(1) : given;

const folder = mkdtempSync(join(tmpdir(), "gateway-image-"));
const run = (program: string, ...args: string[]) =>
  execFileSync(program, args, { encoding: "utf8", maxBuffer: 2 ** 26 }).trim();
const podman = (...args: string[]) => run("podman", ...args);

/** Copies a file of this machine, to the same path in `to`. */
function take(file: string, to: string, at = file): void {
  mkdirSync(dirname(join(to, at)), { recursive: true });
  copyFileSync(file, join(to, at));
}

/** A program of this machine, with the libraries that it needs. */
function takeProgram(program: string, to: string, at: string): void {
  take(program, to, at);
  for (const file of run("ldd", program).match(/\/\S+/g) ?? []) take(file, to);
}

/** Node of this run, with what its C library asks for names, and the certificates. */
function takeNode(to: string, at: string): void {
  takeProgram(process.execPath, to, at);
  const [library = ""] = run("ldd", process.execPath).match(/\/\S+libc\.so\S*/) ?? [];
  for (const name of ["libnss_dns.so.2", "libresolv.so.2"])
    if (existsSync(join(dirname(library), name))) take(join(dirname(library), name), to);
  take("/etc/ssl/certs/ca-certificates.crt", to);
}

/** Makes an image of one folder. `changes`: lines of a Containerfile. */
function importFolder(from: string, name: string, changes: readonly string[]): void {
  const archive = `${from}.tar`;
  run("tar", "-C", from, "-cf", archive, ".");
  podman("import", "--quiet", ...changes.flatMap((line) => ["--change", line]), archive, name);
}

async function makeStandIns(): Promise<void> {
  const text = readFileSync(containerfile, "utf8");
  const [first = "", last = ""] = [...text.matchAll(/^FROM (\S+)/gm)].map(([, name = ""]) => name);
  const [building, running] = [join(folder, "building"), join(folder, "running")];
  for (const one of [building, running]) {
    mkdirSync(join(one, "tmp"), { recursive: true });
    await chmod(join(one, "tmp"), 0o1777);
  }
  takeNode(running, "/nodejs/bin/node");
  takeNode(building, "/usr/local/bin/node");
  for (const name of ["sh", "rm", "cp", "mkdir", "find", "env"])
    takeProgram(findProgram(name) ?? "", building, `/usr/bin/${name}`);
  await symlink("usr/bin", join(building, "bin"));
  const program = realpathSync(findProgram("npm") ?? "");
  const packageFolder = join(building, "usr/local/lib/node_modules/npm");
  cpSync(join(program, "../.."), packageFolder, { recursive: true });
  const npm = join(building, "usr/local/bin/npm");
  const cli = "/usr/local/lib/node_modules/npm/bin/npm-cli.js";
  await writeFile(npm, `#!/bin/sh\nexec node ${cli} "$@"\n`, { mode: 0o755 });
  importFolder(building, first, ["ENV PATH=/usr/local/bin:/usr/bin"]);
  importFolder(running, last, ['ENTRYPOINT ["/nodejs/bin/node"]']);
}

/** What a registry would send. */
function compressedBytes(): number {
  const layout = join(folder, "layout");
  podman("push", "--quiet", image, `oci:${layout}`);
  const blob = (digest: string) =>
    JSON.parse(readFileSync(join(layout, "blobs", digest.replace(":", "/")), "utf8"));
  const index = JSON.parse(readFileSync(join(layout, "index.json"), "utf8"));
  const { layers } = blob(index.manifests[0].digest);
  return layers.reduce((sum: number, { size }: { size: number }) => sum + size, 0);
}

/** The settings of deploy/compose.yaml, with what it has where nothing is set. */
function composedSettings(): Record<string, string> {
  const { services } = parse(readFileSync(join(root, "deploy/compose.yaml"), "utf8"));
  const given: [string, string][] = Object.entries(services.gateway.environment);
  return Object.fromEntries(
    given.map(([name, value]) => [name, value.replaceAll(/\$\{\w+:-(.*?)\}/g, "$1")]),
  );
}

/** Visits the console, and pays for an answer. */
async function use(address: string, key: string): Promise<void> {
  const page = await fetch(`${address}/console/`);
  const [, script = ""] = /<script[^>]* src="([^"]+)"/.exec(await page.text()) ?? [];
  const program = await fetch(new URL(script, page.url));
  assert.deepEqual([page.status, program.status], [200, 200], "the console is not served");
  assert.ok((await program.text()).length > 10_000, "the console has no program");
  const paid = await fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": key,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 20,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  assert.equal(paid.status, 200, await paid.text());
}

async function becomesHealthy(address: string): Promise<void> {
  const untilMs = performance.now() + 60_000;
  const isHealthy = () =>
    fetch(`${address}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isHealthy())) {
    assert.ok(performance.now() < untilMs, "the gateway did not become healthy");
    await delay(100);
  }
}

const postgres = await startDebian();
const collector = await startCollector();
let container: string | undefined;
try {
  if (hasStandIns) await makeStandIns();
  // A clean copy: what is not committed is not in the image.
  const sources = join(folder, "sources");
  mkdirSync(sources);
  run("sh", "-c", `git -C '${root}' archive HEAD | tar -x -C '${sources}'`);
  const pull = hasStandIns ? "--pull=never" : "--pull=missing";
  const file = join(sources, "deploy/Containerfile");
  podman("build", "--isolation=chroot", pull, "-f", file, "-t", image, ...more, sources);
  const bytes = compressedBytes();

  const [port, metricsPort] = [await freePort(), await freePort()];
  const { REDIS_URL: _, ...composed } = composedSettings();
  const settings = {
    ...composed,
    PORT: String(port),
    HOST: "127.0.0.1",
    DATABASE_URL: postgres.url,
    METRICS_PORT: String(metricsPort),
    METRICS_HOST: "127.0.0.1",
    GRPC_PORT: String(await freePort()),
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.address,
    OTEL_TRACES_SAMPLER: "always_on",
  };
  // As in deploy/compose.yaml. A new volume belongs to the user of the image.
  container = podman(
    ...["run", "--detach", "--network=host", `--volume=${volume}:/data`],
    ...["--read-only", "--read-only-tmpfs=false", "--cap-drop=all"],
    "--security-opt=no-new-privileges",
    ...Object.entries(settings).map(([name, value]) => `--env=${name}=${value}`),
    image,
  );
  const address = `http://127.0.0.1:${port}`;
  await becomesHealthy(address);
  const print = "process.stdout.write(require('node:fs').readFileSync('/data/first-keys.json'))";
  const keys: unknown = JSON.parse(podman("exec", container, "/nodejs/bin/node", "--eval", print));
  const key = String(Object(keys).v1);
  await use(address, key);
  const link = podman("exec", container, "/nodejs/bin/node", "src/cli/sign-in-link.ts");
  assert.match(link, /\/console\/welcome#/);
  const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  assert.match(metrics, /^gateway_charges_total\{.*outcome="completed"\} 1$/m);
  // Spans leave every five seconds, and arrive only while no program keeps this process waiting.
  const isTraced = () => collector.spans.some(({ name }) => name === "POST /v1/messages");
  for (const untilMs = performance.now() + 10_000; !isTraced(); await delay(100))
    assert.ok(performance.now() < untilMs, "no trace arrived");
  const pid = podman("inspect", "--format={{.State.Pid}}", container);
  assert.match(readFileSync(`/proc/${pid}/status`, "utf8"), new RegExp(`^Uid:\t${userId}\\b`, "m"));
  const bundle = 'import("/app/src/server/bundle.ts").then((one) => console.log(one.findBundle()))';
  const started = podman("exec", container, "/nodejs/bin/node", "-e", bundle);
  assert.match(started, /server-bundle/, "the image does not start from its bundle");
  podman("stop", "--time=60", container);
  assert.equal(podman("inspect", "--format={{.State.ExitCode}}", container), "0");
  assert.ok(bytes <= bytesMax, `the image has ${bytes} bytes when compressed`);
  console.log(`the image works, and has ${(bytes / 1e6).toFixed(1)} MB when compressed`);
} catch (error) {
  if (container !== undefined) console.error(podman("logs", container));
  throw error;
} finally {
  if (container !== undefined) {
    podman("rm", "--force", container);
    podman("volume", "rm", volume);
  }
  await collector.stop();
  await postgres.stop();
  rmSync(folder, { recursive: true, force: true });
}
