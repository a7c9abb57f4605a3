// Providers of OIDC: companies at which people sign in. `openid-client` speaks the protocol: code
// with PKCE, and the checks of state, nonce, issuer, audience and times. What a provider says is
// believed only where its ID token is signed by a key of its own.

import * as client from "openid-client";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { readMailAddress } from "../base/mail-address.ts";
import { toName } from "../base/names.ts";
import type { Outbound } from "../base/outbound.ts";
import type { OidcSettings } from "../config/catalog.ts";

/** What a provider said of a person. */
export type Claims = {
  readonly issuer: string;
  readonly subject: string;
  /** Absent: the provider named none, or does not vouch for it. */
  readonly email: string | undefined;
  readonly name: string;
  /** Undefined: the provider did not send the claim. */
  readonly groups: readonly string[] | undefined;
  /** When the person proved there who he is. Absent: the provider does not say. */
  readonly authenticatedAt: Date | undefined;
};

/** The secrets of one sign-in, which only its browser and this service know. */
export type FlowSecrets = {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
};

export type OidcProvider = {
  readonly name: string;
  readonly settings: OidcSettings;
  /**
   * The address at the provider to which the browser goes. `again`: the person has to prove who he
   * is once more. Throws `gateway_unavailable` if the provider does not answer.
   */
  begin(secrets: FlowSecrets, again: boolean): Promise<URL>;
  /**
   * Reads what the browser brought back, as a query of an address. Throws `sign_in_failed` and
   * `gateway_unavailable`.
   */
  finish(secrets: FlowSecrets, query: string): Promise<Claims>;
};

const hourMs = 3_600_000;
const bodyBytesMax = 1024 * 1024;
const groupsMax = 1_000;

/**
 * The providers by their names, in the order of their configuration. Throws if the environment
 * lacks a client secret.
 */
export function createOidcProviders(parts: {
  settings: Readonly<Record<string, OidcSettings>>;
  env: NodeJS.ProcessEnv;
  outbound: Outbound;
  publicUrl: () => URL;
  log: Log;
}): ReadonlyMap<string, OidcProvider> {
  const { settings, env, ...others } = parts;
  return new Map(
    Object.entries(settings).map(([name, one]) => {
      const { clientSecretEnv } = one;
      const secret = clientSecretEnv === undefined ? undefined : env[clientSecretEnv];
      if (clientSecretEnv !== undefined && !secret)
        throw new Error(`people.oidc.${name}: ${clientSecretEnv} holds no secret`);
      return [name, createOidcProvider({ name, settings: one, secret, ...others })];
    }),
  );
}

/** `secret` undefined: a public client. */
function createOidcProvider(parts: {
  name: string;
  settings: OidcSettings;
  secret: string | undefined;
  outbound: Outbound;
  publicUrl: () => URL;
  log: Log;
}): OidcProvider {
  const { name, settings, secret, outbound, publicUrl, log } = parts;
  const { issuer, clientId, clientAuthentication, scope, answerMs, groupsClaim } = settings;
  const redirectUri = () => new URL(`/console/oidc/${name}/callback`, publicUrl());
  let found: { configuration: client.Configuration; readAtMs: number } | undefined;
  let reading: Promise<client.Configuration> | undefined;

  function discover(): Promise<client.Configuration> {
    const authentication =
      secret === undefined
        ? client.None()
        : clientAuthentication === "post"
          ? client.ClientSecretPost(secret)
          : client.ClientSecretBasic(secret);
    return client.discovery(issuer, clientId, undefined, authentication, {
      timeout: answerMs / 1000,
      [client.customFetch]: (url, options) => fetchSmall(outbound, url, options),
      execute: [
        client.enableNonRepudiationChecks,
        // Configuration permits it at localhost only.
        ...(issuer.protocol === "http:" ? [client.allowInsecureRequests] : []),
      ],
    });
  }

  /** The metadata of the provider, read again once an hour. */
  async function configuration(): Promise<client.Configuration> {
    if (found && found.readAtMs + hourMs > Date.now()) return found.configuration;
    const known = found?.configuration;
    reading ??= discover()
      .catch((error: unknown) => {
        if (!known) throw error;
        log.warn(
          { code: "oidc_metadata_unread", oidc: name, ...describe(error) },
          "the metadata of the provider were not read",
        );
        return known;
      })
      .then((configuration) => {
        found = { configuration, readAtMs: Date.now() };
        return configuration;
      })
      .finally(() => {
        reading = undefined;
      });
    return reading;
  }

  const fail = (error: unknown): never => {
    const isAway = isUnreachable(error);
    log.warn(
      { code: "oidc_sign_in_failed", oidc: name, ...describe(error) },
      "a sign-in at the provider failed",
    );
    if (isAway)
      throw new ApiError("gateway_unavailable", {
        message: `${settings.title} does not answer. Try again shortly, or sign in another way.`,
        retryAfterMs: 5_000,
        cause: error,
      });
    throw new ApiError("sign_in_failed", {
      message: `The sign-in at ${settings.title} did not succeed. Try again.`,
      cause: error,
    });
  };

  return {
    name,
    settings,
    async begin({ state, nonce, verifier }, again) {
      // Whatever is wrong here, the person cannot mend it.
      const metadata = await configuration().catch((error: unknown) =>
        fail(isUnreachable(error) ? error : new Unusable(error)),
      );
      return client.buildAuthorizationUrl(metadata, {
        redirect_uri: redirectUri().href,
        scope,
        state,
        nonce,
        code_challenge: await client.calculatePKCECodeChallenge(verifier),
        code_challenge_method: "S256",
        ...(again && { prompt: "login", max_age: "0" }),
      });
    },
    async finish({ state, nonce, verifier }, query) {
      try {
        const metadata = await configuration();
        const address = redirectUri();
        address.search = query;
        const tokens = await client.authorizationCodeGrant(metadata, address, {
          expectedState: state,
          expectedNonce: nonce,
          pkceCodeVerifier: verifier,
          idTokenExpected: true,
        });
        const claims = tokens.claims();
        if (!claims) throw new Error("the answer has no ID token");
        const isWhole = claims.email !== undefined && claimAt(claims, groupsClaim) !== undefined;
        const hasMore = metadata.serverMetadata().userinfo_endpoint !== undefined;
        const more =
          isWhole || !hasMore
            ? {}
            : await client.fetchUserInfo(metadata, tokens.access_token, claims.sub);
        const groups = claimAt(claims, groupsClaim) ?? claimAt(more, groupsClaim);
        return readClaims({ ...more, ...claims }, claims, groups);
      } catch (error) {
        return fail(error);
      }
    },
  };
}

