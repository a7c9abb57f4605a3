// The list of the road in docs/internals.md, against the files that a request enters.

import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { Lab } from "../bench/lab.ts";
import { measureRoad } from "../bench/suites/road.ts";

test("the list of the road names the files that a streamed request enters, and no other", async () => {
  const text = await readFile(new URL("../../docs/internals.md", import.meta.url), "utf8");
  const section = /^### The road$(.*?)^### /ms.exec(text)?.[1] ?? "";
  const rows = section.split("\n").filter((line) => line.startsWith("| "));
  const listed = rows.flatMap((row) =>
    [...row.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file]) => file),
  );
  expect(new Set(listed).size).toBe(listed.length);
  await using lab = new Lab();
  const { files } = await measureRoad(lab);
  expect([...listed].sort()).toEqual([...files].sort());
});
