// The limits of a listener, as a gateway without settings has them.

import { loopbackRanges, matchAddresses } from "../../src/base/client-address.ts";
import { readConfig } from "../../src/config/environment.ts";
import { AddressLoad, type AddressLoadSettings } from "../../src/http/connections.ts";
import { KeyLoad, type KeyLoadParts } from "../../src/http/key-load.ts";

const { requestMemory, maxConnectionsPerAddress } = readConfig({});
const noRateLimits = {
  check: () => {},
  tooManyFailed: () => undefined,
  recordFailed: async () => {},
};

export function addressLoad(changes: Partial<AddressLoadSettings> = {}): AddressLoad {
  return new AddressLoad({
    max: maxConnectionsPerAddress,
    bodyBytesMax: requestMemory.perAddressBytes,
    isExempt: matchAddresses(loopbackRanges),
    ...changes,
  });
}

/** Without rate limits, unless `changes` has them. */
export function keyLoad(changes: Partial<KeyLoadParts> = {}): KeyLoad {
  return new KeyLoad({
    memory: requestMemory,
    addresses: addressLoad(),
    rateLimits: noRateLimits,
    onPayerChange: () => {},
    ...changes,
  });
}

/** A key's load under these limits of memory. */
export function loadWithin(
  { perAddressBytes, ...memory }: typeof requestMemory,
  changes: Partial<KeyLoadParts> = {},
): KeyLoad {
  return keyLoad({ memory, addresses: addressLoad({ bodyBytesMax: perAddressBytes }), ...changes });
}

/** One load of keys over one of addresses. */
export function defaultLimits({ clock }: Pick<KeyLoadParts, "clock"> = {}) {
  const addresses = addressLoad();
  return { keyLoad: keyLoad({ addresses, ...(clock && { clock }) }), addressLoad: addresses };
}
