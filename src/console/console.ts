// The web console: its routes on the HTTP listener. It holds no rule: its pages call the services
// as everybody does. So far it has the page on which people sign in, and files to download.

import { readFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type ErrorReason, errorCatalog, toApiError } from "../base/errors.ts";
import { isLocalhost } from "../config/environment.ts";
import { type AccountExportParts, getAccountExport } from "./export.ts";
import { type ExportParts, registerExports } from "./exports.ts";
import { createOidcRoutes, type OidcParts } from "./oidc.ts";

export { createSessionCookie } from "./session-cookie.ts";

const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "font-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");

const files = [
  { path: "/console/welcome", file: "welcome.html", type: "text/html; charset=utf-8" },
  { path: "/console/welcome.js", file: "welcome.js", type: "text/javascript; charset=utf-8" },
  { path: "/console/welcome.css", file: "welcome.css", type: "text/css; charset=utf-8" },
] as const;

/** Adds the routes of the console. `publicUrl`: the address under which people reach it. */
export function registerConsole(
  app: FastifyInstance,
  parts: OidcParts & ExportParts & AccountExportParts & { publicUrl: () => URL },
): void {
  const { publicUrl } = parts;
  registerExports(app, parts, (reply) => withHeaders(reply, publicUrl()));
  // Lists of the paths are for programs.
  const config = { isVariant: true };
  for (const { path, file, type } of files) {
    const content = readFileSync(new URL(`web/${file}`, import.meta.url));
    app.get(path, { config }, async (request, reply) => {
      const elsewhere = nameOfHost(request, publicUrl());
      if (elsewhere !== undefined) return reply.redirect(`${elsewhere}${path}`, 302);
      return withHeaders(reply, publicUrl()).header("content-type", type).send(content);
    });
  }
  const oidc = createOidcRoutes(parts);
  // Without HEAD: a second request would use up what the first one brought.
  for (const name of ["start", "callback"] as const)
    app.get(
      `/console/oidc/:provider/${name}`,
      { config, exposeHeadRoute: false },
      async (request, reply) => {
        const elsewhere = nameOfHost(request, publicUrl());
        // Otherwise the cookie would be kept for another host than the provider leads back to.
        if (elsewhere !== undefined) return reply.redirect(`${elsewhere}${request.url}`, 302);
        return oidc[name](request, withHeaders(reply, publicUrl()));
      },
    );
  app.get("/console/export/account", { config, exposeHeadRoute: false }, async (request, reply) => {
    withHeaders(reply, publicUrl());
    try {
      const download = await getAccountExport(parts, request, reply);
      return reply.headers(download.headers).send(download.body);
    } catch (error) {
      const { reason, message } = toApiError(error);
      return reply.code(statusOf(reason)).send({ error: { code: reason, message } });
    }
  });
  for (const path of ["/console", "/console/"])
    app.get(path, { config }, async (request, reply) => {
      const elsewhere = nameOfHost(request, publicUrl()) ?? "";
      return withHeaders(reply, publicUrl()).redirect(`${elsewhere}/console/welcome`, 302);
    });
}

/** The HTTP status of an error of a download. Its code is the one of Connect. */
function statusOf(reason: ErrorReason): number {
  return statuses.get(errorCatalog[reason].rpc) ?? 500;
}

const statuses: ReadonlyMap<Code, number> = new Map([
  [Code.InvalidArgument, 400],
  [Code.Unauthenticated, 401],
  [Code.PermissionDenied, 403],
  [Code.NotFound, 404],
  [Code.ResourceExhausted, 429],
  [Code.Unavailable, 503],
]);

function withHeaders(reply: FastifyReply, publicUrl: URL): FastifyReply {
  if (publicUrl.protocol === "https:")
    reply.header("strict-transport-security", "max-age=31536000");
  return reply.headers({
    "cache-control": "no-store",
    "content-security-policy": contentSecurityPolicy,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
  });
}

/** The origin to go to from an IP address of this machine: browsers refuse passkeys at one. */
function nameOfHost({ headers }: FastifyRequest, publicUrl: URL): string | undefined {
  const isAddress = /^(127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(headers.host ?? "");
  return isAddress && isLocalhost(publicUrl) ? publicUrl.origin : undefined;
}
