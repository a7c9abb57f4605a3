// Loaded into a gateway with `node --import`: ends the process as a power cut would, at the moment that KILL_AT names. The moments are
// told by the statements that go to the database.

import { Client } from "pg";

/** When the process ends: as a statement leaves, or as soon as the commit after it was answered. */
const moments: Record<string, { statement: string; when: "unsent" | "sent" | "committed" }> = {
  "hold written": { statement: "billing/insert-holds", when: "unsent" },
  "hold sent": { statement: "billing/insert-holds", when: "sent" },
  "hold committed": { statement: "billing/insert-holds", when: "committed" },
  "settle written": { statement: "billing/charge-holds", when: "unsent" },
  "settle sent": { statement: "billing/charge-holds", when: "sent" },
  "settle committed": { statement: "billing/charge-holds", when: "committed" },
};

const moment = moments[process.env.KILL_AT ?? ""];
const original = Client.prototype.query;

let isNear = false;
const query = function (this: Client, ...args: unknown[]): unknown {
  const answer: unknown = Reflect.apply(original, this, args);
  const name = nameOf(args[0]);
  if (moment && name === moment.statement) {
    if (moment.when === "unsent") die();
    // What was queued in this turn has left the process when the next one begins.
    else if (moment.when === "sent") setImmediate(die);
    else isNear = true;
  }
  if (isNear && name === "billing/commit" && answer instanceof Promise) return answer.then(die);
  return answer;
};
Object.defineProperty(Client.prototype, "query", { value: query });

function nameOf(statement: unknown): string {
  return typeof statement === "object" && statement !== null && "name" in statement ? String(statement.name) : "";
}

function die(): void {
  process.kill(process.pid, "SIGKILL");
}
