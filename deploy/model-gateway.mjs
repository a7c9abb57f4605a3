#!/usr/bin/env node
// The command of the package: `model-gateway [COMMAND] [ARGUMENTS]` does in the folder that it is
// called from what `npm run COMMAND` does in a clone. Without a command it starts the gateway.
//
// It begins with the Node that is there, so it is plain JavaScript of Node 20.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const { scripts, version } = JSON.parse(readFileSync(`${root}package.json`, "utf8"));
/** Those that run a program of the gateway: it is in the bundle under the name of its source. */
const commands = Object.entries(scripts).filter(([, script]) =>
  / src\/(main|cli\/\S+)\.ts$/.test(script),
);

const [command = "start", ...given] = process.argv.slice(2);
const found = commands.find(([name]) => name === command);
if (command === "--version") console.log(version);
else if (found) run(found[1].split(" "));
else {
  console.error(`model-gateway ${version}: model-gateway [COMMAND] [ARGUMENTS], where COMMAND is`);
  for (const [name] of commands) console.error(`  ${name}`);
  process.exitCode = command === "--help" ? 0 : 2;
}

/** `words`: of the script. */
function run(words) {
  const source = basename(words.at(-1), ".ts");
  const program = `${root}server-bundle/${source === "main" ? "program" : source}.js`;
  const flags = words.filter((word) => word.startsWith("--"));
  const variables = words.filter((word) => /^[A-Z_]+=/.test(word)).map((word) => word.split("="));
  const env = {
    NODE_COMPILE_CACHE: `${root}node_modules/.cache/compiled`,
    ...Object.fromEntries(variables),
    ...process.env,
  };
  const child = spawn("sh", [`${root}deploy/node.sh`, ...flags, program, ...given], {
    env,
    stdio: "inherit",
  });
  // A terminal sends its own signals to both.
  for (const signal of ["SIGTERM", "SIGHUP", "SIGUSR2"])
    process.on(signal, () => child.kill(signal));
  process.on("SIGINT", () => {});
  // The shell of npx ends at a signal and passes none on.
  const parent = process.ppid;
  const watch = () => process.ppid === parent || child.kill("SIGTERM");
  if (process.env.npm_command === "exec") setInterval(watch, 1_000).unref();
  child.on("error", (error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 0);
  });
}
