// Reads one mapping of a configuration file, member by member. Every problem is collected, so that
// a file is judged as a whole; a member that nobody asked for is one of them.

/** One mapping of the file. Reading a bad member notes a problem and goes on with a stand-in. */
export class Section {
  readonly path: string;
  readonly #members: ReadonlyMap<unknown, unknown>;
  readonly #problems: string[];
  readonly #known = new Set<string>();

  constructor(value: unknown, path: string, problems: string[]) {
    this.path = path;
    this.#problems = problems;
    this.#members = value instanceof Map ? value : new Map();
    if (!(value instanceof Map)) this.problem(undefined, "must be a mapping");
  }

  /** Notes what is wrong with member `key`, or with the whole mapping. */
  problem(key: string | undefined, says: string): void {
    this.#problems.push(`${this.#pathOf(key) || "the file"}: ${says}`);
  }

  has(key: string): boolean {
    this.#known.add(key);
    return this.#members.has(key);
  }

  /** The text of a member, or `otherwise`. Without `otherwise` the member is required. */
  text(key: string, otherwise?: string): string {
    const value = this.#read(key);
    if (typeof value === "string" && value !== "") return value;
    if (value === undefined && otherwise !== undefined) return otherwise;
    this.problem(key, value === undefined ? "is required" : "must be a text that is not empty");
    return otherwise ?? "";
  }

  choice<T extends string>(key: string, choices: readonly [T, ...T[]], otherwise?: T): T {
    const value = this.text(key, otherwise);
    const chosen = choices.find((choice) => choice === value);
    if (chosen === undefined && value !== "")
      this.problem(key, `must be one of ${choices.join(", ")}, not ${value}`);
    return chosen ?? choices[0];
  }

  flag(key: string, otherwise?: boolean): boolean {
    return (
      this.choice(
        key,
        ["false", "true"],
        otherwise === undefined ? undefined : otherwise ? "true" : "false",
      ) === "true"
    );
  }

  /** A whole number between `min` and `max`. */
  whole(key: string, range: { min: number; max: number; otherwise?: number }): number {
    const text = this.text(key, range.otherwise?.toString());
    if (text === "") return range.min;
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= range.min && value <= range.max) return value;
    this.problem(key, `must be a whole number from ${range.min} to ${range.max}, not ${text}`);
    return range.min;
  }

  /** The mapping under `key`, or undefined where there is none. */
  optionalSection(key: string): Section | undefined {
    return this.has(key)
      ? new Section(this.#read(key), this.#pathOf(key), this.#problems)
      : undefined;
  }

  section(key: string): Section {
    const found = this.optionalSection(key);
    if (found !== undefined) return found;
    this.problem(key, "is required");
    return new Section(new Map(), this.#pathOf(key), this.#problems);
  }

  /** The mappings of the list under `key`, which must not be empty. */
  sections(key: string): Section[] {
    return this.#list(key).map(({ value, path }) => new Section(value, path, this.#problems));
  }

  /** The list of lists of mappings under `key`; neither the list nor one in it may be empty. */
  groups(key: string): Section[][] {
    return this.#list(key).map(({ value, path }) => {
      if (!Array.isArray(value) || value.length === 0)
        this.#problems.push(`${path}: must be a list that is not empty`);
      const entries: unknown[] = Array.isArray(value) ? value : [];
      return entries.map((entry, index) => new Section(entry, `${path}[${index}]`, this.#problems));
    });
  }

  /** The member names of a mapping whose names are the file's own choice. */
  names(): string[] {
    const names: string[] = [];
    for (const name of this.#members.keys()) if (typeof name === "string") names.push(name);
    return names;
  }

  /** Call when everything was asked for: what is left over is unknown. */
  end(): void {
    for (const name of this.names()) {
      if (this.#known.has(name)) continue;
      const nearest = nearestName(name, [...this.#known]);
      this.problem(
        name,
        `is not known${nearest === undefined ? "" : `; did you mean ${nearest}?`}`,
      );
    }
  }

  #pathOf(key: string | undefined): string {
    return [this.path, key].filter((part) => part !== undefined && part !== "").join(".");
  }

  #read(key: string): unknown {
    this.#known.add(key);
    return this.#members.get(key);
  }

  #list(key: string): { value: unknown; path: string }[] {
    const value = this.#read(key);
    if (!Array.isArray(value) || value.length === 0) {
      this.problem(key, value === undefined ? "is required" : "must be a list that is not empty");
      return [];
    }
    return value.map((entry: unknown, index) => ({
      value: entry,
      path: `${this.#pathOf(key)}[${index}]`,
    }));
  }
}

/**
 * The name that `name` was most likely meant to be: the one with the fewest edits, at most half of
 * its letters.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  let best: { name: string; edits: number } | undefined;
  for (const candidate of names) {
    const edits = editDistance(name, candidate);
    if (edits <= candidate.length / 2 && (best === undefined || edits < best.edits))
      best = { name: candidate, edits };
  }
  return best?.name;
}

// Levenshtein's distance, one row at a time.
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
