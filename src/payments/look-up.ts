// One transaction, as the node of its chain or its processor knows it now: for a buyer who says
// that he paid, and of whom nothing is found.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type LookedOutputSchema,
  type LookUpPaymentRequest,
  type LookUpPaymentResponse,
  LookUpPaymentResponseSchema,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Chain } from "./chain.ts";
import { coins } from "./coins.ts";
import { depositStateOf } from "./messages.ts";
import type { Parts } from "./parts.ts";
import type { Processor } from "./processor.ts";

const lookMsMax = 10_000;
/** Those under way: a node has to read its chain for orders, too. */
const atOnceMax = { ofCaller: 2, ofProcess: 8 } as const;
const hashForm = /^(0x)?[0-9a-f]{64}$/;
const idForm = /^[0-9a-z_:-]{1,100}$/i;

export async function lookUpPayment(
  parts: Parts,
  request: LookUpPaymentRequest,
  call: AuthenticatedCall,
): Promise<LookUpPaymentResponse> {
  const tx = request.tx.trim();
  const look =
    request.processor === ""
      ? onChain(parts, request.network, tx, call)
      : atProcessor(parts, request, tx, call);
  const leave = enter(parts.lookingUp, actorOf(call.caller));
  try {
    return await look(AbortSignal.any([call.signal, AbortSignal.timeout(lookMsMax)]));
  } finally {
    leave();
  }
}

/** Counts a look-up. Returns the function that ends it. Throws `rate_limited`. */
function enter(running: Map<string, number>, actor: string): () => void {
  const own = running.get(actor) ?? 0;
  const all = [...running.values()].reduce((sum, one) => sum + one, 0);
  const isOwn = own >= atOnceMax.ofCaller;
  if (isOwn || all >= atOnceMax.ofProcess) {
    const most = isOwn ? atOnceMax.ofCaller : atOnceMax.ofProcess;
    throw new ApiError("rate_limited", {
      message: isOwn
        ? `${most} of your look-ups are under way. Wait until one of them ends.`
        : `${most} look-ups are under way here. Try again shortly.`,
      limit: { name: "look_ups_at_once", limit: BigInt(most), used: BigInt(isOwn ? own : all) },
      retryAfterMs: 1_000,
    });
  }
  running.set(actor, own + 1);
  return () => {
    const left = (running.get(actor) ?? 1) - 1;
    if (left > 0) running.set(actor, left);
    else running.delete(actor);
  };
}

/** What was checked, and is still to be asked. */
type Look = (signal: AbortSignal) => Promise<LookUpPaymentResponse>;

/** Throws `invalid_request`. */
function onChain(parts: Parts, network: string, tx: string, call: AuthenticatedCall): Look {
  const hash = tx.toLowerCase();
  if (!hashForm.test(hash)) throw invalidField("tx", "is 64 hexadecimal digits");
  const read = parts.chains();
  const names = read.map(({ chain }) => chain.name);
  const found = read.find(({ chain }) => chain.name === network);
  if (!found) throw invalidField("network", "is not read here", names);
  call.note?.({ network, tx: hash });
  return (signal) => lookOnChain(parts, found, hash, { signal, left: call.signal });
}

type Signals = {
  readonly signal: AbortSignal;
  /** That of the call alone. */
  readonly left: AbortSignal;
};

