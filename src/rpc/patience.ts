// What becomes of a call that failed: tried again while no core was connected to send it to, else told as the refusal it stands for.

import { setTimeout as pause } from "node:timers/promises";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { Refusal } from "../errors.ts";
import { abortRefusal } from "../service.ts";
import { fromStatus } from "./status.ts";

// As long as a core that is replaced needs to be found again: the channels try to connect at least every half a second.
const patienceMs = 1_000;
const pauseMs = 50;

/** Of one call, over all its attempts. */
export class Patience {
  readonly #signal: AbortSignal | undefined;
  #until: number | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Resolves when it is worth another attempt. Throws the call's refusal when it is not. */
  async endure(error: unknown): Promise<void> {
    if (!isServiceError(error)) throw new Refusal("internal", { cause: error });
    if (this.#signal?.aborted && error.code === status.CANCELLED) throw abortRefusal(this.#signal);
    if (!isUnsent(error)) throw fromStatus(error);
    // The first time another core may be connected already.
    if (this.#until === undefined) this.#until = Date.now() + patienceMs;
    else if (Date.now() < this.#until) await pause(pauseMs);
    else throw fromStatus(error);
  }
}

/** True when the call did not leave this process, so that repeating it repeats nothing. Only the sentence tells. */
function isUnsent({ code, details }: ServiceError): boolean {
  return code === status.UNAVAILABLE && /No connection established|Name resolution failed/.test(details);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "metadata" in error && error.metadata instanceof Metadata;
}
