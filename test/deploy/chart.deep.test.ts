// The environment of the chart's manifests, as processes of this machine: the pods of the
// Deployment with a PostgreSQL and a Redis of their own, from the steps of NOTES.txt to the first
// paid request, and the job of the verifier.

import { execFile, execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { Authenticator } from "../support/authenticator.ts";
import { type ChildGateway, startChildGateway } from "../support/child-gateway.ts";
import { contentKey } from "../support/content-key.ts";
import { emptyDatabase } from "../support/database.ts";
import { freePort } from "../support/ports.ts";
import { findProgram, redisBinary } from "../support/programs.ts";
import { startRedis, type TestRedis } from "../support/redis.ts";

const root = join(import.meta.dirname, "../..");
const helm = findProgram("helm");
if (!helm) console.warn("skipped: the chart is not rendered, because helm is not installed");

type Container = {
  env?: { name: string; value: string }[];
  envFrom: { secretRef: { name: string } }[];
  args?: string[];
  livenessProbe: { httpGet: { path: string } };
  readinessProbe: { httpGet: { path: string } };
};

/** The manifests of a release with these values. */
function render(...values: string[]) {
  const sets = values.flatMap((value) => ["--set", value]);
  const chart = join(root, "deploy/chart");
  const text = execFileSync(helm ?? "", ["template", "gw", chart, ...sets], { encoding: "utf8" });
  const manifests = parseAllDocuments(text).map((one) => one.toJS());
  const find = (kind: string) => manifests.find((one) => one?.kind === kind);
  const deployment: Container = find("Deployment").spec.template.spec.containers[0];
  const verifier: Container = find("CronJob").spec.jobTemplate.spec.template.spec.containers[0];
  return {
    deployment,
    verifier,
    replicas: Number(find("HorizontalPodAutoscaler").spec.minReplicas),
  };
}

/** What the image sets, without its ports: several pods are on this machine. */
const ofImage = Object.fromEntries(
  [
    ...readFileSync(join(root, "deploy/Containerfile"), "utf8").matchAll(
      /^(?:ENV| {3}) ([A-Z_]+)=(\S+)/gm,
    ),
  ]
    .map(([, name = "", value = ""]) => [name, value])
    .filter(([name]) => name !== "METRICS_PORT"),
);

describe.skipIf(!helm || !redisBinary)("the pods of the chart", () => {
  const pods: ChildGateway[] = [];
  let database: Awaited<ReturnType<typeof emptyDatabase>>;
  let redis: TestRedis;
  let chart: ReturnType<typeof render>;
  /** Of the first pod. */
  let env: NodeJS.ProcessEnv;
  let secret: Record<string, string>;
  /** The cookie of the console. */
  let cookie = "";
  let key = "";

  beforeAll(async () => {
    database = await emptyDatabase();
    redis = await startRedis();
    const port = await freePort();
    chart = render(`env.PUBLIC_URL=http://localhost:${port}`);
    secret = {
      ...{ DATABASE_URL: database.url, REDIS_URL: redis.url, CONTENT_KEY: contentKey },
      ADMIN_TOKEN: "a-token-for-the-chart",
    };
    const own = Object.fromEntries(
      (chart.deployment.env ?? []).map(({ name, value }) => [name, value]),
    );
    env = { ...ofImage, ...secret, ...own };
    for (let pod = 0; pod < chart.replicas; pod++)
      pods.push(await startChildGateway({ ...env, PORT: String(pod === 0 ? port : 0) }));
  });
  afterAll(async () => {
    await Promise.all(pods.map((pod) => pod.end("SIGKILL")));
    await redis.stop();
    await database.drop();
  });

  const addressOf = (pod: number) => `http://localhost:${new URL(pods[pod]?.address ?? "").port}`;

  /** Calls a method as the page of the console does, or with a credential. */
  async function call(method: string, body: object, authorization?: string) {
    const answer = await fetch(`${addressOf(0)}/gateway.${method}`, {
      method: "POST",
      headers: {
        ...{ "content-type": "application/json", origin: addressOf(0) },
        ...(authorization === undefined ? { cookie } : { authorization }),
      },
      body: JSON.stringify(body),
    });
    const [set] = answer.headers.getSetCookie();
    if (set !== undefined) cookie = set.split(";")[0] ?? "";
    return Object(await answer.json());
  }

  /** Runs a program in a pod, as `kubectl exec` and a job do. */
  const runIn = (variables: NodeJS.ProcessEnv, ...args: string[]) =>
    promisify(execFile)(process.execPath, args, {
      cwd: root,
      env: {
        PATH: process.env.PATH,
        NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
        ...variables,
      },
    });

  test("are ready by their probes", async () => {
    expect(pods).toHaveLength(2);
    const { livenessProbe, readinessProbe } = chart.deployment;
    for (const pod of pods.keys())
      for (const { httpGet } of [livenessProbe, readinessProbe])
        expect((await fetch(addressOf(pod) + httpGet.path)).status).toBe(200);
  });

  test("let the operator in by the link of the notes, and refuse the admin token", async () => {
    const { stdout } = await runIn(env, "src/cli/sign-in-link.ts");
    const link = new URL(/http:\S+/.exec(stdout)?.[0] ?? "");
    expect(link.origin).toBe(addressOf(0));
    expect((await fetch(`${link.origin}/console/`)).status).toBe(200);
    const token = link.hash.slice(1);
    const begun = { linkToken: token, login: "olga" };
    const { passkeyOptionsJson } = await call("people.v1.SignInService/BeginPasskey", begun);
    const { person } = await call("people.v1.SignInService/RedeemLink", {
      ...{ token, login: "olga" },
      passkeyAnswerJson: new Authenticator(link.origin).register(passkeyOptionsJson),
    });
    expect(person.login).toBe("olga");
    const refused = await call(
      "accounts.v1.AccountsService/CreateAccount",
      { settings: { name: "By token" } },
      `Bearer ${secret.ADMIN_TOKEN}`,
    );
    expect(refused).toMatchObject({ code: "permission_denied" });
  });

  test("make an account, credits and a key for the operator, who had none", async () => {
    const { account } = await call("accounts.v1.AccountsService/CreateAccount", {
      idempotencyKey: "acme",
      settings: { name: "ACME" },
    });
    const of = { accountId: account.accountId, family: "FAMILY_V1" };
    const { transfer } = await call("billing.v1.BillingService/CreateTransfer", {
      ...{ ...of, kind: "TRANSFER_KIND_PURCHASE", amountMicrocredits: "1000000000" },
      ...{ idempotencyKey: "invoice-1", reason: "Invoice 1" },
    });
    expect(transfer.kind).toBe("TRANSFER_KIND_PURCHASE");
    const made = await call("keys.v1.KeysService/CreateKey", {
      ...of,
      idempotencyKey: "first",
      settings: { name: "first" },
    });
    key = made.secret;
    expect(key).toMatch(/^sk-gw2-1/);
  });

  test("answer the first paid request, whichever of them it reaches", async () => {
    for (const pod of pods.keys()) {
      const answer = await fetch(`${addressOf(pod)}/v1/messages`, {
        method: "POST",
        headers: {
          ...{ "x-api-key": key, "anthropic-version": "2023-06-01" },
          "content-type": "application/json",
        },
        body: JSON.stringify({
          ...{ model: "haiku", max_tokens: 100 },
          messages: [{ role: "user", content: "Hello" }],
        }),
      });
      expect(answer.status).toBe(200);
      expect(Number(answer.headers.get("x-gateway-cost-credits"))).toBeGreaterThan(0);
    }
  });

  test("verify the ledger by the job of the chart, and drain when they are ended", async () => {
    const { stdout } = await runIn({ ...ofImage, ...secret }, ...(chart.verifier.args ?? []));
    expect(stdout).toContain("the ledger is consistent");
    const exits = await Promise.all(pods.map((pod) => pod.end("SIGTERM")));
    expect(exits.map(({ code }) => code)).toEqual([0, 0]);
  });
});
