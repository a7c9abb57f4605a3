// The texts of alerts, which are loaded with their parts of the page.

export const alertWords = {
  title: "Alerts",
  none: "Nothing new.",
  dismiss: "Dismiss",
  belowCredits: "Credits below",
  belowDays: "Lasting less than",
  days: "days",
  webhook: "Webhook",
  webhookHint: "An https address that gets signed posts.",
  newSecret: "Make a new secret",
  test: "Send a test",
  tested: "The receiver took the test.",
  saved: "Saved.",
  kind: "Alert",
  channels: { page: "Page", mail: "Mail", webhook: "Webhook" },
  // In the order of AlertKind.
  kinds: [
    "Low credits",
    "Cap at 80 and 100 %",
    "New key",
    "Sign-in from a new place",
    "Key paused, account suspended",
    "Payment that waits",
    "Provider that needs a repair",
    "Ledger that is not synchronous",
    "Finding of the verifier",
    "Provider that answers again",
    "Large gift by the machine alone",
    "Chain of payments that is not read",
  ],
} as const;
