// Webhooks of payment processors: the raw body goes to the payments service, which holds the
// secrets. No cookie and no CORS header: only programs call this.

import type { FastifyReply, FastifyRequest } from "fastify";
import { ApiError, shuttingDown, toApiError } from "../base/errors.ts";
import { closed, described, text } from "../base/json-schema.ts";
import type { Core } from "../contract/contract.ts";
import type { FailedCredentials } from "./authenticate.ts";
import type { ReadRaw } from "./body.ts";
import type { AddressLoad } from "./connections.ts";
import { pathParam, sendJson } from "./context.ts";
import { json, type Operation } from "./operation.ts";

/** Processors send a few kilobytes. */
const webhookBytesMax = 64 * 1024;

// They are for this gateway, or say what no signature covers.
const keptHeaders = new Set(["authorization", "cookie", "proxy-authorization"]);

export const webhookOperation: Operation = {
  id: "receivePaymentWebhook",
  summary: "Takes what a payment processor reports",
  description: "For processors alone, which sign what they send, each in its own way.",
  path: { processor: described("The name of the processor.", text) },
  body: described("Up to 64 KiB, as the processor writes it.", {}),
  bodyType: "*/*",
  answer: { [json]: closed({}) },
  errors: ["invalid_signature", "not_found", "request_too_large", "auth_rate_limited"],
};

/**
 * Answers 200 for everything that is signed, 401 for a bad signature, which counts like a wrong
 * credential of its address, 429 for one after too many of those, 404 for a processor without
 * webhooks, and 503 while nothing can be noted.
 */
export function postWebhook(parts: {
  readonly core: Core;
  readonly readRaw: ReadRaw;
  readonly addressLoad: AddressLoad;
  readonly failedCredentials: FailedCredentials;
  readonly isDraining: () => boolean;
}) {
  const { core, readRaw, addressLoad, failedCredentials, isDraining } = parts;
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    if (isDraining()) throw shuttingDown();
    addressLoad.checkRequest(request);
    const processor = pathParam(request, "processor");
    if (!/^[a-z][a-z0-9-]{0,31}$/.test(processor))
      throw new ApiError("not_found", { message: "No such path." });
    const body = await readRaw(request, webhookBytesMax);
    try {
      await core.payments.receiveWebhook({ processor, headers: headersOf(request), body });
    } catch (error) {
      if (toApiError(error).reason === "invalid_signature") {
        // Not earlier: who signs does not guess, whatever others at its address do.
        failedCredentials.check(request.ip);
        failedCredentials.record(request.ip);
      }
      throw error;
    }
    return sendJson(reply.code(200), {});
  };
}

function headersOf({ headers }: FastifyRequest): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      typeof value === "string" && !keptHeaders.has(name) ? [[name, value]] : [],
    ),
  );
}
