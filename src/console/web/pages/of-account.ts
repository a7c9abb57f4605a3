// The pages about credits and settings, which are loaded at once.

export { AlertsPage } from "./alerts.tsx";
export { Buy } from "./buy.tsx";
export { Credits } from "./credits.tsx";
export { DocumentPage } from "./document.tsx";
export { OrderPage } from "./order.tsx";
export { Settings } from "./settings.tsx";
