// What the tests of the protos look at: our files, and all that is in them.

import type { DescEnum, DescField, DescFile, DescMessage, DescMethod } from "@bufbuild/protobuf";
import { serviceTypes } from "../../src/contract/contract.ts";
import { describedFiles } from "../../src/contract/descriptors.ts";

export const ourServices = Object.values(serviceTypes);
export const ourMethods: readonly DescMethod[] = ourServices.flatMap(({ methods }) => methods);
export const ourFiles: readonly DescFile[] = describedFiles().filter(({ proto }) =>
  proto.package.startsWith("gateway."),
);

const inside = (message: DescMessage): DescMessage[] => [
  message,
  ...message.nestedMessages.flatMap(inside),
];
export const ourMessages: readonly DescMessage[] = ourFiles.flatMap(({ messages }) =>
  messages.flatMap(inside),
);
export const ourFields: readonly DescField[] = ourMessages.flatMap(({ fields }) => fields);
export const ourEnums: readonly DescEnum[] = [
  ...ourFiles.flatMap(({ enums }) => enums),
  ...ourMessages.flatMap(({ nestedEnums }) => nestedEnums),
];

/** The name of a type without its package: types move between packages, and keep it. */
export function shortName({ typeName, file }: DescMessage | DescEnum): string {
  return typeName.slice(file.proto.package.length + 1);
}

export function fieldName({ parent, name }: DescField): string {
  return `${shortName(parent)}.${name}`;
}

/** True for the name of a method that begins with one of these verbs. */
export function beginsWith(name: string, verbs: readonly string[]): boolean {
  return verbs.some((verb) => new RegExp(`^${verb}(?=[A-Z]|$)`).test(name));
}
