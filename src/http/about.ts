// GET /: a page that tells a visitor what this address is. GET /protos/descriptor.binpb: the
// descriptors of the services, for tools that call Connect.

import type { FastifyReply, FastifyRequest } from "fastify";
import { encodeDescriptorSet } from "../contract/descriptors.ts";
import { sendJson } from "./reply.ts";

const service = "model-gateway";
const sentence =
  "This address answers programs: it serves language models to those who have an API key.";

/** A page for browsers, the same as JSON for all others. `paths` are those that are served. */
export function getAbout(paths: () => readonly string[]) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    reply.header("vary", "accept");
    if (!request.headers.accept?.includes("text/html"))
      return sendJson(reply, { service, about: sentence, paths: [...paths()] });
    reply.headers({
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    });
    return reply.send(Buffer.from(renderPage(paths())));
  };
}

function renderPage(paths: readonly string[]): string {
  const items = paths.map((path) => `<li><code>${path.replace("<", "&lt;")}</code></li>`);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Model Gateway</title>
<style>body { font: 1rem/1.5 system-ui; max-width: 45rem; margin: 3rem auto; padding: 0 1rem }</style>
<h1>Model Gateway</h1>
<p>${sentence} There is nothing to see in a browser.</p>
<p>Tools take it as their base address, native ones as it is, others with <code>/v1</code> at its
end. <a href="/health">/health</a> shows whether it can take requests.</p>
<p>It serves:</p>
<ul>
${items.join("\n")}
</ul>
</html>
`;
}

/** The descriptors as a `google.protobuf.FileDescriptorSet`. */
export function getDescriptorSet() {
  const bytes = Buffer.from(encodeDescriptorSet());
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.header("content-type", "application/x-protobuf").send(bytes);
}
