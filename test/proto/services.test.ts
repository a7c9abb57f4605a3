// The cut of the protos: services of one subject, and packages that import each other one way.

import { expect, test } from "vitest";
import { allServices } from "../../src/contract/contract.ts";
import { describedFiles } from "../../src/contract/descriptors.ts";
import { ourFiles } from "../support/protos.ts";

test("a service has at most 15 methods", () => {
  const large = allServices.filter(({ methods }) => methods.length > 15);
  expect(large.map(({ typeName, methods }) => [typeName, methods.length])).toEqual([]);
});

test("a name of a method is that of one service", () => {
  const names = allServices.flatMap(({ methods }) => methods.map(({ name }) => name));
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
});

/** The packages of ours that each package may import, beside itself. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  common: [],
  approvals: ["common"],
  audit: ["common"],
  billing: ["common", "approvals"],
  verification: ["common", "approvals", "billing"],
  keys: ["common", "approvals", "billing"],
  people: ["common", "approvals", "billing"],
  payments: ["common", "approvals", "billing"],
  alerts: ["common", "approvals", "billing"],
  usage: ["common", "approvals", "billing"],
  inference: ["common", "approvals", "billing"],
  sales: ["common", "approvals", "billing"],
  operations: ["common", "approvals", "billing", "alerts", "payments"],
  accounts: [
    ...["common", "approvals", "billing", "alerts", "payments"],
    ...["audit", "keys", "people", "usage"],
  ],
};

test("a package imports only those below it", () => {
  const ours = describedFiles().filter(({ proto }) => proto.package.startsWith("gateway."));
  const packageOf = (path: string) => path.split("/")[1] ?? "";
  const wrong = ours.flatMap(({ proto }) =>
    proto.dependency
      .filter((path) => path.startsWith("gateway/"))
      .map((path) => [packageOf(proto.name), packageOf(path)] as const)
      .filter(([from, to]) => from !== to && !mayImport[from]?.includes(to))
      .map(([from, to]) => `${proto.name} (${from}) imports ${to}`),
  );
  expect(wrong).toEqual([]);
  expect(new Set(ours.map(({ proto }) => packageOf(proto.name)))).toEqual(
    new Set(Object.keys(mayImport)),
  );
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
