// The pages of settings and alerts, which are loaded at once.

export { AlertsPage } from "./alerts.tsx";
export { Settings } from "./settings.tsx";
