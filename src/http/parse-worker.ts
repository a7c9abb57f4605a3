// The worker thread that parses large request bodies: see `parse-body.ts`.

import assert from "node:assert/strict";
import { parentPort } from "node:worker_threads";
import { toApiError } from "../base/errors.ts";
import { parseRequest } from "../formats/json.ts";
import type { Parsed } from "./parse-body.ts";

assert(parentPort, "runs as a worker thread");
const port = parentPort;
port.on("message", (bytes: Uint8Array) => port.postMessage(parse(bytes)));

function parse(bytes: Uint8Array): Parsed {
  try {
    return parseRequest(bytes);
  } catch (error) {
    const { reason, facts } = toApiError(error);
    const { message, limit } = facts;
    return {
      reason,
      facts: { ...(message !== undefined && { message }), ...(limit && { limit }) },
    };
  }
}
