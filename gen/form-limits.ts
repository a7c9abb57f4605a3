// The limits of fields that forms send, by their names. `npm run generate` writes it.

/** The most characters of a text. */
export const longest: Readonly<Record<string, number>> = {
  "SearchRequest.query": 200,
  address: 2000,
  code: 64,
  deposit_id: 100,
  name: 200,
  network: 40,
  note: 1000,
  password: 1000,
  provider: 200,
  query: 8192,
  reason: 1000,
  tax_id: 50,
  text: 2000,
  transaction: 200,
  webhook_url: 2000,
};

/** The largest number. */
export const largest: Readonly<Record<string, number>> = {
  below_days: 365,
  below_microcredits: 1000000000000000000,
  bonus_microcredits: 9007199254740992,
  daily_cap_microcredits: 9007199254740992,
  daily_microcredits: 9007199254740992,
  max_keys: 1000,
  max_uses: 2147483647,
  monthly_cap_microcredits: 9007199254740992,
  monthly_microcredits: 9007199254740992,
  requests_at_once: 1000000,
  requests_per_minute: 1000000,
  total_cap_microcredits: 9007199254740992,
  total_microcredits: 9007199254740992,
  weekly_cap_microcredits: 9007199254740992,
  weekly_microcredits: 9007199254740992,
};
