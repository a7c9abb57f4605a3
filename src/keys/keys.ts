// API keys: who calls, and what the operator sets for each key.

import { timingSafeEqual } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import {
  AuthenticateResponseSchema,
  CreateKeyResponseSchema,
  GetKeyResponseSchema,
  type Key,
  type KeysService,
  ListKeysResponseSchema,
  RevokeKeyResponseSchema,
  RevokeSecretResponseSchema,
  RotateKeyResponseSchema,
  UpdateKeyResponseSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import { Refusal } from "../errors.ts";
import type { Log } from "../log.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { KeyHints } from "../redis/key-hints.ts";
import type { Authenticate, Caller, CallOf, Implementation } from "../service.ts";
import { KeyCache } from "./cache.ts";
import { bearerToken } from "./credential.ts";
import { createFeed } from "./feed.ts";
import { createLookup } from "./lookup.ts";
import { checkControls, checkFamily, checkId, checkOverlap, checkPage, checkUpdate, type ResolveModel } from "./rules.ts";
import { digestSecret, isSecret, type KeyFamily, mintSecret, showSecret } from "./secret.ts";
import { createKeyStore, type FoundSecret } from "./store.ts";

export type Keys = {
  /** Not guarded: for callers already known. */
  service: Implementation<typeof KeysService, CallOf>;
  authenticate: Authenticate;
  /** Calls `listener` for each change of a key, on every node, within a second of its commit. */
  onChanged(listener: (change: { keyId: string }) => void): () => void;
  /** False once a key or this secret of it is revoked: its running streams have to end. Expiry ends none. Reads the database. */
  isLive(keyId: string, secretId: string): Promise<boolean>;
  /** Begins to follow the changes that other nodes make. */
  start(): void;
  stop(): Promise<void>;
};

// About 1.5 KB each, and 100 bytes each of those that do not exist (Node 24, 30,000 entries).
const cachedKeysMax = 30_000;
const cachedAbsentMax = 30_000;
const liveAttemptsMax = 240;
const liveRetryMs = 250;

export function createKeys(parts: {
  postgres: Postgres;
  /** Empty: no token is the operator's. */
  adminToken: string;
  resolveModel: ResolveModel;
  log: Log;
  /** Makes other nodes read the feed at once. Without it they read it within half a second. */
  hints?: KeyHints | undefined;
}): Keys {
  const { adminToken, resolveModel, log, hints } = parts;
  const store = createKeyStore(parts.postgres);
  const cache = new KeyCache({ foundMax: cachedKeysMax, absentMax: cachedAbsentMax });
  const lookup = createLookup(store.findSecrets, cache);
  const isAdmin = adminCheck(adminToken);
  const listeners = new Set<(change: { keyId: string }) => void>();
  const liveness = new Map<string, Promise<Set<string>>>();

  function change(keyId: string): void {
    cache.change(keyId);
    liveness.delete(keyId);
    for (const listener of listeners) listener({ keyId });
  }
  /** A revoked key's streams end although the database is away at that moment: the question is repeated for a minute. */
  async function liveSecrets(keyId: string): Promise<Set<string>> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await store.liveSecrets(keyId);
      } catch (error) {
        if (!(error instanceof Refusal) || attempt === liveAttemptsMax) throw error;
        await delay(liveRetryMs, undefined, { ref: false });
      }
    }
  }

  const feed = createFeed({ read: store.readChanges, clean: store.removeOldChanges, onChange: change, log });
  let stopHints: (() => void) | undefined;

  /** This node knows at once, the others within half a second. */
  function published(key: Key): Key {
    change(key.keyId);
    hints?.send();
    return key;
  }

  async function authenticate(requestHeader: Headers): Promise<Caller> {
    const token = bearerToken(requestHeader);
    if (!isSecret(token)) {
      if (isAdmin(token)) return admin;
      throw new Refusal("invalid_key");
    }
    const digest = digestSecret(token);
    const known = cache.look(digest);
    if (!known) return callerOf(await lookup.find(digest), false);
    // Beside the call; a failure shows when the entry is too old to be used.
    if (known.stale) lookup.refresh(digest);
    return callerOf(known.found, known.expired);
  }

  const service: Implementation<typeof KeysService, CallOf> = {
    async createKey(ask) {
      const family = checkFamily(ask.family);
      const controls = checkControls(ask, resolveModel);
      const { secret, stored } = newSecret(family);
      const key = await store.createKey(checkId("account_id", ask.accountId), family, controls, stored);
      return create(CreateKeyResponseSchema, { key, secret });
    },
    async getKey(ask) {
      return create(GetKeyResponseSchema, { key: await store.readKey(checkId("key_id", ask.keyId)) });
    },
    async listKeys(ask) {
      const { accountId, afterKeyId, countMax } = checkPage(ask);
      // One more than asked for tells whether a further page exists.
      const found = await store.listKeys(accountId, afterKeyId, countMax + 1);
      const keys = found.slice(0, countMax);
      const nextPageToken = found.length > countMax ? (keys.at(-1)?.keyId ?? "") : "";
      return create(ListKeysResponseSchema, { keys, nextPageToken });
    },
    async updateKey(ask) {
      const { keyId, controls } = checkUpdate(ask, resolveModel);
      return create(UpdateKeyResponseSchema, { key: published(await store.updateKey(keyId, controls)) });
    },
    async rotateKey(ask) {
      const keyId = checkId("key_id", ask.keyId);
      const overlapMs = checkOverlap(ask.overlap);
      const { family } = await store.readKey(keyId);
      const { secret, stored } = newSecret(checkFamily(family));
      const key = published(await store.rotateKey(keyId, stored, overlapMs));
      return create(RotateKeyResponseSchema, { key, secret });
    },
    async revokeKey(ask) {
      const key = published(await store.revokeKey(checkId("key_id", ask.keyId)));
      return create(RevokeKeyResponseSchema, { key });
    },
    async revokeSecret(ask) {
      const [keyId, secretId] = [checkId("key_id", ask.keyId), checkId("secret_id", ask.secretId)];
      const key = published(await store.revokeSecret(keyId, secretId));
      return create(RevokeSecretResponseSchema, { key });
    },
    async authenticate(ask, { caller }) {
      if (caller.kind === "admin") return create(AuthenticateResponseSchema, { admin: true });
      const { key, secret } = caller;
      if (!ask.monthFigures) return create(AuthenticateResponseSchema, { key, secret });
      const current = await store.readKey(key.keyId);
      current.secrets = [];
      return create(AuthenticateResponseSchema, { key: current, secret });
    },
  };

  return {
    service,
    authenticate,
    onChanged(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    async isLive(keyId, secretId) {
      // Asked for each of a key's streams after a change: one question serves them all.
      let live = liveness.get(keyId);
      if (!live) {
        live = liveSecrets(keyId).finally(() => {
          if (liveness.get(keyId) === live) liveness.delete(keyId);
        });
        liveness.set(keyId, live);
      }
      return (await live).has(secretId);
    },
    start() {
      stopHints = hints?.listen(feed.hurry);
      feed.start();
    },
    async stop() {
      stopHints?.();
      await feed.stop();
    },
  };
}

const admin: Caller = { kind: "admin" };

/** Throws `invalid_key` for unknown and expired secrets alike, `revoked_key`. */
function callerOf(found: FoundSecret | undefined, expired: boolean): Caller {
  if (found?.revoked) throw new Refusal("revoked_key");
  if (!found || expired || (found.expiresInMs !== undefined && found.expiresInMs <= 0)) throw new Refusal("invalid_key");
  return found.caller;
}

/** Compares digests, in a time that tells nothing about the token. */
function adminCheck(adminToken: string): (token: string) => boolean {
  if (adminToken === "") return () => false;
  const expected = Buffer.from(digestSecret(adminToken), "latin1");
  return (token) => timingSafeEqual(Buffer.from(digestSecret(token), "latin1"), expected);
}

function newSecret(family: KeyFamily) {
  const secret = mintSecret(family);
  return { secret, stored: { digest: digestSecret(secret), shown: showSecret(secret) } };
}
