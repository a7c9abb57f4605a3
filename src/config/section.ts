// Reads the mappings of a configuration file, member by member, and collects every problem. It is
// written by hand and not with a schema library, see docs/decisions/0017-configuration-by-hand.md.

import { nearestName } from "../base/nearest-name.ts";

/**
 * One mapping of the file. A wrong member adds a problem, and its reader returns a value of the
 * right type, so that reading goes on to the next problem.
 */
export class Section {
  readonly #path: string;
  readonly #members: ReadonlyMap<unknown, unknown>;
  readonly #problems: string[];
  readonly #known = new Set<string>();

  constructor(value: unknown, path: string, problems: string[]) {
    this.#path = path;
    this.#problems = problems;
    this.#members = value instanceof Map ? value : new Map();
    if (!(value instanceof Map)) this.problem(undefined, "must be a mapping");
  }

  /** Adds a problem of the member `key`, or of the whole mapping. */
  problem(key: string | undefined, message: string): void {
    this.#problems.push(`${this.#pathOf(key) || "the file"}: ${message}`);
  }

  has(key: string): boolean {
    this.#known.add(key);
    return this.#members.has(key);
  }

  isText(key: string): boolean {
    return typeof this.#members.get(key) === "string";
  }

  /** The text of a member. In all readers, a member without a fallback is required. */
  text(key: string, fallback?: string): string {
    const value = this.#read(key);
    if (typeof value === "string" && value !== "") return value;
    if (value === undefined && fallback !== undefined) return fallback;
    this.problem(key, value === undefined ? "is required" : "must be a text that is not empty");
    return fallback ?? "";
  }

  choice<T extends string>(key: string, choices: readonly [T, ...T[]], fallback?: T): T {
    const value = this.text(key, fallback);
    const chosen = choices.find((choice) => choice === value);
    if (chosen === undefined && value !== "")
      this.problem(key, `must be one of ${choices.join(", ")}, not ${value}`);
    return chosen ?? choices[0];
  }

  flag(key: string, fallback?: boolean): boolean {
    return (
      this.choice(
        key,
        ["false", "true"],
        fallback === undefined ? undefined : fallback ? "true" : "false",
      ) === "true"
    );
  }

  /** A whole number from `min` to `max`. */
  integer(key: string, range: { min: number; max: number; fallback?: number }): number {
    const text = this.text(key, range.fallback?.toString());
    if (text === "") return range.min;
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= range.min && value <= range.max) return value;
    this.problem(key, `must be a whole number from ${range.min} to ${range.max}, not ${text}`);
    return range.min;
  }

  /**
   * The name of an environment variable. Undefined if the member is absent. The value is not
   * repeated in problems: it may be the secret itself.
   */
  variable(key: string): string | undefined {
    if (!this.has(key)) return undefined;
    const name = this.text(key);
    if (name !== "" && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      this.problem(key, "must be the name of an environment variable");
    return name;
  }

  /** The mapping under `key`. Undefined if the member is absent. */
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

  /** The texts in the list under `key`. Empty if the member is absent. */
  texts(key: string): string[] {
    if (!this.has(key)) return [];
    return this.#list(key).flatMap(({ value, path }) => {
      if (typeof value === "string" && value !== "") return [value];
      this.#problems.push(`${path}: must be a text that is not empty`);
      return [];
    });
  }

  /** The mappings in the list under `key`. The list is required and must not be empty. */
  sections(key: string): Section[] {
    return this.#list(key).map(({ value, path }) => new Section(value, path, this.#problems));
  }

  /** The lists of mappings in the list under `key`. None of the lists may be empty. */
  groups(key: string): Section[][] {
    return this.#list(key).map(({ value, path }) => {
      if (!Array.isArray(value) || value.length === 0)
        this.#problems.push(`${path}: must be a list, and not empty`);
      const entries: unknown[] = Array.isArray(value) ? value : [];
      return entries.map((entry, index) => new Section(entry, `${path}[${index}]`, this.#problems));
    });
  }

  /** All member names of the mapping. */
  names(): string[] {
    const names: string[] = [];
    for (const name of this.#members.keys()) if (typeof name === "string") names.push(name);
    return names;
  }

  /** Adds a problem for each member that was not read. Call it after all reads. */
  rejectUnknown(): void {
    for (const name of this.names()) {
      if (this.#known.has(name)) continue;
      const nearest = nearestName(name, [...this.#known]);
      this.problem(
        name,
        `is not a known member${nearest === undefined ? "" : `; did you mean ${nearest}?`}`,
      );
    }
  }

  #pathOf(key: string | undefined): string {
    return [this.#path, key].filter((part) => part !== undefined && part !== "").join(".");
  }

  #read(key: string): unknown {
    this.#known.add(key);
    return this.#members.get(key);
  }

  #list(key: string): { value: unknown; path: string }[] {
    const value = this.#read(key);
    if (!Array.isArray(value) || value.length === 0) {
      this.problem(key, value === undefined ? "is required" : "must be a list, and not empty");
      return [];
    }
    return value.map((entry: unknown, index) => ({
      value: entry,
      path: `${this.#pathOf(key)}[${index}]`,
    }));
  }
}
