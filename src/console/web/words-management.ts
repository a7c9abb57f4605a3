// The texts of management keys, which are loaded with their part of the page.

import type { ManagementScope } from "../../../gen/gateway/common/v1/roles_pb.ts";

export const managementWords = {
  title: "Management keys",
  about:
    "For your programs: they make keys, limit and end them, and never pay for a request themselves.",
  create: "New management key",
  createButton: "Create",
  ready: (name: string) => `${name} is ready`,
  none: "There are none.",
  caption: "The management keys of this account",
  name: "Name",
  nameHint: "By which you recognize it: a platform, a job, an agent.",
  may: "May",
  keys: "Keys",
  ofMost: (live: string, most: string) => `${live} of ${most}`,
  lastUsed: "Last used",
  actions: "Actions",
  edit: "Edit",
  editTitle: (name: string) => `Edit ${name}`,
  saved: "Saved.",
  rotate: "Rotate",
  rotateLead: "It gets a new secret now. What it may do, and the keys that it made, stay.",
  revoke: "Revoke",
  revoked: "revoked",
  expired: "expired",
  scopes: "What it may do",
  scopeTags: { READ: "read", KEYS: "its keys", ALL_KEYS: "all keys", BUY: "buy" },
  scopeLabels: {
    READ: "Read the account",
    KEYS: "Make keys, and manage these",
    ALL_KEYS: "Manage every key of the account",
    BUY: "Order credits",
  },
  scopeHints: {
    READ: "Usage, receipts, credits, keys and orders of everybody.",
    KEYS: "It changes, rotates, pauses and revokes the keys that it made, and no others.",
    ALL_KEYS: "Also keys that people made. Choose it for programs that clean up.",
    BUY: "An order debits nobody: its own wallet pays.",
  },
  mostKeys: "Keys at once, at most",
  mostKeysHint: "From 1 to 1,000. Revoked and expired ones do not count.",
  children: "Limits of each key that it makes",
  childrenHint:
    "It can set lower ones, and none above. Without a limit of its own a key gets these.",
  budgetHint: "With all keys that it made, together, in each pool. Days are UTC.",
  howTo: "Make a key with it",
  language: "Language",
  languages: { curl: "curl", typescript: "TypeScript", python: "Python" },
  revokeTitle: (name: string) => `Revoke ${name}`,
  revokeLead: "It stops working for good, on every server within a second.",
  fate: (keys: string) => `What becomes of the ${keys} keys that it made`,
  fates: { PAUSE: "Pause them", REVOKE: "Revoke them", KEEP: "Keep them" },
  fateHints: {
    PAUSE: "They refuse new requests until an owner resumes them.",
    REVOKE: "They stop working for good, and their running requests end.",
    KEEP: "They go on working. The owners manage them.",
  },
  revokedDone: (name: string) => `${name} is revoked.`,
} as const satisfies {
  readonly scopeLabels: Record<Scope, string>;
  readonly scopeTags: Record<Scope, string>;
  readonly scopeHints: Record<Scope, string>;
} & Readonly<Record<string, unknown>>;

/** The name of a scope. */
export type Scope = Exclude<keyof typeof ManagementScope, "UNSPECIFIED">;
