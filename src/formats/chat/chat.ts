// The chat completions format. One codec for both sides of the gateway: doors decode requests and
// encode answers with it, adapters of providers that speak it encode requests and decode answers.

export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder } from "./decode-events.ts";
export { decodeRequest, wantsUsage } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder } from "./encode-events.ts";
export { encodeRequest } from "./encode-request.ts";
