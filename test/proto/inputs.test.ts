// What goes in and comes out as one message. A caller who sends back what an answer has would not
// know which of its fields count, so an answer and a request share settings and values alone.

import type { DescMessage } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ourMethods, shortName } from "../support/protos.ts";

/** All messages of ours in this one, itself included. */
function within(type: DescMessage, found = new Set<DescMessage>()): Set<DescMessage> {
  if (found.has(type) || !type.file.proto.package.startsWith("gateway.")) return found;
  found.add(type);
  for (const { message } of type.fields) if (message) within(message, found);
  return found;
}

function allWithin(types: readonly DescMessage[]): ReadonlySet<string> {
  const found = new Set<DescMessage>();
  for (const type of types) within(type, found);
  return new Set([...found].map(shortName));
}

/** What may go in and come out, and why: none of them has a field that only answers set. */
const shared: Readonly<Record<string, readonly string[]>> = {
  "settings, whose fields are all the caller's": [
    ...["AlertRule", "AlertSettings", "BillingDetails", "BudgetLimits", "ChildLimits"],
  ],
  "prices, as operators set them and everybody reads them": [
    ...["ListedModel", "PriceCondition", "PriceTerms"],
  ],
  "content of turns, which a client sends back as it came": [
    ...["Attached", "Block", "CacheControl", "DocumentBlock", "ImageBlock", "InlineSource"],
    ...["LeftOut", "RedactedThinkingBlock", "Source", "TextBlock", "ThinkingBlock"],
    ...["ToolResultBlock", "ToolUseBlock"],
  ],
  "names of somebody, also as a filter": ["Actor", "Payer"],
  "what a service reports of a request, which its receipt has": ["Attempt", "Usage"],
};

test("only settings and values are in requests and in answers", () => {
  const inputs = allWithin(ourMethods.map(({ input }) => input));
  const outputs = allWithin(ourMethods.map(({ output }) => output));
  const both = [...inputs].filter((name) => outputs.has(name)).sort();
  expect(both).toEqual(Object.values(shared).flat().sort());
});

test("what creates and what changes a thing is one message, and a mask names its fields", () => {
  const inputs = ourMethods.map(({ input }) => input);
  const masked = inputs.filter(({ field }) => field.updateMask !== undefined);
  expect(masked.filter(({ field }) => field.settings?.message === undefined)).toEqual([]);
  for (const thing of ["Account", "Key", "ManagementKey"])
    for (const verb of ["Create", "Update"]) {
      const request = inputs.find((one) => shortName(one) === `${verb}${thing}Request`);
      const settings = request?.field.settings?.message;
      expect(settings && shortName(settings)).toBe(`${thing}Settings`);
    }
});
