// Tokens of Microsoft Entra: of a client's secret, of a federated token in a file, or of the
// identity that Azure gives a machine.

import { readFile } from "node:fs/promises";
import type { Clock } from "../base/clock.ts";
import { secretsOf } from "./endpoint.ts";
import { bearerAuthenticator, type Fetched } from "./renewal.ts";
import type { Authenticator } from "./surface.ts";
import { accessTokenOf, postForm, readToken, type TokenCall } from "./token-call.ts";

export type EntraSettings = {
  /** Default: `AZURE_TENANT_ID`. */
  readonly tenant?: string | undefined;
  /** Default: `AZURE_CLIENT_ID`. */
  readonly client?: string | undefined;
  /** The client's secret, now. Absent: a federated token, or the machine's identity. */
  readonly secret?: { readonly value: string } | undefined;
};

type Parts = {
  readonly clock: Clock;
  readonly call: TokenCall;
  readonly env: NodeJS.ProcessEnv;
};

const resource = "https://cognitiveservices.azure.com";

export function entraAuthenticator(settings: EntraSettings, parts: Parts): Authenticator {
  const { env, clock, call } = parts;
  const { tenant = env.AZURE_TENANT_ID, client = env.AZURE_CLIENT_ID, secret } = settings;
  const file = env.AZURE_FEDERATED_TOKEN_FILE || undefined;
  if (secret === undefined && file === undefined)
    return bearerAuthenticator(clock, "Azure's managed identity", () => fromMachine(client, parts));
  const source = secret === undefined ? `Entra with ${file}` : "Entra with a client secret";
  const ownSecrets = secret ? secretsOf(secret) : () => [];
  const fetchToken = async () => {
    ownSecrets();
    if (!tenant || !client) throw new Error("tenant and client are not set");
    const authority = env.AZURE_AUTHORITY_HOST ?? "https://login.microsoftonline.com";
    const url = `${authority.replace(/\/+$/, "")}/${tenant}/oauth2/v2.0/token`;
    const proof =
      secret === undefined
        ? {
            client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            client_assertion: (await readFile(file ?? "", "utf8")).trim(),
          }
        : { client_secret: secret.value };
    const form = { grant_type: "client_credentials", client_id: client, ...proof };
    return accessTokenOf(await postForm(call, url, { ...form, scope: `${resource}/.default` }));
  };
  const proven = bearerAuthenticator(clock, source, fetchToken);
  if (secret === undefined) return proven;
  let [tokens, secrets, all]: (readonly string[])[] = [];
  return {
    ...proven,
    secrets() {
      const [newTokens, newSecrets] = [proven.secrets(), ownSecrets()];
      if (!all || newTokens !== tokens || newSecrets !== secrets)
        all = [...newTokens, ...newSecrets];
      [tokens, secrets] = [newTokens, newSecrets];
      return all;
    },
  };
}

/** Of an app (App Service, Functions, Container Apps) or of a virtual machine. */
async function fromMachine(
  client: string | undefined,
  { call, env }: Parts,
): Promise<Fetched<string>> {
  const { IDENTITY_ENDPOINT: endpoint, IDENTITY_HEADER: header } = env;
  const isApp = endpoint !== undefined && header !== undefined;
  const url = new URL(isApp ? endpoint : "http://169.254.169.254/metadata/identity/oauth2/token");
  url.searchParams.set("api-version", isApp ? "2019-08-01" : "2018-02-01");
  url.searchParams.set("resource", resource);
  if (client) url.searchParams.set("client_id", client);
  const headers: Record<string, string> = isApp
    ? { "x-identity-header": header }
    : { metadata: "true" };
  const answer = readToken(await call({ method: "GET", url: url.href, headers }));
  const { expires_in: seconds, expires_on: endsAt } = answer;
  const lifeMs =
    seconds === undefined ? Number(endsAt) * 1000 - Date.now() : Number(seconds) * 1000;
  return { ...accessTokenOf(answer), lifeMs };
}
