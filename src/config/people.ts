// The section `people` of the configuration file: who may sign up, and companies at which people
// sign in by OIDC.

import { readMailAddress } from "../base/mail-address.ts";
import { isLocalhost } from "./environment.ts";
import type { Section } from "./section.ts";

export type PeopleSettings = {
  /** With a password or a passkey. Other than `closed`, it needs a mail server. */
  readonly signUp: SignUp;
  /** By their names, which are parts of addresses. */
  readonly oidc: Readonly<Record<string, OidcSettings>>;
  readonly limits: PeopleLimits;
};

/** What the people of an account can make. */
export type PeopleLimits = {
  /** Keys that are neither revoked nor expired. */
  readonly keys: number;
};

/** Who may become a new person, and what a new person joins. */
export type SignUp = {
  readonly mode: (typeof signUpModes)[number];
  /** With `domains`: those of the confirmed addresses that may. */
  readonly domains: readonly string[];
  /** Absent: a new person gets an account of his own, with nothing in it. */
  readonly join?: { readonly accountId: string; readonly role: RoleName };
};

/** A provider of OIDC. */
export type OidcSettings = {
  /** Shown to people. */
  readonly title: string;
  /** The issuer identifier: exactly what its tokens name. */
  readonly issuer: URL;
  readonly clientId: string;
  /** Environment variable with the client secret. Absent: a public client. */
  readonly clientSecretEnv?: string;
  /** How the client secret is sent. */
  readonly clientAuthentication: (typeof clientAuthentications)[number];
  readonly scope: string;
  /** Longest duration of a request to the provider. */
  readonly answerMs: number;
  readonly signUp: SignUp;
  /** The claim that lists the groups of a person, or the path to it: `realm_access.roles`. */
  readonly groupsClaim: string;
  readonly groups: readonly GroupRoles[];
};

/** What the members of a group at the provider are here. At least one of both. */
export type GroupRoles = {
  readonly group: string;
  readonly operator?: "support" | "admin";
  readonly member?: { readonly accountId: string; readonly role: RoleName };
};

export type RoleName = (typeof roleNames)[number];

const signUpModes = ["closed", "open", "domains"] as const;
const clientAuthentications = ["basic", "post"] as const;
const roleNames = ["viewer", "member", "owner"] as const;
const closed: SignUp = { mode: "closed", domains: [] };

/** Nobody signs up, and there is no OIDC. */
export const closedPeople: PeopleSettings = { signUp: closed, oidc: {}, limits: { keys: 1_000 } };

/** Reads the section. Adds its problems. */
export function readPeople(section: Section | undefined): PeopleSettings {
  if (!section) return closedPeople;
  const oidc: Record<string, OidcSettings> = Object.create(null);
  const providers = section.optionalSection("oidc");
  for (const name of providers?.names() ?? []) {
    if (!/^[a-z0-9][a-z0-9-]{0,31}$/.test(name))
      providers?.problem(name, "the name must be 1 to 32 small letters, digits and -");
    const provider = providers?.section(name);
    if (provider) oidc[name] = readOidc(provider, name);
  }
  const signUp = readSignUp(section);
  const limits = readLimits(section.optionalSection("limits"));
  section.rejectUnknown();
  return { signUp, oidc, limits };
}

function readLimits(section: Section | undefined): PeopleLimits {
  if (!section) return closedPeople.limits;
  const { keys } = closedPeople.limits;
  const limits = { keys: section.integer("keys", { min: 1, max: 1_000_000, fallback: keys }) };
  section.rejectUnknown();
  return limits;
}

function readSignUp(section: Section): SignUp {
  const mode = section.choice("sign_up", signUpModes, "closed");
  const domains = section.texts("domains").map((domain) => domain.toLowerCase());
  if (mode === "domains" && domains.length === 0)
    section.problem("domains", "is required with sign_up: domains");
  if (mode !== "domains" && domains.length > 0)
    section.problem("domains", "requires sign_up: domains");
  for (const domain of domains)
    if (readMailAddress(`a@${domain}`) !== `a@${domain}`)
      section.problem("domains", `must be domains such as acme.com, not ${domain}`);
  const join = readMember(section);
  if (mode === "closed" && join) section.problem("account", "requires sign_up: open or domains");
  return { mode, domains, ...(join && { join }) };
}

/** Members `account` and `role`. Undefined: neither is there. */
function readMember(section: Section): { accountId: string; role: RoleName } | undefined {
  if (!section.has("account")) {
    if (section.has("role")) section.problem("role", "requires account");
    return undefined;
  }
  const accountId = section.text("account");
  if (accountId !== "" && !/^acc_[0-9A-Za-z]{1,64}$/.test(accountId))
    section.problem("account", `must be the id of an account, not ${accountId}`);
  return { accountId, role: section.choice("role", roleNames, "member") };
}

function readOidc(section: Section, name: string): OidcSettings {
  const clientSecretEnv = section.has("client_secret_env")
    ? section.text("client_secret_env")
    : undefined;
  // The value is not repeated: it may be the secret itself.
  if (clientSecretEnv && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(clientSecretEnv))
    section.problem("client_secret_env", "must be the name of an environment variable");
  const settings: OidcSettings = {
    title: section.text("title", name),
    issuer: readIssuer(section),
    clientId: section.text("client_id"),
    ...(clientSecretEnv !== undefined && { clientSecretEnv }),
    clientAuthentication: section.choice("client_authentication", clientAuthentications, "basic"),
    scope: section.text("scope", "openid email profile"),
    answerMs: section.integer("answer_ms", { min: 100, max: 60_000, fallback: 10_000 }),
    signUp: readSignUp(section),
    groupsClaim: section.text("groups_claim", "groups"),
    groups: section.has("groups") ? section.sections("groups").map(readGroup) : [],
  };
  if (!settings.scope.split(" ").includes("openid"))
    section.problem("scope", "must contain openid");
  section.rejectUnknown();
  return settings;
}

function readIssuer(section: Section): URL {
  const text = section.text("issuer");
  const url = URL.parse(text);
  const isPlain = url && url.username + url.password + url.search + url.hash === "";
  if (isPlain && url.protocol === "https:") return url;
  if (isPlain && url.protocol === "http:" && isLocalhost(url)) return url;
  if (text !== "")
    section.problem("issuer", "must be an https URL without credentials, query and fragment");
  return new URL("https://issuer.invalid");
}

function readGroup(section: Section): GroupRoles {
  const group = section.text("group");
  const operator = section.has("operator")
    ? section.choice("operator", ["support", "admin"])
    : undefined;
  const member = readMember(section);
  if (!operator && !member) section.problem(undefined, "must have operator, account, or both");
  section.rejectUnknown();
  return { group, ...(operator && { operator }), ...(member && { member }) };
}

/** A problem for each thing that the environment lacks. Secrets are never repeated. */
export function findMissingForPeople(people: PeopleSettings, env: NodeJS.ProcessEnv): string[] {
  const problems: string[] = [];
  if (people.signUp.mode !== "closed" && (env.SMTP_URL ?? "").trim() === "")
    problems.push("people.sign_up: requires SMTP_URL, because addresses have to be confirmed");
  for (const [name, { clientSecretEnv }] of Object.entries(people.oidc)) {
    if (clientSecretEnv !== undefined && !/^[\x20-\x7e]+$/.test(env[clientSecretEnv] ?? ""))
      problems.push(
        `people.oidc.${name}.client_secret_env: the environment variable ${clientSecretEnv} holds no secret`,
      );
  }
  return problems;
}
