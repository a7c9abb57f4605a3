// API keys: who calls, and what the operator sets for each key.

import { create } from "@bufbuild/protobuf";
import {
  type AuthenticateRequest,
  type AuthenticateResponse,
  AuthenticateResponseSchema,
  type KeysService,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Log } from "../base/log.ts";
import type {
  Authenticate,
  AuthenticatedCall,
  Caller,
  Implementation,
} from "../contract/contract.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Redis } from "../redis/redis.ts";
import type { ResolveModel } from "./administration.ts";
import {
  createKey,
  getKey,
  listKeys,
  revokeKey,
  revokeSecret,
  rotateKey,
  updateKey,
} from "./administration.ts";
import { createAuthentication } from "./authenticate.ts";
import { createChanges, type Listener } from "./change-feed.ts";
import { RevocationCheck } from "./revocation.ts";
import { createKeyStore, type KeyStore } from "./store.ts";

export type Keys = {
  /** Not guarded: for callers already known. */
  service: Implementation<typeof KeysService, AuthenticatedCall>;
  authenticate: Authenticate;
  /** Calls `listener` for each change of a key, on every node, within a second of its commit. */
  onChanged(listener: Listener): () => void;
  /**
   * False once a key or this secret of it is revoked: its running streams have to end. Expiry ends
   * none. Reads the database.
   */
  isActive(keyId: string, secretId: string): Promise<boolean>;
  /** Begins to follow the changes that other nodes make. */
  start(): void;
  stop(): Promise<void>;
};

export function createKeys(parts: {
  postgres: Postgres;
  /** Empty: no token is the operator's. */
  adminToken: string;
  resolveModel: ResolveModel;
  log: Log;
  /** Makes other nodes read the feed at once. Without it they read it within half a second. */
  redis?: Redis | undefined;
}): Keys {
  const { adminToken, resolveModel, log, redis } = parts;
  const store = createKeyStore(parts.postgres);
  const { authenticate, forget } = createAuthentication(adminToken, store.findSecrets);
  const liveness = new RevocationCheck(store.liveSecrets);
  const changes = createChanges({ store, redis, log });
  // Before any listener, which may ask about the key at once.
  changes.onChanged(({ keyId }) => {
    forget(keyId);
    liveness.forget(keyId);
  });

  const all = { store, changes, resolveModel };
  return {
    service: {
      createKey: (ask) => createKey(all, ask),
      getKey: (ask) => getKey(all, ask),
      listKeys: (ask) => listKeys(all, ask),
      updateKey: (ask) => updateKey(all, ask),
      rotateKey: (ask) => rotateKey(all, ask),
      revokeKey: (ask) => revokeKey(all, ask),
      revokeSecret: (ask) => revokeSecret(all, ask),
      authenticate: (ask, { caller }) => describeCaller(store, ask, caller),
    },
    authenticate,
    onChanged: changes.onChanged,
    isActive: (keyId, secretId) => liveness.isLive(keyId, secretId),
    start: changes.start,
    stop: changes.stop,
  };
}

async function describeCaller(
  store: KeyStore,
  ask: AuthenticateRequest,
  caller: Caller,
): Promise<AuthenticateResponse> {
  if (caller.kind === "admin") return create(AuthenticateResponseSchema, { admin: true });
  const { key, secret } = caller;
  return create(AuthenticateResponseSchema, {
    key: ask.monthUsage ? await store.readFigures(key.keyId) : key,
    secret,
  });
}
