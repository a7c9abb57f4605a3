// The web console: its routes on the HTTP listener. It holds no rule: its pages call the services
// as everybody does.

import { Code } from "@connectrpc/connect";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type ErrorReason, errorCatalog, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isLocalhost } from "../config/environment.ts";
import { type Asset, changes, loadBundle } from "./bundle.ts";
import { type AccountExportParts, describedAccountExport, getAccountExport } from "./export.ts";
import { type ExportParts, registerExports } from "./exports.ts";
import { createOidcRoutes, type OidcParts } from "./oidc.ts";
import { createSessionCookie } from "./session-cookie.ts";

export { bundleInProgress } from "./bundle.ts";
export { createSessionCookie, settingsFor } from "./session-cookie.ts";

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

export type ConsoleParts = OidcParts &
  ExportParts &
  AccountExportParts & {
    /** The address under which people reach the console. */
    readonly publicUrl: () => URL;
    readonly log: Log;
  };

/** Adds the routes of the console. */
export function registerConsole(app: FastifyInstance, parts: ConsoleParts): void {
  const { publicUrl } = parts;
  registerExports(app, parts, (reply) => withHeaders(reply, publicUrl()));
  // Lists of the paths are for programs.
  const config = { isVariant: true };
  registerPage(app, parts);
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
  const path = "/console/export/account";
  const ofAccount = { isVariant: true, described: describedAccountExport(path) };
  app.get(path, { config: ofAccount, exposeHeadRoute: false }, async (request, reply) => {
    withHeaders(reply, publicUrl());
    try {
      const download = await getAccountExport(parts, request, reply);
      return reply.headers(download.headers).send(download.body);
    } catch (error) {
      const { reason, message } = toApiError(error);
      return reply.code(statusOf(reason)).send({ error: { code: reason, message } });
    }
  });
}

/** The path of the style sheet of all pages. Undefined: they could not be bundled. */
export async function stylesheetPath(): Promise<string | undefined> {
  return (await findAssets(/\/theme-\w+\.css$/))[0];
}

/** What the pages of the documents load. Empty: it could not be bundled. */
export async function docsAssets() {
  return {
    stylesheets: [
      ...(await findAssets(/\/theme-\w+\.css$/)),
      ...(await findAssets(/\/docs-\w+\.css$/)),
    ],
    // The first one sets the theme that the person chose in the console, before anything is drawn.
    scripts: await findAssets(/\/(first|docs-copy)-\w+\.js$/),
  };
}

async function findAssets(name: RegExp): Promise<string[]> {
  const bundle = await loadBundle().catch(() => undefined);
  return [...(bundle?.assets.keys() ?? [])].filter((path) => name.test(path));
}

/** The pages before the sign-in, which have no frame. */
const isDoor = /^\/console\/(welcome|sign-in|sign-up)\b/;

/** The parts that the page itself needs. */
export type PageParts = Pick<ConsoleParts, "publicUrl" | "log">;

/** Adds the page, which is the same at every address below `/console/`, and what it loads. */
export function registerPage(app: FastifyInstance, { publicUrl, log }: PageParts): void {
  const config = { isVariant: true };
  const { readSession, goTo } = createSessionCookie(publicUrl);
  const mayBeSignedIn = ({ headers }: FastifyRequest) =>
    readSession(headers.cookie ?? "") !== undefined;
  app.get("/console", { config }, async (request, reply) => {
    const elsewhere = nameOfHost(request, publicUrl()) ?? "";
    return withHeaders(reply, publicUrl()).redirect(`${elsewhere}/console/`, 302);
  });
  // A page of another cell, where the person has a session or signs in.
  app.get("/console/cell/:name", { config, exposeHeadRoute: false }, async (request, reply) => {
    const { name, next } = cellOf(request);
    withHeaders(reply, publicUrl());
    const cookie = goTo(name, request.headers.cookie ?? "");
    if (cookie !== undefined) return reply.header("set-cookie", cookie).redirect(next, 302);
    const query = new URLSearchParams({ cell: name, next });
    return reply.redirect(`/console/sign-in?${query}`, 302);
  });
  app.get("/console/*", { config }, async (request, reply) => {
    const elsewhere = nameOfHost(request, publicUrl());
    if (elsewhere !== undefined) return reply.redirect(`${elsewhere}${request.url}`, 302);
    withHeaders(reply, publicUrl());
    try {
      const { html, framedHtml } = await loadBundle();
      const isFramed = mayBeSignedIn(request) && !isDoor.test(request.url);
      return reply.type("text/html; charset=utf-8").send(isFramed ? framedHtml : html);
    } catch (error) {
      log.error(
        { code: "console_not_bundled", err: error },
        "the console could not be bundled; everything else is served",
      );
      return reply
        .code(503)
        .type("text/plain; charset=utf-8")
        .send("The console could not be prepared. The log of the gateway says why.\n");
    }
  });
  app.get("/console/assets/*", { config }, async (request, reply) => {
    withHeaders(reply, publicUrl());
    const path = request.url.split("?")[0] ?? "";
    const asset = (await loadBundle().catch(() => undefined))?.assets.get(path);
    if (!asset) return reply.code(404).type("text/plain; charset=utf-8").send("No such file.\n");
    const encoding = acceptedEncoding(request, asset);
    if (encoding) reply.header("content-encoding", encoding);
    return reply
      .headers({ "cache-control": "public, max-age=31536000, immutable", vary: "accept-encoding" })
      .type(asset.type)
      .send(encoding ? asset.compressed?.[encoding] : asset.content);
  });
  if (changes) registerReload(app, changes);
}

/** The cell of a request, and the page of the console to show. */
function cellOf({ params, query }: FastifyRequest): { name: string; next: string } {
  const next = String(Object(query).next ?? "");
  return {
    name: String(Object(params).name),
    next: /^\/console\/[\w/?&=%.~-]*$/.test(next) ? next : "/console/",
  };
}

/** Notifies pages that their sources changed, for people who work on them. */
function registerReload(app: FastifyInstance, target: EventTarget): void {
  const config = { isVariant: true };
  app.get("/console/dev.js", { config }, async (_request, reply) =>
    reply
      .type("text/javascript; charset=utf-8")
      .send('new EventSource("/console/dev-events").onmessage = () => location.reload();\n'),
  );
  app.get("/console/dev-events", { config }, async (_request, reply) => {
    reply.hijack();
    reply.raw.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    reply.raw.flushHeaders();
    const notify = () => reply.raw.write("data: changed\n\n");
    target.addEventListener("change", notify);
    reply.raw.once("close", () => target.removeEventListener("change", notify));
  });
}

/** The best encoding that the browser takes, once it is ready. */
function acceptedEncoding(
  { headers }: FastifyRequest,
  { compressed }: Asset,
): "br" | "gzip" | undefined {
  const accepted = String(headers["accept-encoding"] ?? "").split(/\s*[,;]\s*/);
  const encodings = ["br", "gzip"] as const;
  return compressed && encodings.find((encoding) => accepted.includes(encoding));
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

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * people cannot open the console, and the next one who does makes the gateway try again; look
     * at the error, and reinstall the packages
     */
    console_not_bundled: true;
  }
}
