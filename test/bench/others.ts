// Other gateways and proxies that the bench compares with, where they are installed.

import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../support/ports.ts";
import { findProgram } from "../support/programs.ts";
import type { Target } from "./compare.ts";
import { type BenchProcess, type Lab, served, urlOf } from "./lab.ts";

/**
 * The servers that are installed and answer these bodies. `notes` explains why one is left out;
 * `uncounted` is the number of requests that the provider served for this check.
 */
export async function findOtherServers(
  lab: Lab,
  provider: BenchProcess,
  bodies: readonly string[],
) {
  const targets: Target[] = [];
  const notes: string[] = [];
  const before = await served(provider);
  const path = "/v1/messages";
  const headers = { "content-type": "application/json" };

  async function add(target: Target): Promise<void> {
    const { statuses, firstError } = await lab.load({
      ...target.job,
      url: urlOf(target.server),
      requests: 1,
      concurrency: 1,
    });
    if (statuses["200"] === 1) {
      targets.push(target);
      return;
    }
    notes.push(`${target.name} is left out: it answers ${JSON.stringify(statuses)} ${firstError}`);
    await lab.end(target.server);
  }

  const nginx = findProgram("nginx");
  if (nginx === undefined) notes.push("nginx is left out: it is not on the PATH");
  else
    await add({
      name: "nginx",
      server: await startNginx(lab, nginx, provider),
      job: { path, headers, bodies },
    });

  const folder = process.env.PORTKEY_DIR;
  if (folder === undefined)
    notes.push(
      "@portkey-ai/gateway is left out: PORTKEY_DIR names no folder where it is installed",
    );
  else {
    // Portkey reads its route from the headers of the request.
    const route = {
      "x-portkey-provider": "anthropic",
      "x-portkey-custom-host": `${urlOf(provider)}/v1`,
    };
    const credential = { "anthropic-version": "2023-06-01", "x-api-key": "any" };
    const job = { path, headers: { ...headers, ...credential, ...route }, bodies };
    await add({ name: "portkey", server: await startPortkey(lab, folder), job });
  }
  const after = await served(provider);
  return { targets, notes, uncounted: after.requests - before.requests };
}

/** One nginx worker that forwards bytes over kept connections. */
async function startNginx(lab: Lab, command: string, to: BenchProcess): Promise<BenchProcess> {
  const [folder, port] = [await lab.folder(), await freePort()];
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((name) => `  ${name}_temp_path ${folder}/${name};`)
    .join("\n");
  await writeFile(
    join(folder, "nginx.conf"),
    `daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
${temporary}
  access_log off;
  keepalive_requests 1000000;
  upstream provider { server 127.0.0.1:${to.port}; keepalive 256; keepalive_requests 1000000; }
  server {
    listen 127.0.0.1:${port};
    client_max_body_size 32m;
    client_body_buffer_size 256k;
    location / {
      proxy_pass http://provider;
      proxy_http_version 1.1;
      proxy_set_header connection "";
      proxy_buffering off;
    }
  }
}
`,
  );
  return lab.server(
    command,
    ["-p", folder, "-c", join(folder, "nginx.conf"), "-e", "stderr"],
    port,
  );
}

async function startPortkey(lab: Lab, folder: string): Promise<BenchProcess> {
  const program = join(folder, "node_modules/@portkey-ai/gateway/build/start-server.js");
  if (!existsSync(program)) throw new Error(`PORTKEY_DIR: no such file: ${program}`);
  const loopback = fileURLToPath(new URL("./loopback.ts", import.meta.url));
  const port = await freePort();
  return lab.server(
    process.execPath,
    ["--import", loopback, program, `--port=${port}`, "--headless"],
    port,
  );
}
