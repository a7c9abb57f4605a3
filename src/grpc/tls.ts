// TLS credentials. Plaintext is limited to this machine, unless the operator allows it for a
// network that is safe.

import { X509Certificate } from "node:crypto";
import { BlockList, isIP } from "node:net";
import { createSecureContext } from "node:tls";
import { ChannelCredentials, experimental, ServerCredentials } from "@grpc/grpc-js";
import type { ClientTls, ServerTls } from "../config/environment.ts";

type IdentityListener = experimental.IdentityCertificateUpdateListener;
type AuthorityListener = experimental.CaCertificateUpdateListener;

/** The certificate of a listener. Its connections to come use the one that was set last. */
export class ServerCertificate implements experimental.CertificateProvider {
  #tls: ServerTls;
  readonly #identities = new Set<IdentityListener>();
  readonly #authorities = new Set<AuthorityListener>();

  /** Throws an Error for a certificate and a key that do not fit together. */
  constructor(tls: ServerTls) {
    check(tls);
    this.#tls = tls;
  }

  /** When the certificate ends. */
  get endsAt(): Date {
    return new X509Certificate(this.#tls.certificate).validToDate;
  }

  get asksClients(): boolean {
    return this.#tls.clientAuthorities !== undefined;
  }

  /**
   * Takes another certificate. False: it is the same. Throws an Error, and keeps the one of before,
   * for a certificate and a key that do not fit together, as while their files are being written.
   */
  replace(tls: ServerTls): boolean {
    const isSame = (["certificate", "privateKey", "clientAuthorities"] as const).every(
      (name) => Buffer.compare(tls[name] ?? none, this.#tls[name] ?? none) === 0,
    );
    if (isSame) return false;
    check(tls);
    this.#tls = tls;
    for (const listener of this.#authorities) this.#giveAuthorities(listener);
    for (const listener of this.#identities) this.#giveIdentity(listener);
    return true;
  }

  // grpc-js notes an update after it has added its listener.
  addIdentityCertificateListener(listener: IdentityListener): void {
    this.#identities.add(listener);
    queueMicrotask(() => this.#giveIdentity(listener));
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.#identities.delete(listener);
  }

  addCaCertificateListener(listener: AuthorityListener): void {
    this.#authorities.add(listener);
    queueMicrotask(() => this.#giveAuthorities(listener));
  }

  removeCaCertificateListener(listener: AuthorityListener): void {
    this.#authorities.delete(listener);
  }

  #giveIdentity(listener: IdentityListener): void {
    const { certificate, privateKey } = this.#tls;
    listener({ certificate, privateKey });
  }

  #giveAuthorities(listener: AuthorityListener): void {
    listener({ caCertificate: this.#tls.clientAuthorities ?? none });
  }
}

const none = Buffer.alloc(0);

function check({ certificate, privateKey, clientAuthorities }: ServerTls): void {
  const ca = clientAuthorities && { ca: clientAuthorities };
  createSecureContext({ cert: certificate, key: privateKey, ...ca });
}

/**
 * Credentials of a listener on `host`. Throws for plaintext on an address that other machines can
 * reach, unless `allowPlaintext` is set.
 */
export function serverCredentials(
  host: string,
  certificate: ServerCertificate | undefined,
  allowPlaintext: boolean,
): ServerCredentials {
  if (certificate) {
    const { asksClients } = certificate;
    return experimental.createCertificateProviderServerCredentials(
      certificate,
      asksClients ? certificate : null,
      asksClients,
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
