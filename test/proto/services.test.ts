// The size of services, and which packages import which.

import { expect, test } from "vitest";
import { ourFiles, ourServices } from "../support/protos.ts";

const methodsMax = 15;
/** Services that have more methods, with their number. It may only shrink. */
const large: Readonly<Record<string, number>> = {
  BillingService: 36,
  KeysService: 16,
  OperationsService: 21,
  PaymentsService: 27,
  PeopleService: 36,
};

test(`a service has at most ${methodsMax} methods`, () => {
  const found = ourServices.filter(({ methods }) => methods.length > methodsMax);
  expect(Object.fromEntries(found.map(({ name, methods }) => [name, methods.length]))).toEqual(
    large,
  );
});

/** Pairs of packages that import each other. */
const crosswise: readonly string[] = [];

test("packages do not import each other crosswise, and common imports none of ours", () => {
  const imports = new Set(
    ourFiles.flatMap(({ proto, dependencies }) =>
      dependencies.map((other) => `${proto.package} ${other.proto.package}`),
    ),
  );
  const pairs = [...imports].map((pair) => pair.split(" "));
  const found = pairs.filter(
    ([one = "", other = ""]) => one < other && imports.has(`${other} ${one}`),
  );
  expect(found.map((pair) => pair.join(" ")).sort()).toEqual(crosswise);
  const ofCommon = pairs.filter(
    ([one, other = ""]) =>
      one === "gateway.common.v1" && other.startsWith("gateway.") && other !== one,
  );
  expect(ofCommon).toEqual([]);
});

test("each file names its Go package, and makes a file of each Java type", () => {
  for (const { name, proto } of ourFiles) {
    const { goPackage, javaMultipleFiles, javaPackage } = proto.options ?? {};
    const [, subject = "", version = ""] = proto.package.split(".");
    expect([goPackage, javaMultipleFiles, javaPackage], name).toEqual([
      `model-gateway/gateway/${subject}/${version};${subject}${version}`,
      true,
      proto.package,
    ]);
  }
});