async function lookOnChain(
  parts: Parts,
  { processor, chain }: { readonly processor: string; readonly chain: Chain },
  hash: string,
  { signal, left }: Signals,
): Promise<LookUpPaymentResponse> {
  const transaction = await answered(chain.lookUp(hash, signal), `The node of ${chain.name}`, left);
  if (!transaction) return create(LookUpPaymentResponseSchema);
  const { outputs, confirmations, isFailed, maySendMore } = transaction;
  const addresses = [...new Set(outputs.map(({ address }) => address))];
  const owners = await parts.store.run(sql.ownAddresses, { addresses });
  const accountOf = new Map(owners.map(({ address, accountId }) => [address, accountId]));
  const hashes = [hash, `0x${hash.replace(/^0x/, "")}`];
  const known = await parts.store.run(sql.listOfTransaction, { processor, hashes });
  await lookAgain(
    parts,
    known.flatMap(({ orderId }) => orderId ?? []),
  );
  const ours = outputs.flatMap((output): Output[] => {
    const { address, asset, decimals, atoms } = output;
    const accountId = accountOf.get(address);
    if (accountId === undefined) return [];
    const payment = known.find((one) => one.address === address && one.asset === asset);
    return [
      {
        ...{ address, accountId, asset, coins: coins(atoms, decimals) },
        ...(payment && {
          depositId: payment.externalId,
          orderId: payment.orderId ?? "",
          state: depositStateOf(payment.state),
        }),
      },
    ];
  });
  return create(LookUpPaymentResponseSchema, {
    ...{ known: true, failed: isFailed, maySendMore, outputs: ours },
    ...(confirmations !== undefined && { confirmations }),
    foreignOutputs: outputs.length - ours.length,
  });
}

type Output = MessageInitShape<typeof LookedOutputSchema>;

/** Throws `invalid_request`. */
function atProcessor(
  parts: Parts,
  { processor: name, network }: LookUpPaymentRequest,
  tx: string,
  call: AuthenticatedCall,
): Look {
  if (network !== "") throw invalidField("network", "must be empty with a processor");
  if (!idForm.test(tx)) throw invalidField("tx", "is a hash, or the id of a payment");
  const asked = [...parts.processors().values()].flatMap((one) =>
    one.findPayments ? { name: one.name, find: one.findPayments } : [],
  );
  const found = asked.find((one) => one.name === name);
  if (!found) {
    const names = asked.map((one) => one.name);
    throw invalidField("processor", "cannot be asked for a payment", names);
  }
  call.note?.({ processor: name, tx });
  return (signal) => lookAtProcessor(parts, found, tx, { signal, left: call.signal });
}

async function lookAtProcessor(
  parts: Parts,
  { name, find }: { readonly name: string; readonly find: NonNullable<Processor["findPayments"]> },
  tx: string,
  { signal, left }: Signals,
): Promise<LookUpPaymentResponse> {
  const found = await answered(find(tx, signal), name, left);
  const externalIds = [...new Set(found.map(({ externalId }) => externalId))];
  const orders = await parts.store.run(sql.listOpened, { processor: name, externalIds });
  const orderOf = new Map(orders.map((order) => [order.externalId, order]));
  await lookAgain(
    parts,
    orders.map(({ orderId }) => orderId),
  );
  const outputs = found.flatMap(({ externalId, deposit }): Output[] => {
    const order = orderOf.get(externalId);
    if (!order) return [];
    const { accountId, orderId, payTo: address } = order;
    const { asset, decimals, atoms, state } = deposit;
    return [
      {
        ...{ address, accountId, orderId, asset, coins: coins(atoms, decimals) },
        ...{ depositId: deposit.externalId, state: depositStateOf(state) },
      },
    ];
  });
  return create(LookUpPaymentResponseSchema, {
    ...{ known: found.length > 0, outputs },
    foreignOutputs: found.length - outputs.length,
  });
}

/** What became of a payment may be old: its orders are looked at again, if they still are. */
async function lookAgain({ store }: Parts, orderIds: readonly string[]): Promise<void> {
  if (orderIds.length > 0) await store.run(sql.lookAgain, { orderIds });
}

async function answered<T>(asked: Promise<T>, whom: string, left: AbortSignal): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    if (left.aborted || error instanceof ApiError) throw error;
    throw new ApiError("gateway_unavailable", {
      message: `${whom} does not answer. Try again shortly.`,
      retryAfterMs: 5_000,
      cause: error,
    });
  }
}
