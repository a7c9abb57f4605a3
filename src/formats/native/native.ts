// The native messages format: pure functions between its JSON and event streams and the messages of
// the hub. Doors decode requests and encode answers, provider adapters do the opposite, with the
// same code.

export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder } from "./decode-events.ts";
export { decodeCountRequest, decodeRequest } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder } from "./encode-events.ts";
export { encodeCountRequest, encodeRequest } from "./encode-request.ts";
export { decodeCount, encodeCount } from "./usage.ts";
