// The pages about keys, members, credits and settings, which are loaded at once.

export { AlertsPage } from "./alerts.tsx";
export { Buy } from "./buy.tsx";
export { Credits } from "./credits.tsx";
export { DocumentPage } from "./document.tsx";
export { KeyPage } from "./key.tsx";
export { Keys } from "./keys.tsx";
export { MemberPage } from "./member.tsx";
export { Members } from "./members.tsx";
export { OrderPage } from "./order.tsx";
export { Settings } from "./settings.tsx";
