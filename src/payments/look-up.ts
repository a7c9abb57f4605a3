// One transaction, as the node of its chain knows it now: for a buyer who says that he paid, and of
// whom nothing is found.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type LookedOutputSchema,
  type LookUpPaymentRequest,
  type LookUpPaymentResponse,
  LookUpPaymentResponseSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Chain } from "./chain.ts";
import { coins } from "./coins.ts";
import { depositStateOf } from "./messages.ts";
import type { Parts } from "./parts.ts";

const lookMsMax = 10_000;
const hashForm = /^(0x)?[0-9a-f]{64}$/;

export async function lookUpPayment(
  parts: Parts,
  { network, tx }: LookUpPaymentRequest,
  { signal, note }: AuthenticatedCall,
): Promise<LookUpPaymentResponse> {
  const hash = tx.trim().toLowerCase();
  if (!hashForm.test(hash)) throw invalidField("tx", "is 64 hexadecimal digits");
  const read = parts.chains();
  const found = read.find(({ chain }) => chain.name === network);
  if (!found)
    throw invalidField(
      "network",
      "is not read here",
      read.map(({ chain }) => chain.name),
    );
  note?.({ network, tx: hash });
  const { processor, chain } = found;
  const transaction = await ask(chain, hash, signal);
  if (!transaction) return create(LookUpPaymentResponseSchema);
  const { outputs, confirmations, isFailed } = transaction;
  const addresses = [...new Set(outputs.map(({ address }) => address))];
  const owners = await parts.store.run(sql.ownAddresses, { addresses });
  const accountOf = new Map(owners.map(({ address, accountId }) => [address, accountId]));
  const hashes = [hash, `0x${hash.replace(/^0x/, "")}`];
  const known = await parts.store.run(sql.listOfTransaction, { processor, hashes });
  const externalIds = known.map(({ externalId }) => externalId);
  // What became of it may be old: its order is looked at again.
  if (externalIds.length > 0) await parts.store.run(sql.hookChanged, { processor, externalIds });
  const ours = outputs.flatMap((output): MessageInitShape<typeof LookedOutputSchema>[] => {
    const { address, asset, decimals, atoms } = output;
    const accountId = accountOf.get(address);
    if (accountId === undefined) return [];
    const payment = known.find((one) => one.address === address && one.asset === asset);
    return [
      {
        ...{ address, accountId, asset, amount: coins(atoms, decimals) },
        ...(payment && {
          depositId: payment.externalId,
          orderId: payment.orderId ?? "",
          state: depositStateOf(payment.state),
        }),
      },
    ];
  });
  return create(LookUpPaymentResponseSchema, {
    isKnown: true,
    isFailed,
    ...(confirmations !== undefined && { confirmations }),
    outputs: ours,
    foreignOutputs: outputs.length - ours.length,
  });
}

async function ask(chain: Chain, hash: string, signal: AbortSignal) {
  try {
    return await chain.lookUp(hash, AbortSignal.any([signal, AbortSignal.timeout(lookMsMax)]));
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError("gateway_unavailable", {
      message: `The node of ${chain.name} does not answer. Try again shortly.`,
      retryAfterMs: 5_000,
      cause: error,
    });
  }
}
