// Decimals that must stay exact: coins as the service writes them, and amounts of documents.

/** Adds two decimals exactly: `0.1`, `0.02` → `0.12`. */
export function addDecimals(a: string, b: string): string {
  const places = Math.max(...[a, b].map((text) => text.split(".")[1]?.length ?? 0));
  const units = (text: string) => {
    const [whole = "0", rest = ""] = text.split(".");
    return BigInt(whole + rest.padEnd(places, "0"));
  };
  const sum = String(units(a) + units(b)).padStart(places + 1, "0");
  if (places === 0) return sum;
  return `${sum.slice(0, -places)}.${sum.slice(-places)}`.replace(/\.?0+$/, "");
}

/** Half of a decimal, rounded down to its places, or to two: `5` → `2.5`, `0.03` → `0.01`. */
export function halfOf(decimal: string): string {
  const [whole = "0", rest = ""] = decimal.split(".");
  const places = Math.max(2, rest.length);
  const half = String(BigInt(whole + rest.padEnd(places, "0")) / 2n).padStart(places + 1, "0");
  return `${half.slice(0, -places)}.${half.slice(-places)}`.replace(/\.?0+$/, "");
}

export function isZero(decimal: string): boolean {
  return /^[0.]*$/.test(decimal);
}

/** Millionths as a decimal, with two places or as many as it has: `4987650` → `4.98765`. */
export function exact(millionths: bigint): string {
  const size = millionths < 0n ? -millionths : millionths;
  const rest = String(size % 1_000_000n)
    .padStart(6, "0")
    .replace(/0{1,4}$/, "");
  return `${millionths < 0n ? "\u2212" : ""}${groupDigits(String(size / 1_000_000n))}.${rest}`;
}

/** "65000.00" → "65,000.00" */
export function groupDigits(decimal: string): string {
  const [whole = "0", rest] = decimal.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

/** What is left until a moment: `14:32`. */
export function countdown(until: Date, now: Date): string {
  const seconds = Math.max(0, Math.ceil((until.getTime() - now.getTime()) / 1000));
  const two = (n: number) => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  return `${hours > 0 ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}`;
}
