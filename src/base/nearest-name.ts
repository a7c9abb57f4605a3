// The name that somebody probably meant, for the message about one that nobody knows.

/**
 * The name that was probably meant: the shortest that begins with `name`, the longest with which it
 * begins, or else the one with the fewest edits from it. Undefined if more than half of its letters
 * differ.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const byLength = names.toSorted((one, other) => one.length - other.length);
  const extended =
    byLength.find((one) => name.length > 2 && beginsWith(one, name)) ??
    byLength.findLast((one) => one.length > 2 && beginsWith(name, one));
  if (extended !== undefined) return extended;
  let best: { name: string; edits: number } | undefined;
  for (const candidate of names) {
    const edits = editDistance(name, candidate);
    if (edits <= candidate.length / 2 && (best === undefined || edits < best.edits))
      best = { name: candidate, edits };
  }
  return best?.name;
}

function beginsWith(text: string, beginning: string): boolean {
  return text.toLowerCase().startsWith(beginning.toLowerCase());
}

// The Levenshtein distance, computed row by row.
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
