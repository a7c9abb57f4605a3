// Who reads which pages, and in which order: the list behind the index, the column of pages, and
// the links to the previous and the next one.

type Reader = {
  readonly name: string;
  /** Paths of pages. One that ends with `/` stands for the other pages of its folder, by name. */
  readonly pages: readonly string[];
  /** True: they call the gateway from elsewhere, so samples have its public address. */
  readonly showsPublicUrl: boolean;
};

const forDevelopers = ["internals", "measuring", "renamed"];

const readers: readonly Reader[] = [
  {
    name: "For customers",
    showsPublicUrl: true,
    pages: [
      ...["customers", "customers/quick-start", "tools", "customers/keys", "customers/credits"],
      ...["customers/models", "customers/limits-and-budgets", "customers/http"],
      ...["customers/messages", "customers/chat-completions", "customers/responses", "customers/"],
    ],
  },
  {
    name: "For operators",
    showsPublicUrl: false,
    pages: [
      ...["operating", "operating/install", "operating/settings", "operating/accounts"],
      ...["operating/people", "operating/models-and-providers", "operating/bedrock"],
      ...["operating/vertex", "operating/azure", "operating/simulated", "operating/selling"],
      ...["operating/coins", "operating/production", "operating/high-availability"],
      ...["operating/database", "operating/history", "operating/security", "operating/"],
    ],
  },
  {
    name: "For everybody",
    showsPublicUrl: false,
    pages: ["what-this-is-not", "glossary"],
  },
  { name: "For developers", showsPublicUrl: false, pages: forDevelopers },
];

/** Tables of everything, which have every word: a page about a subject comes before them. */
const tables = new Set(["customers/methods", "customers/field-limits", "operating/log-codes"]);

/** How much a section of a page counts in a search. An overview leads to where things are said. */
export function weightOf(path: string, isOverview: boolean): number {
  if (isOverview) return 0.3;
  return tables.has(path) || forDevelopers.includes(path) ? 0.6 : 1;
}

type Group = Omit<Reader, "pages"> & { readonly paths: readonly string[] };

/** The paths in reading order, by reader. Those that no reader names come last, as `More`. */
export function orderPages(paths: readonly string[]): readonly Group[] {
  const named = new Set(readers.flatMap(({ pages }) => pages));
  const left = new Set(paths.toSorted());
  const groups = readers.map(({ pages, ...reader }) => {
    const found = pages.flatMap((page) =>
      page.endsWith("/")
        ? [...left].filter((path) => path.startsWith(page) && !named.has(path))
        : [...left].filter((path) => path === page),
    );
    for (const path of found) left.delete(path);
    return { ...reader, paths: found };
  });
  const more = { name: "More", showsPublicUrl: false, paths: [...left] };
  return [...groups, more].filter(({ paths }) => paths.length > 0);
}
