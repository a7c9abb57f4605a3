// A gateway as a process of its own, started as `npm start` starts it: for tests of signals, exits
// and output.

import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { contentKey } from "./content-key.ts";

const startCommand = packageFile.scripts.start.split(" ");

/** The variables that `npm start` sets. */
export const startVariables: Readonly<Record<string, string>> = Object.fromEntries(
  startCommand.flatMap((word) => {
    const [, name, value] = /^([A-Z_]+)=(.*)$/.exec(word) ?? [];
    return name !== undefined && value !== undefined ? [[name, value]] : [];
  }),
);

/** The flags that `npm start` gives to Node. */
export const nodeFlags: readonly string[] = startCommand.filter((word) => word.startsWith("--"));

/** Path of the program that `npm start` runs. */
export const programPath = join(import.meta.dirname, "../..", startCommand.at(-1) ?? "");

export type ChildGateway = {
  readonly process: ChildProcess;
  /** Base address of the HTTP listener, as the gateway printed it. */
  readonly address: string;
  stdout(): string;
  stderr(): string;
  /** Sends `signal` and resolves with the exit of the process. */
  end(signal: NodeJS.Signals): Promise<Exit>;
};

export type Exit = {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
};

function launch(env: NodeJS.ProcessEnv) {
  const { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE } = process.env;
  const inherited = { PATH, HOME, TMPDIR, NODE_COMPILE_CACHE };
  const own = { PORT: "0", GRPC_PORT: "0", CONTENT_KEY: contentKey };
  const base = { ...startVariables, ...inherited, ...own };
  const child = spawn(process.execPath, [...nodeFlags, programPath], {
    env: { ...base, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const exited = new Promise<Exit>((resolve) => {
    child.on("close", (code, signal) => {
      // As one of this process, which fails its suite.
      for (const [warning] of stderr.matchAll(/^\(node:\d+\) .*Warning.*$/gm))
        process.emitWarning(warning);
      resolve({ code, signal, stdout, stderr });
    });
  });
  return { child, exited, output: () => ({ stdout, stderr }) };
}

/**
 * Starts a gateway and waits until it prints its address. Throws, with its output, when it exits
 * before that.
 */
export async function startChildGateway(env: NodeJS.ProcessEnv): Promise<ChildGateway> {
  const { child, exited, output } = launch(env);
  const announced = new Promise<string>((resolve) => {
    child.stdout.on("data", () => {
      const address = /The model gateway runs at (\S+)/.exec(output().stdout)?.[1];
      if (address !== undefined) resolve(address);
    });
  });
  const address = await Promise.race([
    announced,
    exited.then(({ code, stdout, stderr }) => {
      throw new Error(`the gateway ended with ${code}\n${stdout}\n${stderr}`);
    }),
  ]);
  return {
    process: child,
    address,
    stdout: () => output().stdout,
    stderr: () => output().stderr,
    end(signal) {
      child.kill(signal);
      return exited;
    },
  };
}

/** Starts a gateway, and does not wait for it. */
export function launchChildGateway(env: NodeJS.ProcessEnv): Omit<ChildGateway, "address"> {
  const { child, exited, output } = launch(env);
  return {
    process: child,
    stdout: () => output().stdout,
    stderr: () => output().stderr,
    end(signal) {
      child.kill(signal);
      return exited;
    },
  };
}

/** Starts a gateway that is expected to exit at start. */
export function expectStartToFail(env: NodeJS.ProcessEnv): Promise<Exit> {
  return launch(env).exited;
}
