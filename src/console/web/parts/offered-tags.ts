// Tags that are offered while somebody types them: the service finds them by their beginning, a few
// at a time.

import { useEffect, useState } from "preact/hooks";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { useCall } from "../api.ts";
import { account } from "../session.ts";

const offered = 20;
const pauseMs = 200;
const keyForm = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/;

/**
 * What the text may go on as, such as `team=a`: of its last tag, the names that the keys of the
 * account have, and after its equal sign the values. `text` undefined: nobody types.
 */
export function useOfferedTags(text: string | undefined): string[] {
  const [asked, setAsked] = useState<string>();
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text), pauseMs);
    return () => clearTimeout(timer);
  }, [text]);
  const { accountId } = account.value;
  const isTyped = asked !== undefined;
  const last = (asked ?? "").split(",").at(-1) ?? "";
  const before = (asked ?? "").slice(0, (asked ?? "").length - last.length);
  const [tag = "", value] = last.trim().split(/=(.*)/s);
  const isValue = isTyped && value !== undefined && keyForm.test(tag);
  const names = useCall(
    KeysService.method.listKeys,
    isTyped && !isValue
      ? { accountId, onlyIds: true, pageSize: 1, includeTagKeys: true }
      : undefined,
  );
  const values = useCall(
    KeysService.method.listKeys,
    isValue
      ? { accountId, groupByTag: tag, valuePrefix: value.trimStart(), pageSize: offered }
      : undefined,
  );
  if (isValue)
    return (values.data?.groups ?? [])
      .filter((group) => group.value !== "")
      .map((group) => `${before}${tag}=${group.value}`);
  return (names.data?.tagKeys ?? [])
    .filter((name) => name.startsWith(tag))
    .slice(0, offered)
    .map((name) => `${before}${name}=`);
}
