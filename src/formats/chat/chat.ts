// The chat completions format: pure functions between its JSON and event streams and the canonical
// requests and events. Listeners decode requests and encode answers; providers that use the format
// encode requests and decode answers.

export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder } from "./decode-events.ts";
export { decodeRequest, hasFunctions, wantsUsage } from "./decode-request.ts";
export { customTools } from "./decode-tools.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder } from "./encode-events.ts";
export { encodeRequest, shortNames } from "./encode-request.ts";
export { chatSchemas } from "./schema.ts";
