// Acts of the audit log as sentences: "revoked a key". By the words of the method's name, so that a
// new method needs no text of its own.

/** What the first word of a method says was done. Others: "called". */
const verbs: Readonly<Record<string, string>> = {
  Accept: "accepted",
  Add: "added",
  Approve: "approved",
  Authenticate: "authenticated",
  Begin: "began",
  Cancel: "cancelled",
  Change: "changed",
  Check: "checked",
  Checkpoint: "checkpointed",
  Close: "closed",
  Complete: "completed",
  Confirm: "confirmed",
  Create: "made",
  Decide: "decided",
  Delete: "deleted",
  Dismiss: "dismissed",
  Download: "downloaded",
  End: "ended",
  Export: "exported",
  Find: "searched for",
  Finish: "finished",
  Get: "looked at",
  Grant: "granted",
  List: "looked at the list of",
  Look: "looked",
  Move: "moved",
  Pause: "paused",
  Place: "placed",
  Preview: "previewed",
  Query: "looked at",
  Receive: "received",
  Redeem: "redeemed",
  Reject: "rejected",
  Remove: "removed",
  Rename: "renamed",
  Resend: "sent again",
  Reset: "reset",
  Resume: "resumed",
  Revoke: "revoked",
  Rotate: "rotated",
  Save: "kept",
  Search: "searched",
  Set: "set",
  Settle: "settled",
  Sign: "signed",
  Simulate: "simulated",
  Stop: "stopped",
  Suspend: "suspended",
  Test: "tested",
  Update: "changed",
  Verify: "checked",
  Watch: "watched",
};

/**
 * `CreateKey` → "made a key", `ListMembers` → "looked at the list of members", `ListPeople` →
 * "looked at the people".
 */
export function actText(method: string): string {
  const [first = "", ...others] = method.split(/(?=[A-Z])/);
  const verb = verbs[first];
  const thing = others.join(" ").toLowerCase();
  if (verb === undefined) return [first.toLowerCase(), thing].join(" ").trim();
  if (thing === "") return verb;
  if (first === "List" && !thing.endsWith("s")) return `looked at the ${thing}`;
  const isMany = /[^s]s$/.test(thing) || first === "Set" || first === "Sign";
  return isMany ? `${verb} ${thing}` : `${verb} ${/^[aeio]/.test(thing) ? "an" : "a"} ${thing}`;
}

/** `oldMonthlyCapMicrocredits` → "old monthly cap": the name of a fact for people. */
export function factName(name: string): string {
  const words = name.split(/(?=[A-Z])/).map((word) => word.toLowerCase());
  const unit = words.at(-1);
  return (unit === "microcredits" || unit === "id" ? words.slice(0, -1) : words).join(" ") || name;
}
