// Certificates for one test run: X.509 (RFC 5280) by hand, so that no private key lies in the
// repository and no tool is needed.

import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";

export type Pair = { certificate: Buffer; privateKey: Buffer };
/** `host`: instead of localhost and 127.0.0.1. `hours`: until its end, from now. */
type Extent = { host?: string; hours?: number };
export type Authority = { certificate: Buffer; issue(name: string, extent?: Extent): Pair };

/**
 * A new certificate authority. What it issues is good for `localhost` and 127.0.0.1, for an hour,
 * unless it is asked for something else.
 */
export function createAuthority(name: string): Authority {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const issuer = { name, key: keys.privateKey };
  return {
    certificate: pem("CERTIFICATE", certify(name, keys.publicKey, issuer, [isAuthority])),
    issue(subject, { host, hours = 1 } = {}) {
      const pair = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const names = host === undefined ? isLocalhost : isHost(host);
      return {
        certificate: pem("CERTIFICATE", certify(subject, pair.publicKey, issuer, [names], hours)),
        privateKey: Buffer.from(pair.privateKey.export({ type: "pkcs8", format: "pem" })),
      };
    },
  };
}

// DER: a tag, a length and the content.
function der(tag: number, ...contents: readonly Buffer[]): Buffer {
  const content = Buffer.concat(contents);
  const { length } = content;
  const size =
    length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const sequence = (...contents: readonly Buffer[]) => der(0x30, ...contents);
const identifier = (hex: string) => der(0x06, Buffer.from(hex, "hex"));
const commonName = (name: string) =>
  sequence(der(0x31, sequence(identifier("550403"), der(0x0c, Buffer.from(name)))));
const time = (ms: number) =>
  der(0x18, Buffer.from(`${new Date(ms).toISOString().replace(/\D/g, "").slice(0, 14)}Z`));
const bits = (content: Buffer) => der(0x03, Buffer.from([0]), content);
const extension = (id: string, content: Buffer) => sequence(identifier(id), der(0x04, content));

const ecdsaWithSha256 = sequence(identifier("2a8648ce3d040302"));
const isAuthority = extension("551d13", sequence(der(0x01, Buffer.from([0xff]))));
const isLocalhost = extension(
  "551d11",
  sequence(der(0x82, Buffer.from("localhost")), der(0x87, Buffer.from([127, 0, 0, 1]))),
);

const isHost = (name: string) => extension("551d11", sequence(der(0x82, Buffer.from(name))));

type Issuer = { name: string; key: KeyObject };

function certify(
  subject: string,
  key: KeyObject,
  issuer: Issuer,
  extensions: readonly Buffer[],
  hours = 1,
): Buffer {
  const hourMs = 3_600_000;
  const toBeSigned = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    // The first bit of a number is its sign.
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    commonName(issuer.name),
    sequence(time(Date.now() - 24 * hourMs), time(Date.now() + hours * hourMs)),
    commonName(subject),
    key.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(...extensions)),
  );
  return sequence(toBeSigned, ecdsaWithSha256, bits(sign("sha256", toBeSigned, issuer.key)));
}

function pem(label: string, content: Buffer): Buffer {
  const lines = content.toString("base64").match(/.{1,64}/g) ?? [];
  return Buffer.from(
    [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ""].join("\n"),
  );
}
