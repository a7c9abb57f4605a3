// The key of the page that tries a model: an ordinary one with a small budget. Its secret is in the
// memory of the page, and the key is revoked when somebody leaves it.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Family } from "../../../../gen/gateway/common/v1/family_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { call, invalidate } from "../api.ts";
import { gatewayNow } from "../connect.ts";
import { account, session } from "../session.ts";
import { tryWords as text } from "../words-try.ts";

/** One credit. */
export const tryBudgetMicro = 1_000_000n;
/** Alerts leave out a key of at most an hour. A minute less: clocks of machines differ. */
const lifeMs = 3_540_000;
/** A key with less than this ahead of it is replaced before the next message. */
const leastLeftMs = 60_000;

type TryKey = {
  readonly keyId: string;
  readonly secret: string;
  readonly family: Family;
  readonly personId: string;
  readonly endsAt: Date;
  /** Of its budget, as far as receipts have come. */
  readonly spentMicro: bigint;
  /** True: something was sent with it that may have been charged. */
  readonly isUsed: boolean;
};

export type TryKeys = {
  /** Undefined: none was made so far, or it was ended. */
  readonly known: TryKey | undefined;
  /** The key that pays from a pool; makes one where there is none. Throws a CallError. */
  take(family: Family): Promise<TryKey>;
  /** It paid for something, or may have: how much comes later. */
  use(keyId: string): void;
  spend(keyId: string, micro: bigint): void;
  /** Revokes the key: the next message makes another one. */
  end(): void;
};

export function useTryKeys(): TryKeys {
  const [known, setKnown] = useState<TryKey>();
  const latest = useRef<TryKey>(undefined);
  const isGone = useRef(false);
  const keep = (key: TryKey | undefined) => {
    latest.current = key;
    setKnown(key);
  };
  const end = () => {
    if (latest.current) revoke(latest.current.keyId);
    keep(undefined);
  };
  useEffect(() => {
    isGone.current = false;
    addEventListener("pagehide", end);
    return () => {
      removeEventListener("pagehide", end);
      isGone.current = true;
      if (latest.current) revoke(latest.current.keyId);
    };
  }, []);
  return {
    known,
    end,
    async take(family) {
      const kept = latest.current;
      const isGood =
        kept?.family === family &&
        kept.personId === personOnScreen() &&
        kept.endsAt.getTime() - gatewayNow().getTime() > leastLeftMs;
      if (isGood) return kept;
      end();
      const key = await create(family);
      // Somebody left while it was made.
      if (isGone.current) revoke(key.keyId);
      else keep(key);
      return key;
    },
    use(keyId) {
      const { current } = latest;
      if (current?.keyId === keyId) keep({ ...current, isUsed: true });
    },
    spend(keyId, micro) {
      const { current } = latest;
      if (current?.keyId === keyId) keep({ ...current, spentMicro: current.spentMicro + micro });
    },
  };
}

async function create(family: Family): Promise<TryKey> {
  const endsAt = new Date(gatewayNow().getTime() + lifeMs);
  const { key, secret } = await call(KeysService.method.createKey, {
    accountId: account.value.accountId,
    family,
    settings: {
      name: text.keyName,
      totalCapMicrocredits: tryBudgetMicro,
      expiresAt: timestampFromDate(endsAt),
    },
  });
  invalidate(KeysService.method.listKeys);
  // After the call: it may have asked for a sign-in.
  const personId = personOnScreen();
  return {
    keyId: key?.keyId ?? "",
    secret,
    family,
    personId,
    endsAt,
    spentMicro: 0n,
    isUsed: false,
  };
}

function personOnScreen(): string {
  return session.value.person?.personId ?? "";
}

/** By a call that outlives the page. Where it fails, the key ends by itself. */
function revoke(keyId: string): void {
  const { parent, name } = KeysService.method.revokeKey;
  fetch(`/${parent.typeName}/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json", "connect-protocol-version": "1" },
    body: JSON.stringify({ keyId }),
    keepalive: true,
  }).then(
    () => invalidate(KeysService.method.listKeys),
    () => undefined,
  );
}
