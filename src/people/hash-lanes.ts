// Who hashes a password next. A hash takes a thread of Node's pool and 19 MiB, so two run at once.
// Changes of passwords never take both: somebody who makes many keeps nobody from signing in.
// Networks take turns, so that one with many attempts does not keep the others waiting.
//
//   lane      run at once   wait
//   sign_in   2             100     sign-ins and confirmations
//   change    1             20      passwords that are set

import { networkOf } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";

const lanes = {
  sign_in: { runningMax: 2, waitingMax: 100 },
  change: { runningMax: 1, waitingMax: 20 },
} as const;
type LaneName = keyof typeof lanes;
const laneNames = ["sign_in", "change"] as const satisfies readonly LaneName[];
const runningMax = 2;

export type HashJob = {
  readonly lane: LaneName;
  /** The person, the link or the login: at most one job of it runs or waits. */
  readonly owner: string;
  /** IP address of the client. */
  readonly address: string;
};

export class HashLanes {
  readonly #lanes = { sign_in: new Lane(), change: new Lane() };
  readonly #owners = new Set<string>();
  #lastServed: LaneName = "change";

  /**
   * Runs `work` when it is its turn. Throws `auth_rate_limited` while another job of the owner runs
   * or waits, and `gateway_unavailable` if too many wait.
   */
  async run<T>(job: HashJob, work: () => Promise<T>): Promise<T> {
    this.checkRoom(job);
    const { lane: name, owner, address } = job;
    const lane = this.#lanes[name];
    this.#owners.add(owner);
    try {
      const turn = lane.wait(networkOf(address));
      this.#serve();
      await turn;
      try {
        return await work();
      } finally {
        lane.running--;
        this.#serve();
      }
    } finally {
      this.#owners.delete(owner);
    }
  }

  /** Throws what `run` would throw at this moment. */
  checkRoom({ lane: name, owner }: HashJob): void {
    if (this.#owners.has(owner))
      throw new ApiError("auth_rate_limited", {
        message: "Your last attempt is not over yet. Wait a moment.",
        retryAfterMs: 1_000,
      });
    if (this.#lanes[name].waiting >= lanes[name].waitingMax)
      throw new ApiError("gateway_unavailable", {
        message: "Too many people use a password at this moment; try again shortly.",
        retryAfterMs: 2_000,
      });
  }

  /** Lets those begin for whom there is room. */
  #serve(): void {
    for (;;) {
      const running = laneNames.reduce((sum, name) => sum + this.#lanes[name].running, 0);
      if (running >= runningMax) return;
      const ready = laneNames.filter((name) => {
        const lane = this.#lanes[name];
        return lane.waiting > 0 && lane.running < lanes[name].runningMax;
      });
      const next = ready.find((name) => name !== this.#lastServed) ?? ready[0];
      if (next === undefined) return;
      this.#lastServed = next;
      this.#lanes[next].begin();
    }
  }
}

class Lane {
  running = 0;
  waiting = 0;
  /** By network, in the order of their turns. */
  readonly #queues = new Map<string, (() => void)[]>();

  /** Resolves when the turn has come. */
  wait(network: string): Promise<void> {
    this.waiting++;
    return new Promise((resolve) => {
      const queue = this.#queues.get(network);
      if (queue) queue.push(resolve);
      else this.#queues.set(network, [resolve]);
    });
  }

  /** Begins the first job of the network whose turn it is. */
  begin(): void {
    const [first] = this.#queues;
    if (!first) return;
    const [network, [begin, ...left]] = first;
    this.#queues.delete(network);
    if (left.length > 0) this.#queues.set(network, left);
    this.waiting--;
    this.running++;
    begin?.();
  }
}
