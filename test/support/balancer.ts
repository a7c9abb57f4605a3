// A TCP balancer that knows nothing but GET /health: it repeats no request, and takes no process
// out by itself.

import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

export type Balancer = {
  readonly port: number;
  /** Resolves when it sends requests to the process at this port, or does so no more. */
  until(port: number, isUp: boolean): Promise<void>;
  stop(): Promise<void>;
};

/** Asks each process every `checkMs`, and believes what it heard twice. */
export async function startBalancer(ports: readonly number[], checkMs: number): Promise<Balancer> {
  const backends = ports.map((port) => ({ port, isUp: false, differs: 0 }));
  const stopping = new AbortController();
  const sockets = new Set<Socket>();
  let turn = 0;

  const check = async (backend: (typeof backends)[number]) => {
    while (!stopping.signal.aborted) {
      const answer = await fetch(`http://127.0.0.1:${backend.port}/health`, {
        headers: { connection: "close" },
        signal: AbortSignal.any([stopping.signal, AbortSignal.timeout(2_000)]),
      }).catch(() => undefined);
      await answer?.body?.cancel();
      const isUp = answer?.status === 200;
      backend.differs = isUp === backend.isUp ? 0 : backend.differs + 1;
      if (backend.differs === 2) Object.assign(backend, { isUp, differs: 0 });
      await delay(checkMs, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  };
  const checks = Promise.all(backends.map(check));

  const server = createServer({ allowHalfOpen: true }, (near) => {
    const up = backends.filter(({ isUp }) => isUp);
    turn += 1;
    const backend = up[turn % up.length];
    if (!backend) return near.destroy();
    const far = createConnection({ port: backend.port, host: "127.0.0.1", allowHalfOpen: true });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.setNoDelay(true);
      from.on("error", () => to.destroy());
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return {
    port: typeof address === "object" && address ? address.port : 0,
    async until(port, isUp) {
      while (!backends.some((one) => one.port === port && one.isUp === isUp)) await delay(20);
    },
    async stop() {
      stopping.abort();
      for (const socket of sockets) socket.destroy();
      server.close();
      await checks;
    },
  };
}
