// The pages about models and the tools that ask them, which are loaded at once.

export { Connect } from "./connect.tsx";
export { Models } from "./models.tsx";
export { Try } from "./try.tsx";
