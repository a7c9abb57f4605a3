// The pages about keys and members, which are loaded at once.

export { KeyPage } from "./key.tsx";
export { Keys } from "./keys.tsx";
export { MemberPage } from "./member.tsx";
export { Members } from "./members.tsx";