/** The provider answers, but not as a provider of OIDC with this issuer. */
class Unusable extends Error {
  constructor(cause: unknown) {
    super("the metadata of the provider cannot be used", { cause });
  }
}

function readClaims(
  said: Readonly<Record<string, unknown>>,
  { iss, sub, auth_time }: client.IDToken,
  groups: unknown,
): Claims {
  const { email, email_verified, name } = said;
  // Some providers write booleans as texts.
  const isVerified = email_verified === true || email_verified === "true";
  return {
    // As configured issuers are compared.
    issuer: URL.parse(iss)?.href ?? iss,
    subject: sub,
    email: isVerified && typeof email === "string" ? readMailAddress(email) : undefined,
    name: typeof name === "string" ? toName(name) : "",
    groups:
      groups === undefined
        ? undefined
        : (Array.isArray(groups) ? groups : [groups])
            .filter((one) => typeof one === "string")
            .slice(0, groupsMax),
    authenticatedAt: auth_time === undefined ? undefined : new Date(auth_time * 1000),
  };
}

/**
 * The claim of this name, or at this path, as `realm_access.roles`. A name may have dots itself:
 * `https://acme.com/groups`. Undefined: there is none.
 */
function claimAt(claims: object, path: string): unknown {
  if (Object.hasOwn(claims, path)) return Reflect.get(claims, path);
  for (let dot = path.indexOf("."); dot > 0; dot = path.indexOf(".", dot + 1)) {
    const name = path.slice(0, dot);
    const inner: unknown = Object.hasOwn(claims, name) ? Reflect.get(claims, name) : undefined;
    if (typeof inner !== "object" || inner === null) continue;
    const found = claimAt(inner, path.slice(dot + 1));
    if (found !== undefined) return found;
  }
  return undefined;
}

/** No answer of a provider is large; one that is must not fill the memory. */
async function fetchSmall(
  outbound: Outbound,
  url: string,
  options: client.CustomFetchOptions,
): Promise<Response> {
  const { method, headers: sent, redirect, signal, body: content } = options;
  const response = await outbound.fetch(url, {
    method,
    headers: sent,
    redirect,
    ...(signal && { signal }),
    ...(content !== null && content !== undefined && { body: content }),
  });
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > bodyBytesMax) throw new TypeError("the answer of the provider is too large");
    chunks.push(chunk);
  }
  const { status, statusText, headers } = response;
  const body = response.body === null ? null : Buffer.concat(chunks);
  return new Response(body, { status, statusText, headers });
}

/** True if the provider does not answer, or answers that it cannot. */
function isUnreachable(error: unknown): boolean {
  if (error instanceof Unusable) return true;
  const { code, cause } = Object(error);
  if (code === "OAUTH_TIMEOUT" || code === "OAUTH_ABORT") return true;
  // The error of `fetch` for a connection that fails.
  if (error instanceof TypeError) return true;
  const status: unknown = Object(error).status ?? Object(cause).status;
  return typeof status === "number" && (status >= 500 || status === 429);
}

/** What the log may know: no token, code or claim of a person. */
function describe(error: unknown): Record<string, string> {
  const facts: Record<string, string> = {};
  for (const [name, value] of Object.entries({
    problem: Object(error).message,
    code: Object(error).code,
    error: Object(error).error,
    claim: Object(Object(Object(error).cause).cause).claim,
    reason: Object(Object(error).cause).message,
  }))
    if (typeof value === "string") facts[name] = value.slice(0, 200);
  return facts;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** people cannot sign in at that company; look at its address and certificate */
    oidc_metadata_unread: true;
    /** one sign-in failed; if all fail, compare client id, secret and redirect address */
    oidc_sign_in_failed: true;
  }
}
