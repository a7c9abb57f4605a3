// Who did something: the message of the API, and the text in which columns, exports, addresses of
// the console and the HTTP API hold it.

import { create } from "@bufbuild/protobuf";
import { type Actor, ActorSchema, Part } from "../../gen/gateway/common/v1/actor_pb.ts";

const prefixes = {
  personId: "person:",
  adminTokenName: "token:",
  managementKeyId: "mgmt:",
  processor: "processor:",
} as const;

/** The names under which parts of the gateway act. */
const parts = {
  payments: Part.PAYMENTS,
  bootstrap: Part.FIRST_START,
  reconcile: Part.RECONCILE,
  "verify-ledger": Part.VERIFY_LEDGER,
  restore: Part.RESTORE,
} as const;

export type PartName = keyof typeof parts;

/** `person:`, `token:`, `mgmt:` or `processor:` and the id or name, or a part. Empty: nobody. */
export function actorText(actor: Pick<Actor, "kind"> | undefined): string {
  const { case: kind, value } = actor?.kind ?? {};
  if (kind === undefined) return "";
  if (kind !== "part") return `${prefixes[kind]}${value}`;
  return Object.entries(parts).find(([, part]) => part === value)?.[0] ?? "gateway";
}

/** The actor of such a text. Undefined: it is empty. A part without a name here is not set. */
export function toActor(text: string | null | undefined): Actor | undefined {
  if (!text) return undefined;
  for (const kind of ["personId", "adminTokenName", "managementKeyId", "processor"] as const)
    if (text.startsWith(prefixes[kind])) {
      const value = text.slice(prefixes[kind].length);
      return create(ActorSchema, { kind: { case: kind, value } });
    }
  const part = Object.entries(parts).find(([name]) => name === text)?.[1] ?? Part.UNSPECIFIED;
  return create(ActorSchema, { kind: { case: "part", value: part } });
}
