// The section `people` of the configuration file, and what it needs of the environment.

import { describe, expect, test } from "vitest";
import {
  closedPeople,
  defaultCatalog,
  findMissing,
  type PeopleSettings,
  readCatalogFile,
} from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { readConfig } from "../../src/config/environment.ts";

const fileWith = (people: string) => readCatalogFile(`${defaultCatalog()}\n${people}`);

function read(people: string): PeopleSettings {
  return fileWith(people).people;
}

function problemsOf(people: string): string[] {
  try {
    read(people);
    return [];
  } catch (error) {
    return String(Object(error).message)
      .split("\n")
      .slice(1)
      .map((line) => line.trim());
  }
}

const acme = `people:
  oidc:
    acme:
      title: ACME
      issuer: https://login.acme.com
      client_id: gateway
      client_secret_env: ACME_SECRET
      sign_up: domains
      domains: [ACME.com, acme.org]
      account: acc_1
      groups:
        - { group: admins, operator: admin }
        - { group: team, account: acc_1, role: owner }
`;

test("without the section nobody signs up, and there is no OIDC", () => {
  expect(readCatalogFile(defaultCatalog()).people).toEqual(closedPeople);
});

test("a provider of OIDC is read with its defaults", () => {
  expect(read(acme).oidc.acme).toEqual({
    title: "ACME",
    issuer: new URL("https://login.acme.com"),
    clientId: "gateway",
    clientSecretEnv: "ACME_SECRET",
    clientAuthentication: "basic",
    scope: "openid email profile",
    answerMs: 10_000,
    signUp: {
      mode: "domains",
      domains: ["acme.com", "acme.org"],
      join: { accountId: "acc_1", role: "member" },
    },
    groupsClaim: "groups",
    groups: [
      { group: "admins", operator: "admin" },
      { group: "team", member: { accountId: "acc_1", role: "owner" } },
    ],
  });
  expect(read(acme).signUp).toEqual({ mode: "closed", domains: [] });
});

test("all problems are reported at once", () => {
  const people = `people:
  sign_up: opn
  role: owner
  colour: red
  oidc:
    Acme!:
      isuer: https://login.acme.com
      client_secret_env: the-secret-itself
      scope: email
      answer_ms: 1
      domains: [acme.com]
      account: 17
      groups: [{ group: g }, { operator: king }]
`;
  expect(problemsOf(people)).toEqual([
    "people.sign_up: must be one of closed, open, domains, not opn",
    "people.oidc.Acme!: the name must be 1 to 32 small letters, digits and -",
    "people.oidc.Acme!.issuer: is required",
    "people.oidc.Acme!.client_id: is required",
    "people.oidc.Acme!.client_secret_env: must be the name of an environment variable",
    "people.oidc.Acme!.scope: must contain openid",
    "people.oidc.Acme!.answer_ms: must be a whole number from 100 to 60000, not 1",
    "people.oidc.Acme!.account: must be the id of an account, not 17",
    "people.oidc.Acme!.groups[0]: must have operator, account, or both",
    "people.oidc.Acme!.groups[1].group: is required",
    "people.oidc.Acme!.groups[1].operator: must be one of support, admin, not king",
    "people.oidc.Acme!.domains: requires sign_up: domains",
    "people.oidc.Acme!.isuer: is not a known member; did you mean issuer?",
    "people.role: requires account",
    "people.colour: is not a known member",
  ]);
});

describe("an issuer", () => {
  const rule =
    "people.oidc.acme.issuer: must be an https URL without credentials, query and fragment";
  test.for([
    ["http://login.acme.com", [rule]],
    ["https://user:password@login.acme.com", [rule]],
    ["https://login.acme.com/?tenant=1", [rule]],
    ["login.acme.com", [rule]],
    ["file:///etc/passwd", [rule]],
    ["http://localhost:9000", []],
    ["http://127.0.0.1:9000/realms/acme", []],
  ] as const)("%s is judged", ([issuer, problems]) => {
    expect(problemsOf(acme.replace("https://login.acme.com", issuer))).toEqual(problems);
  });
});

