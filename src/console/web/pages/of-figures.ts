// The pages about models and requests, which are loaded at once.

export { Connect } from "./connect.tsx";
export { Models } from "./models.tsx";
export { ReceiptPage } from "./receipt.tsx";
export { Requests } from "./requests.tsx";
export { Usage } from "./usage.tsx";
