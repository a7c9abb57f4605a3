// The native messages format: pure functions between its JSON and event streams and the canonical
// requests and events. Listeners decode requests and encode answers; providers that use the format
// encode requests and decode answers.

export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder } from "./decode-events.ts";
export { decodeCountRequest, decodeRequest } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder } from "./encode-events.ts";
export { encodeCountRequest, encodeRequest, fitRequest } from "./encode-request.ts";
export { nativeSchemas } from "./schema.ts";
export { decodeCount, encodeCount } from "./usage.ts";
