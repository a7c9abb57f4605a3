// Light or dark: as the system, until the person chooses.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

/** As in `first-theme.ts`. */
const key = "gateway-theme";

export const theme = signal<Theme>("system");

export function startTheme(): void {
  // `first-theme.ts` has set it.
  const kept = document.documentElement.dataset.theme;
  if (kept === "light" || kept === "dark") theme.value = kept;
}

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") {
    localStorage.removeItem(key);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(key, next);
    document.documentElement.dataset.theme = next;
  }
}
