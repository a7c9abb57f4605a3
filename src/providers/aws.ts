// Proves to AWS who sends a request. AWS's own packages find the credentials, from ten sources with
// rules of their own, and sign. They are loaded by the first request: 45 ms, 10 MiB.

import { createHash, createHmac, type Hash, type Hmac } from "node:crypto";
import { Readable } from "node:stream";
import type { Clock } from "../base/clock.ts";
import { cloudErrorOf } from "./cloud-failures.ts";
import { readErrorBody } from "./failures.ts";
import { keptSecrets, Renewal } from "./renewal.ts";
import type { Authenticator } from "./surface.ts";
import type { TokenCall } from "./token-call.ts";

/** Whom a request is signed for. */
export type AwsSettings = {
  readonly region: string;
  /** AWS's name of the service. */
  readonly service: string;
  /** URL of the provider. */
  readonly baseUrl: string;
  /** ARN of a role to take on. */
  readonly assumeRole?: string | undefined;
  readonly externalId?: string | undefined;
};

/** AWS's name of the service at an address. Signatures for Bedrock's runtime are for `bedrock`. */
export function awsServiceOf(baseUrl: string): string {
  // The first label of an address within a private network is the network's own.
  const labels = new URL(baseUrl).hostname.split(".");
  return (
    ["bedrock-mantle", "aws-external-anthropic"].find((one) => labels.includes(one)) ?? "bedrock"
  );
}

/** `report`: hears of what the operator should know. */
export function awsAuthenticator(
  settings: AwsSettings,
  { clock, call, report }: { clock: Clock; call: TokenCall; report: (message: string) => void },
): Authenticator {
  const { region, service, assumeRole } = settings;
  const { protocol, hostname, port, host } = new URL(settings.baseUrl);
  const source = assumeRole === undefined ? "AWS's chain" : `the role ${assumeRole}`;
  /** Added to the clock of this machine, after an answer of AWS's said that it is off. */
  let offsetMs = 0;
  let secrets: readonly string[] = [];

  const renewal = new Renewal(clock, source, async () => {
    const [{ SignatureV4 }, find] = await Promise.all([
      import("@smithy/signature-v4"),
      findCredentials(settings, call),
    ]);
    const credentials = await find();
    const { secretAccessKey, sessionToken, expiration } = credentials;
    const own = [secretAccessKey, ...(sessionToken === undefined ? [] : [sessionToken])];
    // Requests with those of before may still be answered.
    secrets = [...own, ...secrets].slice(0, keptSecrets);
    const signer = new SignatureV4({ credentials, region, service, ...signing });
    return { value: signer, lifeMs: expiration && expiration.getTime() - Date.now() };
  });

  return {
    async headers({ method, path, body }) {
      const signer = await renewal.get();
      const [pathname = path, query = ""] = path.split("?");
      const signed = await signer.sign(
        {
          ...{ method, protocol, hostname, path: pathname, body, headers: { host } },
          query: Object.fromEntries(new URLSearchParams(query)),
          ...(port !== "" && { port: Number(port) }),
        },
        { signingDate: new Date(Date.now() + offsetMs) },
      );
      return Object.entries(signed.headers).flatMap(([name, value]) =>
        name === "host" ? [] : [name, value],
      );
    },
    refresh(answer) {
      if (![400, 401, 403].includes(answer.status)) return undefined;
      const name = cloudErrorOf(answer);
      if (answer.status !== 401 && !refusals.has(name)) return undefined;
      const { message } = readErrorBody(answer.body);
      const sentMs = Date.parse(String(answer.headers?.date ?? ""));
      if (
        !/not yet current|signature expired|too (?:old|new)/i.test(message) ||
        Number.isNaN(sentMs)
      )
        return renewal.refresh();
      const before = offsetMs;
      offsetMs = sentMs - Date.now();
      const seconds = Math.round(offsetMs / 1000);
      // Requests of before the first such answer are refused, too.
      if (Math.abs(offsetMs - before) > 5_000)
        report(`the clock of this machine is off by ${seconds} s from AWS's, by which we sign now`);
      return Promise.resolve(true);
    },
    secrets: () => secrets,
    credential: () => renewal.credential,
  };
}

