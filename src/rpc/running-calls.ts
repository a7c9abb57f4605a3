// The calls that the gRPC server is running at this moment: each with a signal that fires when its caller leaves or its deadline
// passes, and all of them together for the drain.

import type { Metadata } from "@grpc/grpc-js";
import type { Call } from "../service.ts";
import { headersOf } from "./metadata.ts";

/** What grpc-js gives for one call, as far as it is needed here. */
type SurfaceCall = {
  readonly metadata: Metadata;
  getDeadline(): Date | number;
  on(event: "cancelled", listener: () => void): unknown;
};

export class RunningCalls {
  readonly #controllers = new Set<AbortController>();
  #waiting: (() => void)[] = [];

  /** Runs `work` as one call, until it has ended. Rejects as `work` does, or with `request_too_large` for the metadata. */
  async run<T>(surface: SurfaceCall, work: (call: Call) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    this.#controllers.add(controller);
    surface.on("cancelled", () => {
      // grpc-js says so after every call, and means something only during one.
      if (this.#controllers.has(controller)) controller.abort(reasonOf(surface.getDeadline()));
    });
    try {
      return await work({ signal: controller.signal, requestHeader: headersOf(surface.metadata) });
    } finally {
      this.#controllers.delete(controller);
      if (this.#controllers.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    }
  }

  /** Aborts every call that runs now. */
  abort(reason: Error): void {
    for (const controller of this.#controllers) controller.abort(reason);
  }

  /** Resolves when no call runs. */
  async ended(): Promise<void> {
    if (this.#controllers.size > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

// grpc-js cancels for both, the passed deadline and the caller that left.
function reasonOf(deadline: Date | number): DOMException {
  return Date.now() >= Number(deadline)
    ? new DOMException("The deadline passed.", "TimeoutError")
    : new DOMException("The caller cancelled.", "AbortError");
}
