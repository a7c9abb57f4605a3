// The Responses format: pure functions between its JSON and event streams and the canonical
// requests and events. Listeners decode requests and encode answers.

export { decodeRequest, hasSealedContent, readWishes, type Wishes } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder } from "./encode-events.ts";
