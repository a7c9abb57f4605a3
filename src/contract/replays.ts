// Calls that create something, sent twice. With an idempotency key the second one gets what the
// first one made, its secret included, for a day.
//
// The secret is kept sealed under a key that is derived from the idempotency key itself, of which
// only a digest is stored: the database alone opens nothing. An idempotency key that could be
// guessed seals nothing, and a repeat then returns no secret.

import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from "node:crypto";
import { clone, type DescMethod, type Message, toBinary } from "@bufbuild/protobuf";
import * as sql from "../../gen/sql/contract.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { Runner } from "../postgres/statement.ts";
import { actorOf } from "./callers.ts";
import type { AuthenticatedCall } from "./contract.ts";

export { removeReplays } from "../../gen/sql/contract.ts";

/** What a call creates. `secret`: that its answer shows; empty: none. */
export type Creation = { readonly id: string; readonly secret: string };

const keyLengthMax = 255;
/** A UUID has 36 characters, and 22 of an alphabet of 64 hold as much. */
const sealedLengthMin = 22;
const header = "idempotency-key";

/**
 * Creates something in the transaction `tx`, unless an earlier call with the same idempotency key
 * has: then `create` is not called. Returns what was made, now or then; the secret of then is empty
 * if it was not kept. `nameIt` is for what has another id than `made`, such as the request for an
 * approval. Throws `invalid_request`, and `idempotency_key_reused` for another request.
 */
export type CreateOnce = (
  tx: Runner,
  made: Creation,
  create: (nameIt: (id: string) => Promise<void>) => Promise<unknown>,
) => Promise<Creation>;

/**
 * For one call of a method that creates something. Its idempotency key is the field of the request,
 * or the header `Idempotency-Key`.
 */
export function onceFor(
  desc: DescMethod,
  request: Repeatable,
  call: AuthenticatedCall,
): CreateOnce {
  return async (tx, made, create) => {
    const key = keyOf(request, call);
    const earlier = key === "" ? undefined : await noteOrFind(tx, key, made);
    if (earlier) return earlier;
    let { id } = made;
    await create(async (named) => {
      id = named;
      if (key !== "") await tx.run(sql.nameReplay, { ...replayOf(key), madeId: id });
    });
    return { ...made, id };
  };

  function replayOf(key: string) {
    return { accountId: call.accountId, actor: actorOf(call.caller), keySha256: digest(key) };
  }

  /** Notes what is made. Returns what an earlier call has made instead. */
  async function noteOrFind(tx: Runner, key: string, made: Creation) {
    const id = replayOf(key);
    const seal = new Seal(key);
    const requestSha256 = digestRequest(desc, request);
    const inserted = await tx.run(sql.insertReplay, {
      ...id,
      method: desc.name,
      requestSha256,
      madeId: made.id,
      sealed: made.secret === "" ? null : seal.close(made.secret),
    });
    if (inserted) return undefined;
    const found = await tx.run(sql.findReplay, id);
    // It ended between the two statements.
    if (!found) throw new ApiError("gateway_unavailable", { retryAfterMs: 1000 });
    if (found.method !== desc.name || !found.requestSha256.equals(requestSha256))
      throw new ApiError("idempotency_key_reused", { field: "idempotency_key" });
    return { id: found.madeId, secret: found.sealed === null ? "" : seal.open(found.sealed) };
  }
}

/** A request with an idempotency key. Empty: none. */
type Repeatable = Message & { idempotencyKey: string };

function keyOf(
  { idempotencyKey: field }: Repeatable,
  { requestHeader }: AuthenticatedCall,
): string {
  const given = requestHeader.get(header) ?? "";
  if (given !== "" && field !== "" && given !== field)
    throw invalidField("idempotency_key", "differs from the header Idempotency-Key");
  const key = field || given;
  // The field has this limit in the protos. The header has no other.
  if ([...key].length > keyLengthMax || !key.isWellFormed())
    throw invalidField("idempotency_key", `has more than ${keyLengthMax} characters`);
  return key;
}

function digestRequest({ input }: DescMethod, request: Repeatable): Buffer {
  const bare = Object.assign(clone(input, request), { idempotencyKey: "" });
  return digest(toBinary(input, bare));
}

function digest(of: string | Uint8Array): Buffer {
  return createHash("sha256").update(of).digest();
}

const cipher = "aes-256-gcm";
const nonceBytes = 12;
const tagBytes = 16;

class Seal {
  readonly #key: Buffer | undefined;

  constructor(idempotencyKey: string) {
    if (idempotencyKey.length < sealedLengthMin) return;
    this.#key = Buffer.from(hkdfSync("sha256", idempotencyKey, "", "replayed secret", 32));
  }

  /** Null: the key could be guessed. */
  close(secret: string): Buffer | null {
    if (!this.#key) return null;
    const nonce = randomBytes(nonceBytes);
    const sealing = createCipheriv(cipher, this.#key, nonce);
    const text = Buffer.concat([sealing.update(secret, "utf8"), sealing.final()]);
    return Buffer.concat([nonce, text, sealing.getAuthTag()]);
  }

  open(sealed: Buffer): string {
    if (!this.#key) return "";
    const opening = createDecipheriv(cipher, this.#key, sealed.subarray(0, nonceBytes));
    opening.setAuthTag(sealed.subarray(-tagBytes));
    const text = opening.update(sealed.subarray(nonceBytes, -tagBytes));
    return Buffer.concat([text, opening.final()]).toString("utf8");
  }
}
