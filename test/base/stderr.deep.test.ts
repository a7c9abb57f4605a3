// Exits of a process whose log is not read.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

const folder = join(import.meta.dirname, "../../src/base");

/** A process that logs so many lines when it gets a line, and then exits with 3. */
function startLogger(lines: number): ChildProcess {
  const program = `
    const { createLog } = await import("${folder}/log.ts");
    const { exitProcess } = await import("${folder}/stderr.ts");
    const log = createLog("info");
    process.stdin.once("data", async () => {
      for (let line = 0; line < ${lines}; line++) log.info({ line }, "x".repeat(100));
      await exitProcess(3);
    });
    console.log("ready");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program]);
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

async function exitOf(child: ChildProcess): Promise<unknown[]> {
  const exited = once(child, "exit");
  child.stdin?.write("now\n");
  return exited;
}

test("an exit writes every line", async () => {
  const child = startLogger(50_000);
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (piece: string) => {
    text += piece;
  });
  const closed = once(child, "close");
  if (child.stdout) await once(child.stdout, "data");
  expect(await exitOf(child)).toEqual([3, null]);
  await closed;
  const lines = text.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line).line)).toEqual([...lines.keys()]);
  expect(lines).toHaveLength(50_000);
});

test("an exit does not wait for a reader that is gone", async () => {
  const child = startLogger(1);
  if (child.stdout) await once(child.stdout, "data");
  child.stderr?.destroy();
  expect(await exitOf(child)).toEqual([3, null]);
});

test("an exit does not wait for a reader that stands still", async () => {
  const child = startLogger(50_000);
  if (child.stdout) await once(child.stdout, "data");
  child.stderr?.pause();
  expect(await exitOf(child)).toEqual([null, "SIGKILL"]);
});
