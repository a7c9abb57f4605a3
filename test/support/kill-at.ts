// Preloaded into a gateway with `node --import`: kills the process with SIGKILL at the moment that
// KILL_AT names. A moment is defined by a statement that goes to the database.

import { Client } from "pg";
import { RoundTrip } from "../../src/postgres/pipeline.ts";

/** `unsent`: before the statement leaves; `sent`: after it left; `committed`: after its commit. */
const moments: Record<string, { statement: string; when: "unsent" | "sent" | "committed" }> = {
  "hold written": { statement: "billing/place-holds", when: "unsent" },
  "hold sent": { statement: "billing/place-holds", when: "sent" },
  "hold committed": { statement: "billing/place-holds", when: "committed" },
  "settle written": { statement: "billing/settle-hold", when: "unsent" },
  "settle sent": { statement: "billing/settle-hold", when: "sent" },
  "settle committed": { statement: "billing/settle-hold", when: "committed" },
  // In a transaction that has still to be committed.
  "deposit stored": { statement: "payments/upsert-deposit", when: "committed" },
  // The decision is committed, and nothing of it posted.
  "grant decided": { statement: "payments/list-unposted", when: "unsent" },
  // The transfer is committed, and the grant does not name it.
  "transfer made": { statement: "payments/put-transfer", when: "unsent" },
  "grant posted": { statement: "payments/put-transfer", when: "committed" },
  // In a transaction that has still to be committed.
  "event stored": { statement: "payments/insert-events", when: "committed" },
  // The event is committed, and nobody was told.
  "alert unraised": { statement: "alerts/insert-alerts", when: "unsent" },
  // The alert is committed, and the event not marked as read.
  "alert raised": { statement: "payments/mark-events-read", when: "unsent" },
  "event read": { statement: "payments/mark-events-read", when: "committed" },
  // Of the reading of a chain and of a sweep, in transactions that have still to be committed.
  "payment stored": { statement: "payments/put-chain-payment", when: "committed" },
  "chunk stored": { statement: "payments/end-chunk", when: "committed" },
  "order made directly": { statement: "payments/insert-direct", when: "committed" },
  "page settled": { statement: "payments/settle-payments", when: "committed" },
  "balance moved": { statement: "payments/move-balance", when: "committed" },
  "gas recorded": { statement: "payments/put-sweep-payment", when: "committed" },
  "sweep ended": { statement: "payments/end-sweep", when: "committed" },
  "gas granted": { statement: "payments/grant-sweep-payment", when: "committed" },
  // A month that is being closed, exported and recorded.
  "month sealed": { statement: "history/read-progress", when: "unsent" },
  "block digested": { statement: "history/digest-block", when: "committed" },
  // In a transaction that has still to be committed.
  "sums added": { statement: "history/add-sums", when: "committed" },
  "month read": { statement: "history/check-sums", when: "unsent" },
  // All but the last transaction is committed.
  "sums stored": { statement: "history/combine-blocks", when: "unsent" },
  // In a transaction that has still to be committed.
  "closing stored": { statement: "history/insert-closing", when: "committed" },
  "lines read": { statement: "history/read-lines", when: "committed" },
  "export whole": { statement: "history/put-archive", when: "unsent" },
  "export recorded": { statement: "history/put-archive", when: "committed" },
  // Sums of sales, in transactions that have still to be committed.
  "emptying begun": { statement: "sales/begin-emptying", when: "committed" },
  "slice removed": { statement: "sales/remove-sales", when: "committed" },
  "emptying ended": { statement: "sales/end-emptying", when: "committed" },
  "page written": { statement: "sales/add-page", when: "unsent" },
  "page added": { statement: "sales/add-page", when: "committed" },
  "cursor moved": { statement: "sales/move-sales-progress", when: "committed" },
  "sums complete": { statement: "sales/complete-sales", when: "committed" },
};

const moment = moments[process.env.KILL_AT ?? ""];
const original = Client.prototype.query;

const query = function (this: Client, ...args: unknown[]): unknown {
  const [sent, ...others] = args;
  const isMatch = namesOf(sent).some((name) => name === moment?.statement);
  if (isMatch && moment?.when === "unsent") die();
  const callback: unknown = others.at(-1);
  if (isMatch && moment?.when === "committed" && typeof callback === "function")
    args[args.length - 1] = die;
  const answer: unknown = Reflect.apply(original, this, args);
  if (isMatch && moment?.when === "sent") setImmediate(die);
  if (isMatch && moment?.when === "committed") {
    if (sent instanceof RoundTrip) sent.results.then(die);
    else if (answer instanceof Promise) answer.then(die);
  }
  return answer;
};
Object.defineProperty(Client.prototype, "query", { value: query });

/** The names of the statements of a round trip, or of one statement. */
function namesOf(sent: unknown): unknown[] {
  if (sent instanceof RoundTrip) return sent.queries.map(([{ name }]) => name);
  return typeof sent === "object" && sent !== null && "name" in sent ? [sent.name] : [];
}

function die(): void {
  process.kill(process.pid, "SIGKILL");
}
