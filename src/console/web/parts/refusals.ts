// Why requests were refused, and what to do about it.

import { Reason } from "../../../../gen/gateway/common/v1/error_pb.ts";
import { words } from "../words.ts";

export type Refusal = { readonly label: string; readonly advice: string };

export function refusalOf(value: Reason): Refusal {
  const reason = Object.entries(Reason).find(([, one]) => one === value)?.[0] ?? "";
  const { other, ...known } = words.refusals;
  const found = Object.entries(known).find(([name]) => name === reason)?.[1];
  return found ?? { label: other.label(reason), advice: other.advice };
}
