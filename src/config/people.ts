// The section `people` of the configuration file: who may sign up, and companies at which people
// sign in by OIDC.

import * as v from "valibot";
import { readMailAddress } from "../base/mail-address.ts";
import { isLocalhost } from "./environment.ts";
import {
  anyList,
  checked,
  choice,
  formed,
  integer,
  named,
  type Settings,
  section,
  text,
  variable,
} from "./schema.ts";

const domain = v.pipe(
  checked((value) => {
    const lower = value.toLowerCase();
    return readMailAddress(`a@${lower}`) === `a@${lower}`
      ? undefined
      : `must be a domain such as acme.com, not ${value}`;
  }),
  v.toLowerCase(),
);

const member = {
  account: v.exactOptional(formed(/^acc_[0-9A-Za-z]{1,64}$/, "the id of an account")),
  role: v.exactOptional(choice(["viewer", "member", "owner"])),
};

const signUp = {
  sign_up: v.optional(choice(["closed", "open", "domains"]), "closed"),
  domains: v.optional(anyList(domain), []),
  ...member,
};

export type RoleName = NonNullable<Settings<typeof member>["role"]>;

/** Who may become a new person, and what a new person joins. */
export type SignUp = {
  readonly mode: Settings<typeof signUp>["signUp"];
  /** With `domains`: those of the confirmed addresses that may. */
  readonly domains: readonly string[];
  /** Absent: a new person gets an account of his own, with nothing in it. */
  readonly join?: { readonly accountId: string; readonly role: RoleName };
};

type Member = NonNullable<SignUp["join"]>;
const joinOf = ({ account, role = "member" }: Settings<typeof member>): Member | undefined =>
  account === undefined ? undefined : { accountId: account, role };

function signUpOf({ signUp: mode, domains, ...of }: Settings<typeof signUp>): SignUp {
  const join = joinOf(of);
  return { mode, domains, ...(join && { join }) };
}

const problemOfRole = ({ account, role }: { account: unknown; role: unknown }) =>
  role !== undefined && account === undefined ? "requires account" : undefined;

const problemOfAccount = (of: { sign_up: SignUp["mode"]; account: unknown }) =>
  of.sign_up === "closed" && of.account !== undefined
    ? "requires sign_up: open or domains"
    : undefined;

function problemOfDomains(of: Pick<SignUp, "domains"> & { sign_up: SignUp["mode"] }) {
  const [isNeeded, isGiven] = [of.sign_up === "domains", of.domains.length > 0];
  if (isNeeded === isGiven) return undefined;
  return isNeeded ? "is required with sign_up: domains" : "requires sign_up: domains";
}

const group = v.pipe(
  section(
    { group: text, operator: v.exactOptional(choice(["support", "admin"])), ...member },
    (rule) => {
      rule("", ["operator", "account"], ({ operator, account }) =>
        operator === undefined && account === undefined
          ? "must have operator, account, or both"
          : undefined,
      );
      rule("role", ["account", "role"], problemOfRole);
    },
  ),
  v.transform(({ account, role, ...one }) => {
    const member = joinOf({ ...(account && { account }), ...(role && { role }) });
    return { ...one, ...(member && { member }) };
  }),
);

/** The rights that the members of a group at the provider have here. At least one of both. */
export type GroupRoles = v.InferOutput<typeof group>;

const issuer = v.pipe(
  checked((value) => {
    const url = URL.parse(value);
    const isPlain = url && url.username + url.password + url.search + url.hash === "";
    return isPlain && (url.protocol === "https:" || (url.protocol === "http:" && isLocalhost(url)))
      ? undefined
      : "must be an https URL without credentials, query and fragment";
  }),
  v.transform((value) => new URL(value)),
);

const oidc = v.pipe(
  section(
    {
      /** Shown to people. Default: the name. */
      title: v.exactOptional(text),
      /** The issuer identifier: exactly what its tokens name. */
      issuer,
      client_id: text,
      /** Environment variable with the client secret. Absent: a public client. */
      client_secret_env: v.exactOptional(variable),
      /** How the client secret is sent. */
      client_authentication: v.optional(choice(["basic", "post"]), "basic"),
      scope: v.optional(
        checked((value) =>
          value.split(" ").includes("openid") ? undefined : "must contain openid",
        ),
        "openid email profile",
      ),
      /** Longest duration of a request to the provider. */
      answer_ms: v.optional(integer(100, 60_000), "10000"),
      ...signUp,
      /** The claim that lists the groups of a person, or the path to it: `realm_access.roles`. */
      groups_claim: v.optional(text, "groups"),
      groups: v.optional(anyList(group), []),
    },
    (rule) => {
      rule("domains", ["sign_up", "domains"], problemOfDomains);
      rule("role", ["account", "role"], problemOfRole);
      rule("account", ["sign_up", "account"], problemOfAccount);
    },
  ),
  v.transform(({ domains, account, role, ...one }) => ({
    ...one,
    signUp: signUpOf({
      signUp: one.signUp,
      domains,
      ...(account && { account }),
      ...(role && { role }),
    }),
  })),
);

/** A company at which people sign in. */
export type OidcSettings = v.InferOutput<typeof oidc> & { readonly title: string };

const limits = section({
  /** Keys of an account that are neither revoked nor expired. */
  keys: v.optional(integer(1, 1_000_000), "1000"),
});

export const people = v.pipe(
  section(
    {
      ...signUp,
      oidc: v.optional(
        named(
          oidc,
          checked((name) =>
            /^[a-z0-9][a-z0-9-]{0,31}$/.test(name)
              ? undefined
              : "the name must be 1 to 32 small letters, digits and -",
          ),
        ),
        {},
      ),
      limits: v.optional(limits, {}),
    },
    (rule) => {
      rule("domains", ["sign_up", "domains"], problemOfDomains);
      rule("role", ["account", "role"], problemOfRole);
      rule("account", ["sign_up", "account"], problemOfAccount);
    },
  ),
  v.transform(({ oidc, limits, ...of }): PeopleSettings => {
    const titled: Record<string, OidcSettings> = Object.create(null);
    for (const [name, one] of Object.entries(oidc)) titled[name] = { title: name, ...one };
    return { signUp: signUpOf(of), oidc: titled, limits };
  }),
);

export type PeopleSettings = {
  /** With a password or a passkey. Other than `closed`, it needs a mail server. */
  readonly signUp: SignUp;
  /** By their names, which are parts of addresses. */
  readonly oidc: Readonly<Record<string, OidcSettings>>;
  readonly limits: v.InferOutput<typeof limits>;
};

/** Nobody signs up, and there is no OIDC. */
export const closedPeople = v.parse(people, {});

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