/** AWS's names for a refused credential or signature, as `cloudErrorOf` gives them. */
const refusals: ReadonlySet<string> = new Set([
  ...["expiredtoken", "unrecognizedclient", "invalidsignature", "incompletesignature"],
  ...["invalidclienttokenid", "requestexpired", "missingauthenticationtoken"],
]);

/**
 * Signs for another the request by which AWS says whose credentials those of this machine are.
 * Returns all of its headers. `headers`: further ones to sign.
 */
export async function signIdentity(
  url: URL,
  region: string,
  headers: Readonly<Record<string, string>>,
  call: TokenCall,
): Promise<Readonly<Record<string, string>>> {
  const [{ SignatureV4 }, find] = await Promise.all([
    import("@smithy/signature-v4"),
    findCredentials({ region }, call),
  ]);
  const signer = new SignatureV4({ credentials: await find(), region, service: "sts", ...signing });
  const { protocol, hostname, pathname: path, host, searchParams } = url;
  const signed = await signer.sign({
    ...{ method: "POST", protocol, hostname, path, headers: { host, ...headers } },
    query: Object.fromEntries(searchParams),
  });
  return signed.headers;
}

type Find = () => Promise<{
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
  readonly expiration?: Date;
}>;

async function findCredentials(
  { region, assumeRole, externalId }: Pick<AwsSettings, "region" | "assumeRole" | "externalId">,
  call: TokenCall,
): Promise<Find> {
  const { fromNodeProviderChain, fromTemporaryCredentials } = await import(
    "@aws-sdk/credential-providers"
  );
  const clientConfig = { region, requestHandler: handlerOf(call) };
  // Version 1 of the metadata service answers everybody who makes a server call it.
  const chain = fromNodeProviderChain({ clientConfig, ec2MetadataV1Disabled: true });
  if (assumeRole === undefined) return chain;
  return fromTemporaryCredentials({
    clientConfig,
    masterCredentials: chain,
    params: {
      RoleArn: assumeRole,
      RoleSessionName: "model-gateway",
      ...(externalId !== undefined && { ExternalId: externalId }),
    },
  });
}

/** What AWS's packages send requests with. */
type Outgoing = {
  readonly method: string;
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
};

function handlerOf(call: TokenCall) {
  return {
    metadata: { handlerProtocol: "http/1.1" },
    async handle(request: Outgoing) {
      const { method, protocol, hostname, port, path, query = {}, headers, body } = request;
      const url = new URL(`${protocol}//${hostname}${port === undefined ? "" : `:${port}`}${path}`);
      for (const [name, value] of Object.entries(query)) url.searchParams.append(name, `${value}`);
      const answer = await call({
        method: method === "GET" || method === "PUT" ? method : "POST",
        url: url.href,
        headers,
        ...(typeof body === "string" && { body }),
        ...(body instanceof Uint8Array && { body: Buffer.from(body).toString() }),
      });
      const response = {
        statusCode: answer.status,
        headers: { ...answer.headers },
        body: Readable.from([Buffer.from(answer.body)]),
      };
      return { response };
    },
  };
}

/** Node's SHA-256: ten times as fast as the one in JavaScript that the packages bring. */
class NodeSha256 {
  readonly #secret: string | Uint8Array | undefined;
  #hash: Hash | Hmac;

  constructor(secret?: string | ArrayBuffer | ArrayBufferView) {
    this.#secret = secret === undefined || typeof secret === "string" ? secret : viewOf(secret);
    this.#hash = this.#begin();
  }

  update(data: string | ArrayBuffer | ArrayBufferView): void {
    this.#hash.update(typeof data === "string" ? data : viewOf(data));
  }

  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }

  reset(): void {
    this.#hash = this.#begin();
  }

  #begin(): Hash | Hmac {
    const secret = this.#secret;
    return secret === undefined ? createHash("sha256") : createHmac("sha256", secret);
  }
}

const signing = { sha256: NodeSha256, uriEscapePath: true };

function viewOf(data: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}
