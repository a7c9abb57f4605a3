import { describe, expect, test } from "vitest";
import {
  type CatalogFile,
  defaultCatalog,
  findMissing,
  readCatalogFile,
  webhookSecretOf,
} from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";

const processor = "{ name: simulated, type: simulated }";

/** The built-in file with a section `payments`. */
function fileWith(payments: string): string {
  return `${defaultCatalog()}\npayments: ${payments}\n`;
}

function read(payments: string): CatalogFile {
  return readCatalogFile(fileWith(payments));
}

function problemsOf(payments: string): string[] {
  try {
    read(payments);
  } catch (error) {
    if (error instanceof Error)
      return error.message
        .split("\n")
        .slice(1)
        .map((line) => line.trim());
  }
  return [];
}

test("the built-in file says nothing of payments", () => {
  expect(readCatalogFile(defaultCatalog()).payments).toBeUndefined();
});

test("the example in the built-in file is a valid section, and shows every default", () => {
  const [, example = ""] = defaultCatalog().split("# payments:\n");
  const section = example
    .split("\n")
    .map((line) => line.replace(/^# {0,3}/, "  "))
    .join("\n");
  const { payments } = readCatalogFile(`${defaultCatalog()}\npayments:\n${section}`);
  expect(payments).toEqual({
    packsUsd: [5, 20, 50, 200],
    mostUsd: 2_000,
    secondApprovalAboveUsd: 500,
    seller: {
      name: "Example Ltd",
      address: "1 Example Street, Example City",
      taxId: "EX123456",
    },
    processors: [
      { name: "simulated", type: "simulated", webhookSecretEnv: "SIMULATED_WEBHOOK_SECRET" },
    ],
  });
});

test("only a processor is required", () => {
  expect(read(`{ processors: [${processor}] }`).payments).toEqual({
    packsUsd: [5, 20, 50, 200],
    mostUsd: 2_000,
    seller: { name: "", address: "", taxId: "" },
    processors: [{ name: "simulated", type: "simulated" }],
  });
  expect(read(`{ most_usd: 20, processors: [${processor}] }`).payments?.packsUsd).toEqual([5, 20]);
});

const wrong: [what: string, payments: string, problem: string][] = [
  ["no processor", "{}", "payments.processors: is required"],
  ["an empty list", "{ processors: [] }", "payments.processors: must be a list, and not empty"],
  [
    "an unknown type",
    "{ processors: [{ name: a, type: paypal }] }",
    "payments.processors[0].type: must be one of simulated, not paypal",
  ],
  ...["btcpay", "nowpayments", "onchain"].map((type): [string, string, string] => [
    `the type ${type}, which is not built yet`,
    `{ processors: [{ name: a, type: ${type}, url: x }] }`,
    `payments.processors[0].type: ${type} is not part of this version; it has simulated`,
  ]),
  [
    "two processors of one name",
    `{ processors: [${processor}, ${processor}] }`,
    "payments.processors[1].name: there are two processors simulated",
  ],
  [
    "a name that is no path segment",
    "{ processors: [{ name: a/b, type: simulated }] }",
    "payments.processors[0].name: must be 1 to 32 of a-z, 0-9 and -, and begin with a letter",
  ],
  [
    "a secret in the place of its variable's name",
    "{ processors: [{ name: a, type: simulated, webhook_secret: whsec-secret }] }",
    "payments.processors[0].webhook_secret: must be the name of an environment variable",
  ],
  [
    "a pack that is no multiple of 5",
    `{ packs_usd: [7], processors: [${processor}] }`,
    "payments.packs_usd: must be multiples of 5, up to most_usd (2000)",
  ],
  [
    "a pack above the largest order",
    `{ packs_usd: [20], most_usd: 10, processors: [${processor}] }`,
    "payments.packs_usd: must be multiples of 5, up to most_usd (10)",
  ],
  [
    "packs out of order",
    `{ packs_usd: [20, 5], processors: [${processor}] }`,
    "payments.packs_usd: must be in ascending order, each once",
  ],
  [
    "a largest order that is no multiple of 5",
    `{ most_usd: 12, processors: [${processor}] }`,
    "payments.most_usd: must be a multiple of 5",
  ],
  [
    "a seller without a name",
    `{ seller: { tax_id: X }, processors: [${processor}] }`,
    "payments.seller.name: is required",
  ],
  [
    "a misspelt member",
    `{ proccessors: [], processors: [${processor}] }`,
    "payments.proccessors: is not a known member; did you mean processors?",
  ],
];
for (const [what, payments, problem] of wrong)
  test(`${what} is a problem`, () => expect(problemsOf(payments)).toContain(problem));

test("all problems are reported at once, with those of the rest of the file", () => {
  const payments = "{ most_usd: 12, seller: {}, processors: [{ name: A, type: x }] }\nunknown: y";
  const members = problemsOf(payments).map((problem) => problem.split(":", 1)[0]);
  expect(members).toEqual([
    "payments.most_usd",
    "payments.seller.name",
    "payments.processors[0].name",
    "payments.processors[0].type",
    "unknown",
  ]);
});

describe("the secret of webhooks", () => {
  const { payments, ...rest } = read(
    "{ processors: [{ name: pay, type: simulated, webhook_secret: HOOK_SECRET }] }",
  );
  const problem =
    "payments.processors[0].webhook_secret: the environment variable HOOK_SECRET holds no secret " +
    "of at least 16 visible ASCII characters";
  const file: CatalogFile = { ...rest, ...(payments && { payments }) };
  const [pay] = payments?.processors ?? [];

  for (const value of [undefined, "", " ", "fifteen-letters", "with\nline-break-and-more"])
    test(`${JSON.stringify(value)} is none, and is never repeated`, () => {
      expect(findMissing(file, { HOOK_SECRET: value })).toEqual([problem]);
      expect(pay && webhookSecretOf(pay, { HOOK_SECRET: value })).toBeUndefined();
    });

  test("sixteen characters are one", () => {
    const env = { HOOK_SECRET: "sixteen-letters!" };
    expect(findMissing(file, env)).toEqual([]);
    expect(pay && webhookSecretOf(pay, env)).toBe("sixteen-letters!");
  });
});

test("check-config describes what is offered, and names secrets by their variables", () => {
  const printed = describeCatalog(
    read(`{ packs_usd: [5, 10], most_usd: 100, second_approval_above_usd: 50,
      seller: { name: ACME, address: "1 Street\\nCity" },
      processors: [{ name: pay, type: simulated, webhook_secret: HOOK_SECRET }] }`),
  );
  expect(printed).toContain(
    [
      "payments: packs of 5, 10 USD; at most 100 USD; second approval above 50 USD",
      "  seller: ACME, 1 Street, City",
      "  pay: simulated (no real money); webhook /payments/pay/webhook, secret from HOOK_SECRET",
    ].join("\n"),
  );
  expect(describeCatalog(readCatalogFile(defaultCatalog()))).toContain(
    "payments: not configured; simulated while PUBLIC_URL is on localhost, else none",
  );
});
