// The metrics of all workers of a machine, as one scrape. Counts of workers that have exited stay
// in the sums: a count that goes back would look like a restart, and be counted again.

import { withTimeout } from "../base/clock.ts";
import {
  countsOf,
  Metrics,
  mergeSnapshots,
  readProcess,
  type Snapshot,
  snapshotOf,
} from "../metrics/metrics.ts";

/** A worker that does not answer in this time is shown as it was. */
const answerMsMax = 1_000;

type Worker = {
  latest: Snapshot;
  /** Resolves with its next answer. Undefined: it was not asked. */
  asked: PromiseWithResolvers<void> | undefined;
  readonly ask: () => void;
};

export class WorkerMetrics {
  readonly #own = new Metrics();
  readonly #workers = new Map<number, Worker>();
  #exited: Snapshot = [];

  constructor() {
    readProcess(this.#own);
  }

  /** A worker has begun. `ask` asks it for its metrics. */
  add(id: number, ask: () => void): void {
    this.#workers.set(id, { latest: [], asked: undefined, ask });
  }

  receive(id: number, snapshot: Snapshot): void {
    const worker = this.#workers.get(id);
    if (!worker) return;
    worker.latest = snapshot;
    worker.asked?.resolve();
    worker.asked = undefined;
  }

  /** The worker has exited. */
  remove(id: number): void {
    const worker = this.#workers.get(id);
    if (!worker) return;
    this.#workers.delete(id);
    worker.asked?.resolve();
    this.#exited = mergeSnapshots([
      { snapshot: this.#exited },
      { snapshot: countsOf(worker.latest) },
    ]);
  }

  async read(): Promise<Snapshot> {
    const asked = [...this.#workers.values()];
    await Promise.all(
      asked.map((worker) => {
        // One answer serves all scrapes that wait for it.
        if (!worker.asked) {
          worker.asked = Promise.withResolvers();
          worker.ask();
        }
        return withTimeout(worker.asked.promise, answerMsMax, () => undefined);
      }),
    );
    const workers = [...this.#workers].map(([id, { latest }]) => ({
      snapshot: latest,
      worker: String(id),
    }));
    const parent = { snapshot: processOf(snapshotOf(this.#own)), worker: "parent" };
    return mergeSnapshots([...workers, { snapshot: this.#exited }, parent]);
  }
}

/** Of the parent, only what is about its process. */
function processOf(snapshot: Snapshot): Snapshot {
  return snapshot.filter(({ definition }) => definition.merge === "each");
}
