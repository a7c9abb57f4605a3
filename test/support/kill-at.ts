// Loaded into a gateway with `node --import`: ends the process as a power cut would, at the moment
// that KILL_AT names. The moments are told by the statements that go to the database.

import { Client } from "pg";
import { RoundTrip } from "../../src/postgres/pipeline.ts";

/**
 * When the process ends: before a statement leaves, once it left, or as soon as its commit was
 * answered.
 */
const moments: Record<string, { statement: string; when: "unsent" | "sent" | "committed" }> = {
  "hold written": { statement: "billing/place-holds", when: "unsent" },
  "hold sent": { statement: "billing/place-holds", when: "sent" },
  "hold committed": { statement: "billing/place-holds", when: "committed" },
  "settle written": { statement: "billing/settle-holds", when: "unsent" },
  "settle sent": { statement: "billing/settle-holds", when: "sent" },
  "settle committed": { statement: "billing/settle-holds", when: "committed" },
};

const moment = moments[process.env.KILL_AT ?? ""];
const original = Client.prototype.query;

const query = function (this: Client, ...args: unknown[]): unknown {
  const [trip] = args;
  const isIt =
    trip instanceof RoundTrip && trip.queries.some(([{ name }]) => name === moment?.statement);
  if (isIt && moment?.when === "unsent") die();
  const answer: unknown = Reflect.apply(original, this, args);
  if (isIt && moment?.when === "sent") setImmediate(die);
  if (isIt && moment?.when === "committed") trip.results.then(die);
  return answer;
};
Object.defineProperty(Client.prototype, "query", { value: query });

function die(): void {
  process.kill(process.pid, "SIGKILL");
}
