// The pages about credits, which are loaded at once.

export { Buy } from "./buy.tsx";
export { Credits } from "./credits.tsx";
export { DocumentPage } from "./document.tsx";
export { OrderPage } from "./order.tsx";
