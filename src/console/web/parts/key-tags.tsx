// What is seen of a key wherever it is listed: its status, what it spent, who may change it.

import type { JSX } from "preact";
import { type Key, KeyState } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { credits, relative, toDate } from "../format.ts";
import { can, session } from "../session.ts";
import { words } from "../words.ts";
import { BudgetBar } from "./budget.tsx";
import { Tag, type Tone } from "./small.tsx";

/** What was spent in the window that has least left, and this month where nothing is limited. */
export function MonthOfCap({ apiKey }: { apiKey: Key }): JSX.Element {
  const isLimited = apiKey.budget?.windows.some((one) => one.limitMicrocredits !== undefined);
  if (isLimited !== true) return <>{credits(apiKey.monthSpentMicrocredits)}</>;
  return <BudgetBar budget={apiKey.budget} />;
}

const tones: Readonly<Partial<Record<KeyState, Tone>>> = {
  [KeyState.ACTIVE]: "good",
  [KeyState.PAUSED]: "warn",
};
const names: Readonly<Partial<Record<KeyState, "active" | "paused" | "expired" | "revoked">>> = {
  [KeyState.ACTIVE]: "active",
  [KeyState.PAUSED]: "paused",
  [KeyState.EXPIRED]: "expired",
  [KeyState.REVOKED]: "revoked",
};
const soonMs = 7 * 86_400_000;

/** The status of a key, and what deserves a look: never used, about to expire. */
export function KeyTags({ apiKey }: { apiKey: Key }): JSX.Element {
  const { state: status, expiresAt, lastUsedAt } = apiKey;
  const name = names[status] ?? "active";
  const isLive = status === KeyState.ACTIVE || status === KeyState.PAUSED;
  const leftMs = expiresAt ? toDate(expiresAt).getTime() - Date.now() : Number.POSITIVE_INFINITY;
  return (
    <span class="tags">
      <Tag {...(tones[status] && { tone: tones[status] })}>{words.keys.statuses[name]}</Tag>
      {isLive && !lastUsedAt && <Tag>{words.keys.neverUsed}</Tag>}
      {isLive && expiresAt && leftMs < soonMs && (
        <Tag tone="warn">{words.keys.expires(relative(expiresAt))}</Tag>
      )}
    </span>
  );
}

/** Whether the person may change a key. */
export function mayManage({ managedBy }: Pick<Key, "managedBy">): boolean {
  const own = session.value.person?.personId ?? "";
  return can("owner") || (can("member") && managedBy?.kind.value === own);
}

/** A member resumes what a member paused. */
export function mayResume(key: Key): boolean {
  return can("owner") || (mayManage(key) && !key.pausedByOwner);
}
