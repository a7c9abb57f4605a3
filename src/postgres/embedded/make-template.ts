// Makes the template for first starts, by the way in which one without a template makes its data.

import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { createLog } from "../../base/log.ts";
import { migrate } from "../migrate.ts";
import { connectionConfig } from "../session.ts";
import { findBinaries } from "./binaries.ts";
import { ownFiles, startEmbedded } from "./embedded.ts";
import { digestSources, packTemplate, templateFolder } from "./template.ts";

/** Writes the template. Resolves with its path. */
export async function writeTemplate(folder = templateFolder): Promise<string> {
  const { programs } = await findBinaries();
  const digest = digestSources(programs);
  const home = await mkdtemp(join(tmpdir(), "gateway-template-"));
  // Segments of the log that were kept for later use would be half of the template.
  const settings = ["wal_recycle=off"];
  const starting = startEmbedded(home, createLog("silent"), { settings });
  const stop = async () => (await starting).stop();
  // The server runs in a session of its own and would survive this process.
  const interrupt = () => void stop().finally(() => process.exit(1));
  for (const signal of signals) process.once(signal, interrupt);
  const cluster = join(home, "postgres");
  try {
    try {
      const { url } = await starting;
      // Partitions are of the months in which they are made.
      await migrate(url, { partitions: false });
      await removePassword(url);
    } finally {
      await stop();
    }
    if (existsSync(join(cluster, "postmaster.pid"))) throw new Error("the server did not stop");
    return await packTemplate(cluster, { folder, digest, left: ownFiles });
  } finally {
    for (const signal of signals) process.off(signal, interrupt);
    await rm(home, { recursive: true, force: true });
  }
}

const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

async function removePassword(url: string): Promise<void> {
  const client = new Client(connectionConfig(url));
  client.on("error", () => {});
  await client.connect();
  await client.query("alter role current_user password null").finally(() => client.end());
}
