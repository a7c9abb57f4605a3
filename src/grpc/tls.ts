// TLS credentials. Plaintext is limited to this machine, unless the operator allows it for a
// network that is safe.

import { BlockList, isIP } from "node:net";
import { ChannelCredentials, ServerCredentials } from "@grpc/grpc-js";
import type { ClientTls, ServerTls } from "../config/environment.ts";

/**
 * Credentials of a listener on `host`. Throws for plaintext on an address that other machines can
 * reach, unless `allowPlaintext` is set.
 */
export function serverCredentials(
  host: string,
  tls: ServerTls | undefined,
  allowPlaintext: boolean,
): ServerCredentials {
  if (tls) {
    const pair = { private_key: tls.privateKey, cert_chain: tls.certificate };
    return ServerCredentials.createSsl(
      tls.clientAuthorities ?? null,
      [pair],
      tls.clientAuthorities !== undefined,
    );
  }
  if (!allowPlaintext && !isLoopback(host)) {
    throw new Error(
      `gRPC without TLS on ${host} would send credentials in the clear: give it a certificate, or allow plaintext`,
    );
  }
  return ServerCredentials.createInsecure();
}

/** Credentials of a client. */
export function clientCredentials(tls: ClientTls | undefined): ChannelCredentials {
  if (!tls) return ChannelCredentials.createInsecure();
  const { authorities, identity } = tls;
  return ChannelCredentials.createSsl(
    authorities ?? null,
    identity?.privateKey ?? null,
    identity?.certificate ?? null,
  );
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

function isLoopback(host: string): boolean {
  if (host === "localhost") return true;
  const family = isIP(host);
  return family !== 0 && loopback.check(host, family === 4 ? "ipv4" : "ipv6");
}
