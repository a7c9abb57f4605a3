// The memory of request bodies: one budget for all bodies that are received or wait for a provider,
// with a share for each key and each client address. A body that does not fit is rejected, before
// it is read if its length was declared.

import { addTo } from "../base/bounded-map.ts";
import { networkOf } from "../base/client-address.ts";
import { ApiError } from "../base/errors.ts";

/**
 * Bytes of memory for each byte of a body: the bytes themselves, their text, its values, and the
 * encoded request to the provider.
 */
const memoryPerByte = 4;

export type BodyMemoryLimits = {
  /** Bytes of memory of all bodies together. */
  readonly totalBytes: number;
  readonly perKeyBytes: number;
  readonly perAddressBytes: number;
};

export type BodyOwner = {
  /** Absent for the operator, who has no key. */
  readonly keyId?: string | undefined;
  /** IP address of the client. */
  readonly address: string;
};

/** The memory of one body. */
export type BodyReservation = {
  /**
   * Reserves memory for a body of `bodyBytes` bytes, which may only grow. Throws `too_many_bodies`
   * beyond the share of the key, otherwise `gateway_unavailable`. No effect once released.
   */
  grow(bodyBytes: number): void;
  /** Repeating it has no effect. */
  release(): void;
};

/** Long enough for a large body to be sent on to its provider. */
const retryAfterMs = 1_000;

/** One instance per listener. */
export class BodyMemory {
  readonly #limits: BodyMemoryLimits;
  #usedBytes = 0;
  readonly #byKey = new Map<string, number>();
  readonly #byAddress = new Map<string, number>();

  constructor(limits: BodyMemoryLimits) {
    this.#limits = limits;
  }

  /** Bytes that are reserved now. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Begins a body, without memory at first. */
  open({ keyId, address }: BodyOwner): BodyReservation {
    const client = networkOf(address);
    let held = 0;
    let isOpen = true;
    return {
      grow: (bodyBytes) => {
        const more = memoryPerByte * bodyBytes - held;
        if (!isOpen || more <= 0) return;
        this.#check(keyId, client, more);
        held += more;
        this.#add(keyId, client, more);
      },
      release: () => {
        isOpen = false;
        if (held > 0) this.#add(keyId, client, -held);
        held = 0;
      },
    };
  }

  #check(keyId: string | undefined, client: string, more: number): void {
    const { totalBytes, perKeyBytes, perAddressBytes } = this.#limits;
    const ofKey = keyId === undefined ? 0 : (this.#byKey.get(keyId) ?? 0);
    if (keyId !== undefined && ofKey + more > perKeyBytes)
      throw new ApiError("too_many_bodies", {
        retryAfterMs,
        limit: limitOf("key_body_memory_bytes", perKeyBytes, ofKey),
      });
    const ofAddress = this.#byAddress.get(client) ?? 0;
    if (ofAddress + more > perAddressBytes)
      throw new ApiError("gateway_unavailable", {
        message: "Requests from this address fill its share of the memory; try again shortly.",
        retryAfterMs,
        limit: limitOf("address_body_memory_bytes", perAddressBytes, ofAddress),
      });
    // Without a limit in the error: callers need not learn how busy the others are.
    if (this.#usedBytes + more > totalBytes)
      throw new ApiError("gateway_unavailable", {
        message: "The gateway holds as many requests as it can; try again shortly.",
        retryAfterMs,
      });
  }

  #add(keyId: string | undefined, client: string, bytes: number): void {
    this.#usedBytes += bytes;
    if (keyId !== undefined) addTo(this.#byKey, keyId, bytes);
    addTo(this.#byAddress, client, bytes);
  }
}

function limitOf(name: string, limit: number, used: number) {
  return {
    name,
    limit: BigInt(limit),
    used: BigInt(used),
    remaining: BigInt(Math.max(0, limit - used)),
  };
}
