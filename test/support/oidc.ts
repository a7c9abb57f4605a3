// A provider of OIDC on loopback: `oidc-provider`, with people who need no form to sign in. Tests
// can change its tokens, make it hang, and walk a browser through it.

import { createPrivateKey, generateKeyPairSync, sign as signBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import Provider, { type JWK } from "oidc-provider";
import type { OidcSettings } from "../../src/config/catalog.ts";

export type IdpClaims = {
  readonly email?: string;
  readonly email_verified?: boolean;
  readonly name?: string;
  readonly groups?: readonly string[];
};
type Payload = Record<string, unknown>;

const clientSecret = "the secret of the client, which is long enough";
/** The environment of a gateway that knows the provider. */
export const idpEnv = { IDP_SECRET: clientSecret };
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const { privateKey: foreignKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });

export type TestIdp = Awaited<ReturnType<typeof startIdp>>;

/** `redirectUris`: of the gateway. `claimsInToken`: not only at the endpoint `userinfo`. */
export async function startIdp(options: {
  redirectUris: readonly string[];
  claimsInToken?: boolean;
}) {
  const people = new Map<string, IdpClaims>();
  const state = {
    /** Who signs in next. */
    person: "ada",
    /** Changes the claims of ID tokens. */
    change: undefined as ((claims: Payload) => Payload) | undefined,
    /** Makes another ID token. */
    encode: undefined as ((claims: Payload) => string) | undefined,
    /** Requests whose path contains it are not answered; an empty text means all. */
    hangs: undefined as string | undefined,
    /** Requests whose path contains it are answered with 503. */
    fails: undefined as string | undefined,
    /** Requests whose path contains it are answered by a beginning, and no more. */
    stalls: undefined as string | undefined,
    /** Requests whose path contains it are answered without an end. */
    floods: undefined as string | undefined,
    requests: 0,
  };
  const server = createServer((request, response) => void handle(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  // Another site than that of the gateway, so that a browser keeps its cookies as it does outside.
  const issuer = `http://127.0.0.1:${port}`;

  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "gateway",
        client_secret: clientSecret,
        redirect_uris: [...options.redirectUris],
        grant_types: ["authorization_code"],
      },
    ],
    jwks: { keys: [jwkOf(privateKey.export({ format: "jwk" }))] },
    cookies: { keys: ["a key of a test"] },
    scopes: ["openid", "email", "profile", "groups"],
    claims: {
      email: ["email", "email_verified"],
      profile: ["name"],
      groups: ["groups", "realm_access", "https://acme.com/groups"],
    },
    // Named, because the defaults print a notice each.
    ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600 },
    conformIdTokenClaims: options.claimsInToken !== true,
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    findAccount: (_, accountId) => ({
      accountId,
      claims: () => ({ sub: accountId, ...people.get(accountId) }),
    }),
  });
  provider.use(async (context, next) => {
    await next();
    const { body } = context;
    if (context.path !== "/token" || typeof Object(body).id_token !== "string") return;
    const claims = decodePayload(Object(body).id_token);
    const changed = state.change?.(claims) ?? claims;
    if (state.change || state.encode)
      context.body = { ...Object(body), id_token: (state.encode ?? encodeToken)(changed) };
  });
  const callback = provider.callback();

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    state.requests++;
    const path = request.url ?? "";
    if (state.hangs !== undefined && path.includes(state.hangs)) return;
    if (state.fails !== undefined && path.includes(state.fails))
      return void response.writeHead(503).end();
    const isEndless = state.floods !== undefined && path.includes(state.floods);
    if (isEndless || (state.stalls !== undefined && path.includes(state.stalls))) {
      response.writeHead(200, { "content-type": "application/json" });
      response.write("{");
      while (isEndless && !response.destroyed)
        if (!response.write(" ".repeat(65_536)))
          await once(response, "drain").catch(() => undefined);
      return;
    }
    if (!path.startsWith("/interaction/")) return void callback(request, response);
    const { prompt, params, grantId } = await provider.interactionDetails(request, response);
    const accountId = state.person;
    if (prompt.name === "login")
      return provider.interactionFinished(request, response, { login: { accountId } });
    const grant =
      (grantId === undefined ? undefined : await provider.Grant.find(grantId)) ??
      new provider.Grant({ accountId, clientId: String(params.client_id) });
    grant.addOIDCScope(String(params.scope));
    const consent = { grantId: await grant.save() };
    await provider.interactionFinished(
      request,
      response,
      { consent },
      { mergeWithLastSubmission: true },
    );
  }

  return Object.assign(state, {
    issuer,
    people,
    /** Undoes what a test changed. */
    reset() {
      Object.assign(state, { change: undefined, encode: undefined, hangs: undefined });
      Object.assign(state, { fails: undefined, stalls: undefined, floods: undefined });
      state.person = "ada";
    },
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  });
}