test.for([
  ["[]", "is required with sign_up: domains"],
  ["acme.com", "must be a list"],
  ["[acme]", ""],
  ["['a b.com']", "must be a domain such as acme.com, not a b.com"],
  ["['@acme.com']", "must be a domain such as acme.com, not @acme.com"],
  ["['*.acme.com']", "must be a domain such as acme.com, not *.acme.com"],
  ["[{ a: b }]", "must be a text that is not empty"],
] as const)("the domains %s are judged", ([domains, problem]) => {
  const text = problemsOf(acme.replace("[ACME.com, acme.org]", domains)).join("\n");
  if (problem === "") expect(text).toBe("");
  else expect(text).toContain(problem);
});

describe("the environment", () => {
  test("has the secret of every provider, which no problem repeats", () => {
    const file = fileWith(acme);
    const problem =
      "people.oidc.acme.client_secret_env: the environment variable ACME_SECRET holds no secret";
    expect(findMissing(file, {})).toEqual([problem]);
    expect(findMissing(file, { ACME_SECRET: "two\nlines" })).toEqual([problem]);
    expect(findMissing(file, { ACME_SECRET: "a secret" })).toEqual([]);
  });

  test("has a mail server where addresses are confirmed", () => {
    const file = fileWith("people: { sign_up: open }");
    const problem = "people.sign_up: requires SMTP_URL, because addresses have to be confirmed";
    expect(findMissing(file, {})).toEqual([problem]);
    expect(findMissing(file, { SMTP_URL: "smtp://localhost" })).toEqual([]);
  });

  test("of a facade needs neither", () => {
    const file = fileWith(`${acme}  sign_up: open\n`);
    expect(findMissing(file, { ROLE: "facade" })).toEqual([]);
  });

  test.for([
    "smtp://mail.example.com",
    "smtps://mail.example.com:465",
    "smtp://user%40acme:p%2Fw@[::1]:25/",
  ])("takes %s", (url) => {
    const { smtp } = readConfig({ SMTP_URL: url, PUBLIC_URL: "https://gw.example.com" });
    expect(smtp?.url.protocol).toBe(url.slice(0, url.indexOf(":") + 1));
    expect(smtp?.from).toBe("no-reply@gw.example.com");
  });

  test.for([
    "mail.example.com:25",
    "http://mail.example.com",
    "smtp://",
    "smtp://mail.example.com/path",
    "smtp://mail.example.com?proxy=http://evil",
    "smtp://user:%zz-secret@mail.example.com",
  ])("refuses %s, and does not repeat it", (url) => {
    expect(() => readConfig({ SMTP_URL: url })).toThrow(/^configuration:\n {2}SMTP_URL: must be/);
    expect(() => readConfig({ SMTP_URL: url })).not.toThrow(/secret/);
  });

  test("names a sender that is an address, with a mail server only", () => {
    const url = { SMTP_URL: "smtp://localhost" };
    expect(readConfig({ ...url, MAIL_FROM: "Gateway@Example.com" }).smtp?.from).toBe(
      "gateway@example.com",
    );
    expect(readConfig(url).smtp?.from).toBe("no-reply@localhost");
    expect(() => readConfig({ ...url, MAIL_FROM: "a\nb@c" })).toThrow(
      "MAIL_FROM: must be an e-mail address",
    );
    expect(() => readConfig({ MAIL_FROM: "a@example.com" })).toThrow(
      "MAIL_FROM: requires SMTP_URL",
    );
  });
});

test("check-config shows who may sign up, and no secret", () => {
  const printed = describeCatalog(fileWith(acme));
  expect(printed).toContain("people sign up with an address: closed");
  expect(printed).toContain(
    "OIDC acme: https://login.acme.com/ as gateway; secret from ACME_SECRET; " +
      "sign up: acme.com, acme.org, into acc_1 as member; groups: admins, team",
  );
});
