// The ways in which clients write a model's name. Pure.

/** What a name may be rewritten to before it is looked up: `claude-haiku-4-5-20251001` is read as `model-haiku-4.5`. */
export function canonicalName(name: string): string {
  return name
    .toLowerCase()
    .replace(/\[1m\]$/, "")
    .replace(/^(anthropic|vendor)\//, "")
    .replace(/^claude-/, "model-")
    .replace(/(-\d{8}|@\d{8}|-latest)$/, "")
    .replace(/(\d)-(\d+)$/, "$1.$2");
}

const tiers = ["opus", "sonnet", "haiku"] as const;

/** The tier that a vendor's name for an unknown version speaks of. Undefined for every other name. */
export function tierOf(name: string): (typeof tiers)[number] | undefined {
  const lower = name.toLowerCase();
  return lower.includes("claude") ? tiers.find((tier) => lower.includes(tier)) : undefined;
}
