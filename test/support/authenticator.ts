// An authenticator in software: makes passkeys and signs with them, as WebAuthn prescribes. It does
// what it is told, so that tests can make every kind of wrong answer.

import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";

type Credential = { readonly id: Buffer; readonly privateKey: KeyObject; counter: number };

/** What a wrong authenticator or a foreign page would do otherwise. */
export type Deviation = {
  /** The origin of the page. */
  readonly origin?: string;
  readonly userVerified?: boolean;
};

export class Authenticator {
  readonly #origin: string;
  #credential: Credential | undefined;

  constructor(origin: string) {
    this.#origin = origin;
  }

  /** Answers creation options, as `toJSON` of the credential. */
  register(optionsJson: string, deviation: Deviation = {}): string {
    const options = JSON.parse(optionsJson);
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const id = randomBytes(32);
    this.#credential = { id, privateKey, counter: 0 };
    const { x = "", y = "" } = publicKey.export({ format: "jwk" });
    const cose = cborMap([
      [1, 2],
      [3, -7],
      [-1, 1],
      [-2, Buffer.from(x, "base64url")],
      [-3, Buffer.from(y, "base64url")],
    ]);
    const length = Buffer.alloc(2);
    length.writeUInt16BE(id.length);
    const authData = Buffer.concat([
      this.#authenticatorData(options.rp.id, 0x40, deviation),
      ...[Buffer.alloc(16), length, id, cose],
    ]);
    const attestationObject = cborMap([
      ["fmt", "none"],
      ["attStmt", new Map()],
      ["authData", authData],
    ]);
    return this.#answer(id, {
      clientDataJSON: this.#clientData("webauthn.create", options.challenge, deviation),
      attestationObject: attestationObject.toString("base64url"),
      transports: ["internal"],
    });
  }

  /** Answers request options with the passkey of the last registration. */
  sign(optionsJson: string, deviation: Deviation = {}): string {
    const options = JSON.parse(optionsJson);
    const credential = this.#credential;
    if (!credential) throw new Error("no passkey was registered");
    credential.counter++;
    const authenticatorData = this.#authenticatorData(options.rpId, 0, deviation);
    const clientDataJSON = this.#clientData("webauthn.get", options.challenge, deviation);
    const clientDataHash = createHash("sha256")
      .update(Buffer.from(clientDataJSON, "base64url"))
      .digest();
    const signed = Buffer.concat([authenticatorData, clientDataHash]);
    return this.#answer(credential.id, {
      clientDataJSON,
      authenticatorData: authenticatorData.toString("base64url"),
      signature: sign("sha256", signed, credential.privateKey).toString("base64url"),
    });
  }

  #authenticatorData(site: string, flags: number, { userVerified = true }: Deviation): Buffer {
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(this.#credential?.counter ?? 0);
    const present = 0x01 | (userVerified ? 0x04 : 0);
    const siteHash = createHash("sha256").update(site).digest();
    return Buffer.concat([siteHash, Buffer.from([flags | present]), counter]);
  }

  #clientData(type: string, challenge: string, { origin = this.#origin }: Deviation): string {
    const data = { type, challenge, origin, crossOrigin: false };
    return Buffer.from(JSON.stringify(data)).toString("base64url");
  }

  #answer(id: Buffer, response: object): string {
    const text = id.toString("base64url");
    return JSON.stringify({
      id: text,
      rawId: text,
      type: "public-key",
      clientExtensionResults: {},
      response,
    });
  }
}

type Cbor = number | string | Buffer | ReadonlyMap<Cbor, Cbor>;

function cborMap(entries: readonly (readonly [Cbor, Cbor])[]): Buffer {
  return cbor(new Map(entries));
}

function cbor(value: Cbor): Buffer {
  if (typeof value === "number") return value >= 0 ? cborHead(0, value) : cborHead(1, -1 - value);
  if (typeof value === "string")
    return Buffer.concat([cborHead(3, Buffer.byteLength(value)), Buffer.from(value)]);
  if (Buffer.isBuffer(value)) return Buffer.concat([cborHead(2, value.length), value]);
  const members = [...value].flatMap(([name, member]) => [cbor(name), cbor(member)]);
  return Buffer.concat([cborHead(5, value.size), ...members]);
}

function cborHead(major: number, length: number): Buffer {
  if (length < 24) return Buffer.from([(major << 5) | length]);
  if (length < 256) return Buffer.from([(major << 5) | 24, length]);
  return Buffer.from([(major << 5) | 25, length >> 8, length & 0xff]);
}
