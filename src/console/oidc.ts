// The way of a browser to a provider of OIDC and back. The people service decides everything; these
// routes redirect, and keep in cookies what the browser needs.
//
//   GET /console/oidc/<provider>/start      begins a sign-in; with ?purpose=confirm or ?purpose=add
//                                           what the person of the session wants
//   GET /console/oidc/<provider>/callback   where the provider sends the browser back
//
// Both end at the page of the console, with the outcome in `?oidc=`: `signed-in`, `confirmed`,
// `added`, or the reason of the error. No text comes in an address, where anybody could write it.

import type { FastifyReply, FastifyRequest } from "fastify";
import { OidcPurpose } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { ApiError, shuttingDown, toApiError } from "../base/errors.ts";
import { dropOperatorRole, nameClient } from "../contract/callers.ts";
import type { Core } from "../contract/contract.ts";
import type { ConsoleCookies } from "./session-cookie.ts";

export type OidcRoutes = {
  start(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply>;
  callback(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply>;
};

export type OidcParts = {
  readonly people: Pick<Core["people"], "beginOidc" | "finishOidc">;
  readonly cookies: ConsoleCookies;
  /** False: operators are here what they are in their accounts, and nothing else. */
  readonly adminMethods: boolean;
  /** Throws for a client that has too many requests in progress. */
  checkRequest(request: FastifyRequest): void;
  isDraining(): boolean;
};

const page = "/console/welcome";

export function createOidcRoutes(parts: OidcParts): OidcRoutes {
  const { people, cookies, adminMethods, checkRequest, isDraining } = parts;

  const callOf = (request: FastifyRequest, token: string | undefined) => {
    const headers = new Headers();
    if (!adminMethods) dropOperatorRole(headers);
    const agent = request.headers["user-agent"] ?? "";
    nameClient(headers, { address: request.ip, agent });
    if (token !== undefined) headers.set("authorization", `Session ${token}`);
    return { headers };
  };
  const run = async (
    request: FastifyRequest,
    reply: FastifyReply,
    work: () => Promise<string>,
  ): Promise<FastifyReply> => {
    try {
      if (isDraining()) throw shuttingDown();
      checkRequest(request);
      return reply.redirect(await work(), 302);
    } catch (error) {
      return reply.redirect(`${page}?oidc=${toApiError(error).reason}`, 302);
    }
  };

  return {
    start: (request, reply) =>
      run(request, reply, async () => {
        const { searchParams } = new URL(request.url, "http://localhost");
        const purpose = purposes.get(searchParams.get("purpose") ?? "");
        if (purpose === undefined) throw new ApiError("invalid_request");
        const isOwn = purpose !== OidcPurpose.SIGN_IN;
        // No other page makes a person confirm or add something.
        const site = request.headers["sec-fetch-site"] ?? "none";
        if (isOwn && site !== "same-origin" && site !== "none") throw new ApiError("not_permitted");
        const token = isOwn ? cookies.readSession(request.headers.cookie ?? "") : undefined;
        const { authorizationUrl, flow } = await people.beginOidc(
          { provider: providerOf(request), purpose },
          callOf(request, token),
        );
        if (flow) reply.header("set-cookie", cookies.beginFlow(flow));
        return authorizationUrl;
      }),
    callback: (request, reply) =>
      run(request, reply, async () => {
        // Whatever becomes of it, this flow is over.
        reply.header("set-cookie", cookies.endFlow());
        const flow = cookies.readFlow(request.headers.cookie ?? "");
        if (flow === undefined) throw new ApiError("sign_in_failed");
        const query = request.url.split("?").slice(1).join("?");
        const token = cookies.readSession(request.headers.cookie ?? "");
        const { grant, purpose } = await people.finishOidc(
          { provider: providerOf(request), flow, query },
          callOf(request, token),
        );
        if (grant) reply.header("set-cookie", cookies.begin(grant, request.headers.cookie ?? null));
        return `${page}?oidc=${outcomes.get(purpose) ?? "signed-in"}`;
      }),
  };
}

const purposes = new Map<string, OidcPurpose>([
  ["", OidcPurpose.SIGN_IN],
  ["confirm", OidcPurpose.CONFIRM],
  ["add", OidcPurpose.ADD],
]);

const outcomes = new Map<OidcPurpose, string>([
  [OidcPurpose.CONFIRM, "confirmed"],
  [OidcPurpose.ADD, "added"],
]);

function providerOf({ params }: FastifyRequest): string {
  return String(Object(params).provider);
}
