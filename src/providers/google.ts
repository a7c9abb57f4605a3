// Tokens of Google: of a service account's key, of another identity that Google federates, of the
// machine's own account, or of an account that one of these may speak for.
//
// Written here, because `google-auth-library` ignores the file's own address of tokens, so that
// nothing could be tested without Google.

import { readFile } from "node:fs/promises";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Clock } from "../base/clock.ts";
import { isObject, parseJsonText } from "../formats/json.ts";
import { signIdentity } from "./aws.ts";
import { bearerAuthenticator, type Fetched } from "./renewal.ts";
import type { Authenticator } from "./surface.ts";
import { accessTokenOf, postForm, readToken, type TokenCall } from "./token-call.ts";

export type GoogleSettings = {
  /** Path of a JSON file. Absent: the account of the machine. */
  readonly credentialFile?: string | undefined;
  /** Address of an account to speak for. */
  readonly impersonate?: string | undefined;
};

type Parts = {
  readonly clock: Clock;
  readonly call: TokenCall;
  readonly env: NodeJS.ProcessEnv;
};

const credentials = "https://iamcredentials.googleapis.com";
const scope = "https://www.googleapis.com/auth/cloud-platform";

export function googleAuthenticator(settings: GoogleSettings, parts: Parts): Authenticator {
  const { credentialFile, impersonate } = settings;
  const source = credentialFile ?? "Google's metadata server";
  const own = () =>
    credentialFile === undefined ? fromMachine(parts) : fromFile(credentialFile, parts);
  return bearerAuthenticator(parts.clock, source, async () => {
    const fetched = await own();
    if (impersonate === undefined) return fetched;
    const account = encodeURIComponent(impersonate);
    const url = `${credentials}/v1/projects/-/serviceAccounts/${account}:generateAccessToken`;
    return speakFor(url, fetched.value, parts);
  });
}

/** The file is read anew for each token, so that another one counts without a restart. */
async function fromFile(path: string, parts: Parts): Promise<Fetched<string>> {
  const file = parseJsonText(await readFile(path, "utf8"));
  if (!isObject(file)) throw new Error("the file is no JSON object");
  switch (file.type) {
    case "service_account":
      return fromKey(file, parts);
    case "external_account":
      return fromFederation(file, parts);
    default:
      throw new Error(`type ${file.type} is not taken: only service_account, external_account`);
  }
}

async function fromKey(file: JsonObject, { call }: Parts): Promise<Fetched<string>> {
  const { importPKCS8, SignJWT } = await import("jose");
  const url = textOf(file, "token_uri");
  const key = await importPKCS8(textOf(file, "private_key"), "RS256");
  const email = textOf(file, "client_email");
  const assertion = await new SignJWT({ scope })
    .setProtectedHeader({ alg: "RS256", typ: "JWT", kid: textOf(file, "private_key_id") })
    .setIssuer(email)
    .setSubject(email)
    .setAudience(url)
    .setIssuedAt()
    .setExpirationTime("1h")
    .sign(key);
  const grant_type = "urn:ietf:params:oauth:grant-type:jwt-bearer";
  return accessTokenOf(await postForm(call, url, { grant_type, assertion }));
}

async function fromFederation(file: JsonObject, parts: Parts): Promise<Fetched<string>> {
  const { call } = parts;
  const { service_account_impersonation_url: account } = file;
  const source = isObject(file.credential_source) ? file.credential_source : {};
  const federated = accessTokenOf(
    await postForm(call, textOf(file, "token_url"), {
      grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
      requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
      audience: textOf(file, "audience"),
      subject_token_type: textOf(file, "subject_token_type"),
      subject_token:
        source.environment_id === "aws1"
          ? await awsIdentity(source, textOf(file, "audience"), parts)
          : await subjectToken(source, call),
      scope,
    }),
  );
  return typeof account === "string" ? speakFor(account, federated.value, parts) : federated;
}

/** The token of the other identity, from a file or an address. */
async function subjectToken(source: JsonObject, call: TokenCall): Promise<string> {
  const { file, url, headers, format } = source;
  const text =
    typeof file === "string"
      ? await readFile(file, "utf8")
      : typeof url === "string"
        ? (await call({ method: "GET", url, headers: textsOf(headers) })).body
        : undefined;
  if (text === undefined) throw new Error("credential_source has neither a file nor a url");
  if (!isObject(format) || format.type !== "json") return text.trim();
  const member = String(format.subject_token_field_name);
  const read = parseJsonText(text);
  const token = isObject(read) ? read[member] : undefined;
  if (typeof token !== "string") throw new Error(`credential_source has no ${member}`);
  return token;
}

/** AWS's proof of who this machine is: the request for it, signed, which Google sends. */
async function awsIdentity(
  source: JsonObject,
  audience: string,
  { call, env }: Parts,
): Promise<string> {
  const region = env.AWS_REGION || env.AWS_DEFAULT_REGION || (await regionOfMachine(source, call));
  const url = new URL(
    textOf(source, "regional_cred_verification_url").replaceAll("{region}", region),
  );
  const named = { "x-goog-cloud-target-resource": audience };
  const signed = await signIdentity(url, region, named, call);
  const headers = Object.entries(signed).map(([key, value]) => ({ key, value }));
  return encodeURIComponent(JSON.stringify({ url: url.href, method: "POST", headers }));
}

/** The region of a machine at AWS, by its metadata server. */
async function regionOfMachine(source: JsonObject, call: TokenCall): Promise<string> {
  const { imdsv2_session_token_url: session } = source;
  const headers: Record<string, string> = {};
  if (typeof session === "string") {
    const lifetime = { "x-aws-ec2-metadata-token-ttl-seconds": "300" };
    const answer = await call({ method: "PUT", url: session, headers: lifetime });
    headers["x-aws-ec2-metadata-token"] = answer.body;
  }
  const answer = await call({ method: "GET", url: textOf(source, "region_url"), headers });
  // A zone is its region and a letter.
  const [region] = /^[a-z]{2,}(?:-[a-z0-9]+)*-\d+/.exec(answer.body) ?? [];
  if (region === undefined) throw new Error("region_url answers without a zone");
  return region;
}

async function fromMachine({ call, env }: Parts): Promise<Fetched<string>> {
  const host = env.GCE_METADATA_HOST ?? "metadata.google.internal";
  const url = `http://${host}/computeMetadata/v1/instance/service-accounts/default/token`;
  const headers = { "metadata-flavor": "Google" };
  return accessTokenOf(readToken(await call({ method: "GET", url, headers })));
}

/** A token of another account, with the token of one that may speak for it. */
async function speakFor(url: string, token: string, { call }: Parts): Promise<Fetched<string>> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const body = JSON.stringify({ scope: [scope], lifetime: "3600s" });
  const { accessToken, expireTime } = readToken(await call({ method: "POST", url, headers, body }));
  if (typeof accessToken !== "string") throw new Error("it answers without a token");
  return { value: accessToken, lifeMs: Date.parse(String(expireTime)) - Date.now() };
}

function textOf(file: JsonObject, name: string): string {
  const value = file[name];
  if (typeof value !== "string" || value === "") throw new Error(`the file has no ${name}`);
  return value;
}

function textsOf(value: JsonValue | undefined): Record<string, string> {
  const entries = Object.entries(isObject(value) ? value : {});
  return Object.fromEntries(entries.map(([name, one]) => [name, String(one)]));
}
