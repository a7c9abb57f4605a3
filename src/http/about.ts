// GET /: the console for a browser, for a program what this is. GET /protos/descriptor.binpb: the
// descriptors of the services, for tools that call Connect.

import type { FastifyReply, FastifyRequest } from "fastify";
import { encodeDescriptorSet } from "../contract/descriptors.ts";
import { sendJson } from "./reply.ts";

const service = "model-gateway";
const sentence =
  "This address answers programs: it serves language models to those who have an API key.";

/** The console for browsers, JSON for all others. `paths` are those that are served. */
export function getAbout(paths: () => readonly string[]) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    reply.header("vary", "accept");
    if (request.headers.accept?.includes("text/html")) return reply.redirect("/console/", 302);
    return sendJson(reply, { service, about: sentence, paths: [...paths()] });
  };
}

/** The descriptors as a `google.protobuf.FileDescriptorSet`. */
export function getDescriptorSet() {
  const bytes = Buffer.from(encodeDescriptorSet());
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.header("content-type", "application/x-protobuf").send(bytes);
}