function jwkOf(jwk: object): JWK {
  return { ...Object(jwk), kid: "key-of-the-test", alg: "RS256", use: "sig" };
}

function decodePayload(token: string): Payload {
  return JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
}

/** An ID token of the provider with these claims. */
export function encodeToken(claims: Payload, header: Payload = {}, key = privateKey): string {
  const parts = [{ alg: "RS256", kid: "key-of-the-test", ...header }, claims];
  const input = parts
    .map((one) => Buffer.from(JSON.stringify(one)).toString("base64url"))
    .join(".");
  return `${input}.${signBytes("sha256", Buffer.from(input), createPrivateKey(key.export({ format: "pem", type: "pkcs8" }))).toString("base64url")}`;
}

/** An ID token without a signature. */
export function encodeUnsigned(claims: Payload): string {
  return `${encodeToken(claims, { alg: "none" }).split(".").slice(0, 2).join(".")}.`;
}

/** An ID token that somebody else has signed. */
export function encodeForeign(claims: Payload): string {
  return encodeToken(claims, {}, foreignKey);
}

/** The configuration of the provider. */
export function idpSettings(idp: TestIdp, more: Partial<OidcSettings> = {}): OidcSettings {
  return {
    title: "ACME",
    issuer: new URL(idp.issuer),
    clientId: "gateway",
    clientSecretEnv: "IDP_SECRET",
    clientAuthentication: "basic",
    scope: "openid email profile groups",
    answerMs: 5_000,
    signUp: { mode: "closed", domains: [] },
    groupsClaim: "groups",
    groups: [],
    ...more,
  };
}

/** A browser without pages: it follows redirects and keeps cookies, of each origin by itself. */
export class RedirectBrowser {
  readonly #cookies = new Map<string, Map<string, string>>();
  readonly #addressOf: (origin: string) => string;

  /** `addressOf`: where an origin is reached. */
  constructor(addressOf: (origin: string) => string = (origin) => origin) {
    this.#addressOf = addressOf;
  }

  /** The cookies of an origin, as `name=value`. */
  cookies(origin: string): string[] {
    return [...(this.#cookies.get(origin) ?? [])].map(([name, value]) => `${name}=${value}`);
  }

  async fetch(address: string, init: RequestInit = {}): Promise<Response> {
    const { origin, pathname, search } = new URL(address);
    const headers = new Headers(init.headers);
    headers.set("cookie", this.cookies(origin).join("; "));
    const response = await fetch(`${this.#addressOf(origin)}${pathname}${search}`, {
      ...init,
      headers,
      redirect: "manual",
    });
    const jar = this.#cookies.get(origin) ?? new Map<string, string>();
    this.#cookies.set(origin, jar);
    for (const cookie of response.headers.getSetCookie()) {
      const [pair = ""] = cookie.split(";");
      const name = pair.slice(0, pair.indexOf("="));
      const isGone = /max-age=0|expires=Thu, 01 Jan 1970/i.test(cookie);
      if (isGone) jar.delete(name);
      else jar.set(name, pair.slice(name.length + 1));
    }
    return response;
  }

  /** Follows redirects up to the first address that `isEnd`, and returns it without opening it. */
  async follow(address: string, isEnd: (address: URL) => boolean): Promise<URL> {
    let next = new URL(address);
    for (let hop = 0; hop < 20; hop++) {
      if (isEnd(next)) return next;
      const response = await this.fetch(next.href);
      const location = response.headers.get("location");
      if (location === null)
        throw new Error(`${next.pathname} answered ${response.status}: ${await response.text()}`);
      next = new URL(location, next);
    }
    throw new Error("too many redirects");
  }
}
