// Preloaded into a gateway with `node --import`: kills the process with SIGKILL at the moment that
// KILL_AT names. A moment is defined by a statement that goes to the database.

import { Client } from "pg";
import { RoundTrip } from "../../src/postgres/pipeline.ts";

/** `unsent`: before the statement leaves; `sent`: after it left; `committed`: after its commit. */
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
  const isMatch =
    trip instanceof RoundTrip && trip.queries.some(([{ name }]) => name === moment?.statement);
  if (isMatch && moment?.when === "unsent") die();
  const answer: unknown = Reflect.apply(original, this, args);
  if (isMatch && moment?.when === "sent") setImmediate(die);
  if (isMatch && moment?.when === "committed") trip.results.then(die);
  return answer;
};
Object.defineProperty(Client.prototype, "query", { value: query });

function die(): void {
  process.kill(process.pid, "SIGKILL");
}
