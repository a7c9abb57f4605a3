// Coding tools as their makers publish them, installed from the npm registry into a temporary
// folder. Their versions are fixed, so that a new one of a tool fails no test here.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import type { JsonObject } from "@bufbuild/protobuf";
import type { TestGateway } from "./gateway.ts";

const run = promisify(execFile);

/** Packages by the command of each. */
export const toolPackages = {
  claude: "@anthropic-ai/claude-code@2.1.332",
  codex: "@openai/codex@0.171.0",
} as const;

export type Tool = keyof typeof toolPackages;

export type Tools = {
  /** Path of a tool's command. */
  command(tool: Tool): string;
  /** A new home for one of them, with an empty folder `work` in it. */
  newHome(): Promise<string>;
  remove(): Promise<void>;
};

export async function installTools(tools: readonly Tool[]): Promise<Tools> {
  const folder = await mkdtemp(join(tmpdir(), "gateway-tools-"));
  const packages = tools.map((tool) => toolPackages[tool]);
  const quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
  await run("npm", ["install", "--prefix", folder, ...quiet, ...packages]);
  return {
    command: (tool) => join(folder, "node_modules/.bin", tool),
    async newHome() {
      const home = await mkdtemp(join(folder, "home-"));
      await mkdir(join(home, "work"));
      return home;
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** What a run of a tool left. */
export type ToolRun = {
  readonly code: number | null;
  /** Both of its outputs. */
  readonly output: string;
  /** The lines of its output that are JSON objects. */
  readonly events: readonly JsonObject[];
};

/** Runs a tool in its home, with nothing to read. `env` is all that it gets besides its path. */
export async function runTool(
  command: string,
  args: readonly string[],
  { home, env, signal }: { home: string; env: NodeJS.ProcessEnv; signal?: AbortSignal },
): Promise<ToolRun> {
  const child = spawn(command, args, {
    cwd: join(home, "work"),
    env: { PATH: process.env.PATH, HOME: home, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    ...(signal && { signal }),
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const [code]: (number | null)[] = await once(child, "close");
  return { code: code ?? null, output, events: readLines(output) };
}

function readLines(output: string): JsonObject[] {
  return output
    .split("\n")
    .filter((line) => line.startsWith("{") && line.endsWith("}"))
    .map((line): JsonObject => JSON.parse(line));
}

/** The environment of Claude Code, which then talks to the gateway alone. */
export function claudeEnv({ address }: TestGateway, key: string): NodeJS.ProcessEnv {
  return {
    ANTHROPIC_BASE_URL: address,
    ANTHROPIC_API_KEY: key,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
  };
}

/** One session of Claude Code, which gets its messages one after the other. */
export function startClaude(command: string, home: string, env: NodeJS.ProcessEnv) {
  const json = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
  const child = spawn(command, ["-p", ...json, "--model", "sonnet"], {
    cwd: join(home, "work"),
    env: { PATH: process.env.PATH, HOME: home, ...env },
    stdio: ["pipe", "pipe", "ignore"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    /** What it reports until its answer to the message, that is the last. */
    async turn(text: string): Promise<JsonObject[]> {
      const message = { type: "user", message: { role: "user", content: text } };
      child.stdin.write(`${JSON.stringify(message)}\n`);
      const events: JsonObject[] = [];
      for (;;) {
        const { value, done } = await lines.next();
        if (done) throw new Error("Claude Code ended during a turn");
        const event: JsonObject = JSON.parse(value);
        events.push(event);
        if (event.type === "result") return events;
      }
    },
    async end(): Promise<void> {
      const closed = once(child, "close");
      child.stdin.end();
      await closed;
    },
  };
}

/** Configures Codex for the gateway, with the key in `GATEWAY_KEY`. */
export async function configureCodex(home: string, { address }: TestGateway): Promise<void> {
  await mkdir(join(home, ".codex"));
  await writeFile(
    join(home, ".codex/config.toml"),
    [
      'model = "sonnet"',
      'model_provider = "gateway"',
      'web_search = "disabled"',
      "check_for_update_on_startup = false",
      "[analytics]",
      "enabled = false",
      "[model_providers.gateway]",
      'name = "Gateway"',
      `base_url = "${address}/v1"`,
      'env_key = "GATEWAY_KEY"',
      'wire_api = "responses"',
      "",
    ].join("\n"),
  );
}
