// The Responses format: pure functions between its JSON and event streams and the canonical
// requests and events. Listeners decode requests and encode answers; providers that use the format
// encode requests and decode answers.

export { fromChatPath, isOfChatPath } from "./chat-path.ts";
export { decodeAnswer } from "./decode-answer.ts";
export { createEventDecoder } from "./decode-events.ts";
export { hasOldContent } from "./decode-items.ts";
export { decodeRequest, readWishes, type Wishes } from "./decode-request.ts";
export { encodeAnswer } from "./encode-answer.ts";
export { createEventEncoder, encodeFailure } from "./encode-events.ts";
export { encodeRequest } from "./encode-request.ts";
export { responsesSchemas } from "./schema.ts";
