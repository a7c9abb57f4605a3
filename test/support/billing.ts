// The services of billing behind the interceptor, over a fresh ledger.

import { create } from "@bufbuild/protobuf";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError, type ErrorReason } from "../../src/base/errors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createBilling } from "../../src/billing/billing.ts";
import {
  type Authenticate,
  type Call,
  environmentToken,
  localClient,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { freshLedger, log, price } from "./ledger.ts";

const admin = "the-admin-token";

// The credential of a key is its id and the id of its account, so that no test has to create a key.
// A third part makes it an account reader.
const authenticate: Authenticate = async (headers) => {
  const credential = headers.get("authorization")?.slice("Bearer ".length) ?? "";
  if (credential === admin) return environmentToken;
  const [keyId = "", accountId = "", reader] = credential.split("/");
  return {
    kind: "key",
    key: create(KeySchema, { keyId, accountId, family: 1, accountReader: reader !== undefined }),
    secret: create(SecretSchema),
  };
};

function callAs(credential: string): Call {
  return {
    signal: new AbortController().signal,
    requestHeader: new Headers({ authorization: `Bearer ${credential}` }),
  };
}

export async function freshBilling() {
  const ledger = await freshLedger({ ticks: true });
  const billing = createBilling({
    postgres: ledger.postgres,
    priceOf: (model) => (model === "model-test" ? price : undefined),
    log,
  });
  await billing.start();
  const service = intercept(serviceTypes.billing, billing.service, { authenticate, log });
  return {
    ...ledger,
    billing: service,
    /** The local binding to the same service. */
    core: { billing: localClient(serviceTypes.billing, service) },
    admin: callAs(admin),
    adminHeaders: { authorization: `Bearer ${admin}` },
    keyCall: ({ keyId, accountId }: Payer) => callAs(`${keyId}/${accountId}`),
    readerCall: ({ keyId, accountId }: Payer) => callAs(`${keyId}/${accountId}/reader`),
    async close() {
      await billing.stop();
      await ledger.close();
    },
  };
}

export function newNonce(): string {
  return newRequestId().slice("req_".length);
}

/** The reason and the field of the `ApiError` that `work` fails with. Throws when it succeeds. */
export async function errorOf(
  work: Promise<unknown>,
): Promise<{ reason: ErrorReason; field: string | undefined }> {
  try {
    await work;
  } catch (error) {
    if (error instanceof ApiError) return { reason: error.reason, field: error.facts.field };
    throw error;
  }
  throw new Error("the call did not fail");
}
