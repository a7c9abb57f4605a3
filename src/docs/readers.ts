// Who reads which pages, and in which order: the list behind the index, the column of pages, and
// the links to the previous and the next one.

type Reader = {
  readonly name: string;
  /** Paths of pages. One that ends with `/` stands for the other pages of its folder, by name. */
  readonly pages: readonly string[];
  /** True: they call the gateway from elsewhere, so samples have its public address. */
  readonly showsPublicUrl: boolean;
};

const readers: readonly Reader[] = [
  {
    name: "For customers",
    showsPublicUrl: true,
    pages: ["customers/quick-start", "customers/", "customers", "tools", "responses"],
  },
  {
    name: "For operators",
    showsPublicUrl: false,
    pages: [
      ...["operating/install", "operating/", "operating", "payments", "watching"],
      ...["bedrock", "azure", "vertex"],
    ],
  },
  { name: "For developers", showsPublicUrl: false, pages: ["internals", "measuring", "renamed"] },
];

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
