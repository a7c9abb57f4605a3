// Tags in addresses and fields, as `team=a,env=ci`.

import { BillingService } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { useCall } from "../api.ts";
import { account } from "../session.ts";

const lookedAt = 100;

/** The tags of the newest requests, such as `team=a`, in their order. Those of none: empty. */
export function useKnownTags(isWanted: boolean): string[] {
  const { accountId } = account.value;
  const request = { accountId, pageSize: lookedAt };
  const { data } = useCall(BillingService.method.listCharges, isWanted ? request : undefined);
  const all = (data?.charges ?? []).flatMap(({ tags }) => Object.entries(tags));
  return [...new Set(all.map((tag) => tag.join("=")))].sort();
}

/** Values by key. What is no tag has an empty value, which the service refuses with its reason. */
export function parseTags(text: string): Record<string, string> {
  const parts = [...text.matchAll(/([^,=]+)=?([^,]*)/g)];
  return Object.fromEntries(parts.map(([, key = "", value = ""]) => [key.trim(), value.trim()]));
}

/** Tags as people read and write them, in the order of their keys. */
export function tagsText(tags: Readonly<Record<string, string>>): string {
  return Object.entries(tags)
    .map((tag) => tag.join("="))
    .sort()
    .join(", ");
}
