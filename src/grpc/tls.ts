// TLS credentials. Plaintext is limited to this machine, unless the operator allows it for a
// network that is safe.

import { X509Certificate } from "node:crypto";
import { BlockList, isIP } from "node:net";
import { createSecureContext, getCACertificates } from "node:tls";
import { ChannelCredentials, experimental, ServerCredentials } from "@grpc/grpc-js";
import type { ClientTls } from "../config/environment.ts";

type IdentityListener = experimental.IdentityCertificateUpdateListener;
type AuthorityListener = experimental.CaCertificateUpdateListener;

/** A certificate with its key, and the signers that the other side's must have, in PEM. */
type Pem = {
  readonly certificate?: Buffer | undefined;
  readonly privateKey?: Buffer | undefined;
  readonly authorities?: Buffer | undefined;
};

/** TLS of a listener or a client. Its connections to come use the PEM that was set last. */
export class Certificate implements experimental.CertificateProvider {
  #pem: Pem;
  readonly #identities = new Set<IdentityListener>();
  readonly #authorities = new Set<AuthorityListener>();

  /** Throws an Error for a certificate and a key that do not fit together. */
  constructor(pem: Pem) {
    check(pem);
    this.#pem = pem;
  }

  /** When the certificate ends. Undefined: a client that has none. */
  get endsAt(): Date | undefined {
    const { certificate } = this.#pem;
    return certificate && new X509Certificate(certificate).validToDate;
  }

  get hasIdentity(): boolean {
    return this.#pem.certificate !== undefined;
  }

  get hasAuthorities(): boolean {
    return this.#pem.authorities !== undefined;
  }

  /**
   * Takes another PEM. False: it is the same. Throws an Error, and keeps the one of before, for a
   * certificate and a key that do not fit together, as while their files are being written.
   */
  replace(pem: Pem): boolean {
    const isSame = (["certificate", "privateKey", "authorities"] as const).every(
      (name) => Buffer.compare(pem[name] ?? none, this.#pem[name] ?? none) === 0,
    );
    if (isSame) return false;
    check(pem);
    this.#pem = pem;
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
    const { certificate = none, privateKey = none } = this.#pem;
    listener({ certificate, privateKey });
  }

  #giveAuthorities(listener: AuthorityListener): void {
    listener({ caCertificate: this.#pem.authorities ?? none });
  }
}

const none = Buffer.alloc(0);

function check({ certificate, privateKey, authorities }: Pem): void {
  createSecureContext({ cert: certificate, key: privateKey, ca: authorities });
}

/**
 * Credentials of a listener on `host`. Throws for plaintext on an address that other machines can
 * reach, unless `allowPlaintext` is set.
 */
export function serverCredentials(
  host: string,
  certificate: Certificate | undefined,
  allowPlaintext: boolean,
): ServerCredentials {
  if (certificate) {
    const { hasAuthorities } = certificate;
    return experimental.createCertificateProviderServerCredentials(
      certificate,
      hasAuthorities ? certificate : null,
      hasAuthorities,
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
export function clientCredentials(certificate: Certificate | undefined): ChannelCredentials {
  if (!certificate) return ChannelCredentials.createInsecure();
  return experimental.createCertificateProviderChannelCredentials(
    certificate,
    certificate.hasIdentity ? certificate : null,
  );
}

/** TLS of a client. Without authorities it trusts those that Node trusts. */
export function clientCertificate({ authorities, identity }: ClientTls): Certificate {
  return new Certificate({ ...identity, authorities: authorities ?? trustedByNode() });
}

function trustedByNode(): Buffer {
  return Buffer.from(getCACertificates("default").join("\n"));
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

function isLoopback(host: string): boolean {
  if (host === "localhost") return true;
  const family = isIP(host);
  return family !== 0 && loopback.check(host, family === 4 ? "ipv4" : "ipv6");
}
