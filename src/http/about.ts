// GET /: the console for a browser, for a program what this is. GET /protos/descriptor.binpb: the
// descriptors of the services, for tools that call Connect.

import type { FastifyReply, FastifyRequest } from "fastify";
import { closed, list, text } from "../base/json-schema.ts";
import { encodeDescriptorSet } from "../contract/descriptors.ts";
import { sendJson } from "./context.ts";
import { json, type Operation } from "./operation.ts";

const service = "model-gateway";
const sentence =
  "This address answers programs: it serves language models to those who have an API key.";

export const aboutOperation: Operation = {
  id: "getAbout",
  summary: "Says what this is and which paths are served; leads a browser to the console",
  answer: { [json]: closed({ service: text, about: text, paths: list(text) }) },
};

export const descriptorsOperation: Operation = {
  id: "getDescriptors",
  summary: "Returns the descriptors of the services, a google.protobuf.FileDescriptorSet",
  answer: {
    "application/x-protobuf": { type: "string", contentMediaType: "application/x-protobuf" },
  },
};

/**
 * For browsers the console, or the open page of models if it is on and nobody seems to be signed
 * in; JSON for all others. `paths` are those that are served.
 */
export function getAbout(
  paths: () => readonly string[],
  openPage?: { isOn(): boolean; mayBeSignedIn(cookies: string): boolean },
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    reply.header("vary", "accept, cookie");
    const isForPeople = request.headers.accept?.includes("text/html");
    if (isForPeople && openPage?.isOn() && !openPage.mayBeSignedIn(request.headers.cookie ?? ""))
      return reply.redirect("/models", 302);
    if (isForPeople) return reply.redirect("/console/", 302);
    return sendJson(reply, { service, about: sentence, paths: [...paths()] });
  };
}

/** The descriptors as a `google.protobuf.FileDescriptorSet`. */
export function getDescriptorSet() {
  const bytes = Buffer.from(encodeDescriptorSet());
  return async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    reply.header("content-type", "application/x-protobuf").send(bytes);
}
