// What the operator does with keys. Each function is a method of the service: the request's rules, the database, the word to all nodes.

import { create } from "@bufbuild/protobuf";
import {
  type CreateKeyRequest,
  type CreateKeyResponse,
  CreateKeyResponseSchema,
  type GetKeyRequest,
  type GetKeyResponse,
  GetKeyResponseSchema,
  type Key,
  type ListKeysRequest,
  type ListKeysResponse,
  ListKeysResponseSchema,
  type RevokeKeyRequest,
  type RevokeKeyResponse,
  RevokeKeyResponseSchema,
  type RevokeSecretRequest,
  type RevokeSecretResponse,
  RevokeSecretResponseSchema,
  type RotateKeyRequest,
  type RotateKeyResponse,
  RotateKeyResponseSchema,
  type UpdateKeyRequest,
  type UpdateKeyResponse,
  UpdateKeyResponseSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Changes } from "./changes.ts";
import { checkControls, checkFamily, checkId, checkOverlap, checkPage, checkUpdate, type ResolveModel } from "./rules.ts";
import { digestSecret, type KeyFamily, mintSecret, showSecret } from "./secret.ts";
import type { KeyStore } from "./store.ts";

type Parts = { store: KeyStore; changes: Changes; resolveModel: ResolveModel };

export async function createKey({ store, resolveModel }: Parts, ask: CreateKeyRequest): Promise<CreateKeyResponse> {
  const family = checkFamily(ask.family);
  const controls = checkControls(ask, resolveModel);
  const { secret, stored } = newSecret(family);
  const key = await store.createKey(checkId("account_id", ask.accountId), family, controls, stored);
  return create(CreateKeyResponseSchema, { key, secret });
}

export async function getKey({ store }: Parts, ask: GetKeyRequest): Promise<GetKeyResponse> {
  return create(GetKeyResponseSchema, { key: await store.readKey(checkId("key_id", ask.keyId)) });
}

export async function listKeys({ store }: Parts, ask: ListKeysRequest): Promise<ListKeysResponse> {
  const { accountId, afterKeyId, size } = checkPage(ask);
  // One more than asked for tells whether a further page exists.
  const found = await store.listKeys(accountId, afterKeyId, size + 1);
  const keys = found.slice(0, size);
  const nextPageToken = found.length > size ? (keys.at(-1)?.keyId ?? "") : "";
  return create(ListKeysResponseSchema, { keys, nextPageToken });
}

export async function updateKey(parts: Parts, ask: UpdateKeyRequest): Promise<UpdateKeyResponse> {
  const { keyId, controls } = checkUpdate(ask, parts.resolveModel);
  const key = published(parts, await parts.store.updateKey(keyId, controls));
  return create(UpdateKeyResponseSchema, { key });
}

export async function rotateKey(parts: Parts, ask: RotateKeyRequest): Promise<RotateKeyResponse> {
  const keyId = checkId("key_id", ask.keyId);
  const overlapMs = checkOverlap(ask.overlap);
  const { family } = await parts.store.readKey(keyId);
  const { secret, stored } = newSecret(checkFamily(family));
  const key = published(parts, await parts.store.rotateKey(keyId, stored, overlapMs));
  return create(RotateKeyResponseSchema, { key, secret });
}

export async function revokeKey(parts: Parts, ask: RevokeKeyRequest): Promise<RevokeKeyResponse> {
  const key = published(parts, await parts.store.revokeKey(checkId("key_id", ask.keyId)));
  return create(RevokeKeyResponseSchema, { key });
}

export async function revokeSecret(parts: Parts, ask: RevokeSecretRequest): Promise<RevokeSecretResponse> {
  const [keyId, secretId] = [checkId("key_id", ask.keyId), checkId("secret_id", ask.secretId)];
  const key = published(parts, await parts.store.revokeSecret(keyId, secretId));
  return create(RevokeSecretResponseSchema, { key });
}

function published({ changes }: Parts, key: Key): Key {
  changes.publish(key.keyId);
  return key;
}

function newSecret(family: KeyFamily) {
  const secret = mintSecret(family);
  return { secret, stored: { digest: digestSecret(secret), shown: showSecret(secret) } };
}
