// The samples of gRPC that compile files of the descriptor: they name all that these import.

import type { DescFile } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { file_gateway_inference_v1_inference } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { tools } from "../../src/console/web/tools.ts";

/** The files that a file needs, itself included, but for those that every compiler brings. */
function needed(file: DescFile, found = new Set<string>()): Set<string> {
  const path = `${file.name}.proto`;
  if (path.startsWith("google/protobuf/") || found.has(path)) return found;
  found.add(path);
  for (const one of file.dependencies) needed(one, found);
  return found;
}

/** The files that a command names, as a shell reads them. */
function namedIn(command: string): string[] {
  return [...command.matchAll(/[\w/]*(?:\{[\w,]+\})?[\w/]*\.proto\b/g)].flatMap(([word]) => {
    const [, before = "", list, after = ""] = /^(.*)\{(.*)\}(.*)$/.exec(word) ?? [];
    return list === undefined ? [word] : list.split(",").map((one) => before + one + after);
  });
}

test.for(["grpc-python", "grpc-java"])("the sample %s compiles what it needs", (id) => {
  const { install } = tools.find((tool) => tool.id === id) ?? {};
  expect(namedIn(install ?? "").sort()).toEqual(
    [...needed(file_gateway_inference_v1_inference)].sort(),
  );
});
