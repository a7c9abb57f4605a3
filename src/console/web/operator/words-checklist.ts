// Texts of the checklist. As `words.ts`.

import { moment } from "../format.ts";

type Step = {
  readonly title: string;
  readonly done: (facts: string) => string;
  readonly open: (facts: string) => string;
  /** To paste into the environment, the configuration file or a shell. */
  readonly lines?: (line: string) => string;
  readonly page?: { readonly path: string; readonly label: string };
};

const file = "# in the configuration file, which CONFIG names";
const environment = "# in the environment; then start again";

const parts: Readonly<Record<string, Step>> & { readonly UNSPECIFIED: Step } = {
  UNSPECIFIED: {
    title: "Something that this page does not know",
    done: (facts) => facts,
    open: (facts) => facts,
  },
  REACHABLE: {
    title: "Reachable from elsewhere",
    done: (url) => `People reach it at ${url}.`,
    open: (url) =>
      `Links and passkeys are for ${url}. Others need an https address: put a proxy with a certificate before this machine, and name its address.`,
    lines: () => `${environment}\nHOST=0.0.0.0\nPUBLIC_URL=https://gateway.example.com`,
  },
  PROXIES: {
    title: "Proxies named",
    done: () => "No proxy passes requests on that is not named.",
    open: (peers) =>
      `Requests with the header of a proxy come from ${peers}. If one of these is your proxy, name it: all of its clients have one address until then. Otherwise do nothing, a client made the header up.`,
    lines: (line) => `${environment}\n${line}`,
  },
  PROVIDER: {
    title: "A real provider",
    done: (names) => `Real models run at ${names}.`,
    open: () =>
      "All models are simulated. Name a provider, and route models to it. src/config/default-catalog.yaml has more models, and every member.",
    lines: () => `${file}
providers:
  vendor:
    kind: anthropic
    base_url: https://api.anthropic.com
    credential_env: PROVIDER_KEY
price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }
aliases: { haiku: model-haiku-4.5 }
models:
  - id: model-haiku-4.5
    created_at: 2025-10-15T00:00:00Z
    context_tokens: 200000
    max_output_tokens: 64000
    thinking: budget
    price: { input: 0.70, output: 3.50 }   # US dollars per million tokens
    routes:
      - [{ provider: vendor, model: claude-haiku-4-5 }]`,
  },
  MAIL: {
    title: "Mail",
    done: (from) => `Mail goes out from ${from}.`,
    open: () =>
      "No mail is sent: invitations are links to copy, and alerts are seen on the page alone.",
    lines: () =>
      `${environment}\nSMTP_URL=smtp://user:password@mail.example.com:587\nMAIL_FROM=no-reply@example.com`,
  },
  SIGN_UP: {
    title: "Who may sign up",
    done: (who) => `New people come by: ${who}.`,
    open: () => "Only people with an invitation come in. That is right for a team.",
    lines: () => `${file}
people:
  sign_up: domains      # or: open
  domains: [example.com]`,
  },
  PAYMENTS: {
    title: "How people pay",
    done: (names) => `Payments come by ${names}.`,
    open: () => "No processor takes money: credits are given by hand, or bought in a simulation.",
    lines: () => `${file}
payments:
  processors:
    - name: btcpay
      type: btcpay
      url: https://pay.example.com
      store: ID_OF_THE_STORE
      api_key: BTCPAY_API_KEY`,
  },
  BACKUP: {
    title: "Backups",
    done: () => "Backups are made.",
    open: (where) =>
      where === "embedded"
        ? "The ledger is in a database on this machine alone. The gateway does not know of backups: make one each day, and keep it elsewhere."
        : "The ledger is in a database of yours. The gateway does not know of backups: see that it has some, and try one out.",
    lines: () => "npm run backup -- /backup/gateway-1",
  },
  LEDGER: {
    title: "First check of the ledger",
    done: (at) => `Its last check without a finding ended on ${moment(new Date(at))}.`,
    open: () => "Nobody has checked it yet, or the last check found something.",
    lines: () => "npm run verify-ledger",
    page: { path: "attention", label: "Check it here" },
  },
  ALERTS: {
    title: "Who hears of alerts",
    done: (channels) => `Alerts of the installation go out by ${channels}.`,
    open: () => "Alerts of the installation are seen on the page alone.",
    page: { path: "health", label: "Set a webhook" },
  },
};

export const checklistWords = {
  title: "Checklist",
  intro: "What an installation needs before customers come. Each line says what to set.",
  counted: (left: number) => (left === 0 ? "all done" : `${left} to do`),
  again: "Check again",
  dismiss: "Not now",
  states: { UNSPECIFIED: "unknown", OPEN: "to do", DEFAULT: "your choice", DONE: "done" },
  parts,
} as const;
