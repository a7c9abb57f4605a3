import type { JSX } from "preact";

const paths = {
  overview: "M2.5 8 8 3l5.5 5M4 7v6h8V7",
  keys: "M7.5 11a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0M7 9l6-6m-2 2 2 2",
  usage: "M3 13V8m4 5V3m4 10V6m3 7H2",
  requests: "M2.5 4h11m-11 4h11m-11 4h7",
  credits:
    "M3.5 4h9A1.5 1.5 0 0 1 14 5.5v6a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 2 11.5v-6A1.5 1.5 0 0 1 3.5 4M2 7.5h12",
  members:
    "M8.3 6a2.3 2.3 0 1 1-4.6 0 2.3 2.3 0 0 1 4.6 0M2 13c.5-2.3 2-3.4 4-3.4s3.5 1.1 4 3.4m.5-8.9a2.3 2.3 0 0 1 0 3.8M12 9.8c1.2.4 1.8 1.5 2 3.2",
  settings:
    "M10 8a2 2 0 1 1-4 0 2 2 0 0 1 4 0M8 2v2m0 8v2M2 8h2m8 0h2M3.8 3.8l1.4 1.4m5.6 5.6 1.4 1.4m0-8.4-1.4 1.4M5.2 10.8l-1.4 1.4",
  switch: "m5 6 3-3 3 3M5 10l3 3 3-3",
  person: "M10.5 5.5a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0M3 13.5c.5-2.8 2.4-4 5-4s4.5 1.2 5 4",
  plus: "M8 3v10M3 8h10",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  done: "m3 8.5 3.2 3L13 4.5",
  back: "M10 3 5 8l5 5",
  close: "m4 4 8 8m0-8-8 8",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11.3v.01",
  sun: "M10.5 8a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0M8 1.8v1.4m0 9.6v1.4M1.8 8h1.4m9.6 0h1.4M3.6 3.6l1 1m6.8 6.8 1 1m0-8.8-1 1m-6.8 6.8-1 1",
  moon: "M13 9.5A5.5 5.5 0 1 1 6.5 3 4.5 4.5 0 0 0 13 9.5",
  screen: "M2 3h12v8H2zM6 14h4M8 11v3",
  passkey:
    "M8.5 5.5a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0M1.5 13c.4-2.5 2-3.6 4.5-3.6 1 0 1.8.2 2.5.5m5.5-1.4a1.8 1.8 0 1 1-3.6 0 1.8 1.8 0 0 1 3.6 0m-1.8 1.8V14l1.2-1-1.2-1",
  download: "M8 2.5v7m-3-3 3 3 3-3M3 13h10",
  bell: "M8 2.5a3.5 3.5 0 0 0-3.5 3.5c0 3.5-1.5 4.8-1.5 4.8h10S11.5 9.5 11.5 6A3.5 3.5 0 0 0 8 2.5M6.8 13a1.3 1.3 0 0 0 2.4 0",
  search: "M11 7a4 4 0 1 1-8 0 4 4 0 0 1 8 0M10 10l3.5 3.5",
  help: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0M6.4 6.4a1.6 1.6 0 1 1 2.4 1.4c-.6.3-.8.6-.8 1.1M8 11v.01",
  models: "M8 2.2 13 5v6l-5 2.8L3 11V5zM3.2 5.1 8 7.8l4.8-2.7M8 7.8v5.8",
  connect: "M6 2.5v3m4-3v3M4.5 5.5h7V8a3.5 3.5 0 0 1-7 0zM8 11.5v2",
  send: "M2.5 3 14 8 2.5 13l2-5zm2 5H9",
  clock: "M13.5 8a5.5 5.5 0 1 1-11 0 5.5 5.5 0 0 1 11 0M8 5v3.2l2 1.3",
  pause: "M5.5 4v8M10.5 4v8",
  sort: "m5 6 3-3 3 3M5 10l3 3 3-3",
  up: "m4.5 9.5 3.5-4 3.5 4",
  down: "m4.5 6.5 3.5 4 3.5-4",
} as const;

export type IconName = keyof typeof paths;

/** A drawing beside a word, which says the same: screen readers skip it. */
export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

export function Brand(): JSX.Element {
  return (
    <svg class="brand-mark" viewBox="0 0 20 20" aria-hidden="true">
      <path d="M3 5h4l6 10h4M3 15h4l2-3.3M11 8.3 13 5h4" />
    </svg>
  );
}
