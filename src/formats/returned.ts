// What goes back to a provider of what a client returned.

import { type Attached, type Block, Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import { type DialectName, dialectOf } from "../config/catalog.ts";

/** The provider that a request goes to. */
export type ReturnTarget = {
  readonly dialect: DialectName;
  /** The provider's name of the model. */
  readonly model: string;
};

/**
 * Whether the members that a provider wrote go to this target: `back`; not, because they are of
 * another dialect or format; or not, because they are of another model. What a client claims itself
 * is taken for the target's own. Absent members are foreign.
 */
export function returnOf(
  attached: Attached | undefined,
  format: Format,
  target: ReturnTarget,
): "back" | "foreign" | "model" {
  if (attached?.format !== format) return "foreign";
  const { dialect, model, list, textMembers, members = {} } = attached;
  if (dialect !== "" && dialect !== target.dialect) return "foreign";
  const row = dialectOf(target.dialect);
  const names = list === "" ? [...textMembers, ...Object.keys(members)] : [list];
  const { reasoning: taken } = row;
  // A row names members of the chat format. In the others a provider takes back what it wrote.
  if (format === Format.CHAT && taken && !names.every((name) => taken.includes(name)))
    return "foreign";
  const isOther = dialect !== "" && model !== "" && model !== target.model;
  return isOther && isSecret(members) && row.boundTo !== "host" ? "model" : "back";
}

/** True for signed and encrypted reasoning, which only the model that wrote it can read. */
function isSecret(members: Readonly<Record<string, unknown>>): boolean {
  return ["signature", "data", "encrypted_content"].some(
    (name) => typeof members[name] === "string" && members[name] !== "",
  );
}

/** The readable text of a block of thinking; empty for all others. */
export function thinkingOf({ kind }: Block): string {
  return kind.case === "thinking" ? kind.value.thinking : "";
}
