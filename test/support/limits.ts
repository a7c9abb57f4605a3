// The limits of a listener, as a gateway without settings has them.

import { loopbackRanges, matchAddresses } from "../../src/base/client-address.ts";
import { readConfig } from "../../src/config/environment.ts";
import { BodyMemory } from "../../src/http/body-memory.ts";
import { AddressLimit } from "../../src/http/connections.ts";

export function defaultLimits() {
  const { requestMemory, maxConnectionsPerAddress } = readConfig({});
  return {
    bodyMemory: new BodyMemory(requestMemory),
    addressLimit: new AddressLimit({
      max: maxConnectionsPerAddress,
      isExempt: matchAddresses(loopbackRanges),
    }),
  };
}
