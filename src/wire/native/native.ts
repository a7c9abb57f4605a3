// The native messages format: pure functions between its JSON and event streams and the messages of the hub. Doors decode requests
// and encode answers, provider adapters do the opposite, with the same code.

export { decodeCount, encodeCount } from "./count.ts";
export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder, type EventDecoder } from "./decode-events.ts";
export { decodeCountRequest, decodeRequest, type RequestHeaders } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { type AnswerContext, createEventEncoder, type EventEncoder } from "./encode-events.ts";
export { encodeCountRequest, encodeRequest, type RequestTarget } from "./encode-request.ts";
