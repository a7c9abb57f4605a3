// The texts of alerts, which are loaded with their parts of the page.

import type { AlertKind } from "../../../gen/gateway/alerts/v1/alerts_pb.ts";

export const alertWords = {
  title: "Alerts",
  none: "Nothing new.",
  dismiss: "Dismiss",
  belowCredits: "Credits below",
  belowDays: "Lasting less than",
  days: "days",
  percents: "Of a budget spent",
  percentsHint: "Such as 50, 80, 100.",
  percentsWrong: "Up to ten whole numbers from 1 to 100, with commas between them.",
  webhook: "Webhook",
  webhookHint: "An https address that gets signed posts.",
  newSecret: "Make a new secret",
  test: "Send a test",
  tested: "The receiver took the test.",
  saved: "Saved.",
  kind: "Alert",
  channels: { page: "Page", mail: "Mail", webhook: "Webhook" },
  kinds: {
    CREDITS_LOW: "Low credits",
    CAP_REACHED: "Budget spent",
    KEY_CREATED: "New key",
    NEW_PLACE: "Sign-in from a new place",
    KEY_STOPPED: "Key paused, account suspended",
    ORDER_WAITING: "Payment that waits",
    KEY_MISPLACED: "Key used from another address",
    PROVIDER_ALARM: "Provider that needs a repair",
    LEDGER_NOT_SYNCHRONOUS: "Ledger that is not synchronous",
    LEDGER_VIOLATED: "Finding of the verifier",
    PROVIDER_RECOVERED: "Provider that answers again",
    APPROVAL_BYPASSED: "Large gift by the machine alone",
    CHAIN_UNREAD: "Chain that nobody can read",
  } satisfies Record<Exclude<keyof typeof AlertKind, "UNSPECIFIED">, string>,
  /** Of a gateway that is newer than this page. */
  newKind: (number: number) => `Kind ${number}`,
} as const;
