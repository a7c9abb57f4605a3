// The pages about requests, which are loaded at once.

export { ReceiptPage } from "./receipt.tsx";
export { Requests } from "./requests.tsx";
export { Usage } from "./usage.tsx";
