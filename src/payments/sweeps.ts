// Sweeps: the operator empties addresses with his own wallet, and sends gas to them before. What
// comes to an address meanwhile is recorded, and a person decides whose it is.

import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type BeginSweepRequest,
  BeginSweepResponseSchema,
  type EndSweepRequest,
  EndSweepResponseSchema,
  type GrantSweepPaymentRequest,
  GrantSweepPaymentResponseSchema,
  type ListSweepsRequest,
  ListSweepsResponseSchema,
  type Sweep,
  SweepPaymentSchema,
  SweepSchema,
} from "../../gen/gateway/payments/v1/payments_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { readPage } from "../base/paging.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { withAtoms } from "./chain-tables.ts";
import { coins } from "./coins.ts";
import { type Parts, wrongState } from "./parts.ts";

const addressesMax = 1_000;
const longestMs = 7 * 24 * 3_600_000;

export async function beginSweep(
  parts: Parts,
  { network, addresses: named, until: end }: BeginSweepRequest,
  call: AuthenticatedCall,
) {
  const { store } = parts;
  const chains = parts.chains().filter(({ chain }) => chain.hasBalances);
  const found = chains.find(({ chain }) => chain.name === network);
  if (!found)
    throw invalidField(
      "network",
      "is no chain whose own coin is taken",
      chains.map(({ chain }) => chain.name),
    );
  const addresses = [...new Set(named.map((one) => one.toLowerCase()))];
  if (addresses.length === 0 || addresses.length > addressesMax)
    throw invalidField("addresses", `must be 1 to ${addressesMax} addresses`);
  const rows = await store.run(sql.ownAddresses, { addresses });
  const own = new Set(rows.map(({ address }) => address));
  const stranger = addresses.findIndex((one) => !own.has(one));
  if (stranger >= 0) throw invalidField(`addresses[${stranger}]`, "is no deposit address");
  const until = end && timestampDate(end);
  const ms = until ? until.getTime() - Date.now() : 0;
  if (!until || ms <= 0 || ms > longestMs)
    throw invalidField("until", "must be within the next 7 days");
  const sweepId = timeOrderedId("swp_");
  const { processor } = found;
  const createdBy = actorOf(call.caller);
  await store.run(sql.insertSweep, { sweepId, processor, network, addresses, until, createdBy });
  return create(BeginSweepResponseSchema, { sweep: await readSweep(parts, sweepId) });
}

export async function endSweep(parts: Parts, { sweepId }: EndSweepRequest) {
  await parts.store.run(sql.endSweep, { sweepId });
  return create(EndSweepResponseSchema, { sweep: await readSweep(parts, sweepId) });
}

export async function listSweeps(parts: Parts, request: ListSweepsRequest) {
  const { entries, nextPageToken } = await readPage(request, {
    read: (after, rows) =>
      parts.store.run(sql.listSweeps, { sweepId: null, before: after ?? null, rows }),
    cursorOf: ({ sweepId }) => sweepId,
  });
  return create(ListSweepsResponseSchema, {
    sweeps: await toSweeps(parts, entries),
    nextPageToken,
  });
}

/** Throws `not_found` and `wrong_state`. */
export async function grantSweepPayment(
  parts: Parts,
  { sweepId, paymentId: externalId }: GrantSweepPaymentRequest,
  call: AuthenticatedCall,
) {
  const { store } = parts;
  const rows = await store.run(sql.listSweeps, { sweepId, before: null, rows: 1 });
  const payments = await store.run(sql.listSweepPayments, { sweepIds: [sweepId] });
  const [sweep, found] = [rows[0], payments.find((one) => one.externalId === externalId)];
  if (!sweep || !found)
    throw new ApiError("not_found", { message: "No such payment.", field: "payment_id" });
  const { processor, network: chain } = sweep;
  const { address, asset, decimals, atoms, height, hash, at } = withAtoms(found);
  const marketRate = await parts.processors().get(processor)?.marketRate?.({ asset }, at);
  const grantedBy = actorOf(call.caller);
  await store.transaction(async (tables) => {
    if ((await tables.run(sql.grantSweepPayment, { sweepId, externalId, grantedBy })) === 0)
      throw wrongState("This payment was granted.");
    await tables.putChainPayment(
      { processor, chain },
      {
        ...{ externalId, address, asset, decimals, atoms, marketRate },
        block: { height: Number(height), hash },
        ...{ seenAt: at, blockAt: at, spends: [], needed: 1, transactions: 0, hashes: [] },
      },
    );
  });
  return create(GrantSweepPaymentResponseSchema, { payment: toPayment({ ...found, grantedBy }) });
}

/** Throws `not_found`. */
async function readSweep(parts: Parts, sweepId: string): Promise<Sweep> {
  const rows = await parts.store.run(sql.listSweeps, { sweepId, before: null, rows: 1 });
  const [sweep] = await toSweeps(parts, rows);
  if (!sweep) throw new ApiError("not_found", { message: "No such sweep.", field: "sweep_id" });
  return sweep;
}

async function toSweeps({ store }: Parts, rows: readonly sql.ListSweepsRow[]): Promise<Sweep[]> {
  const sweepIds = rows.map(({ sweepId }) => sweepId);
  const payments = Map.groupBy(
    await store.run(sql.listSweepPayments, { sweepIds }),
    ({ sweepId }) => sweepId,
  );
  return rows.map(({ sweepId, network, addresses, beganAt, until, endedAt, createdBy, isRead }) =>
    create(SweepSchema, {
      ...{ sweepId, network, addresses, createdBy, isRead },
      beganAt: timestampFromDate(beganAt),
      until: timestampFromDate(until),
      ...(endedAt && { endedAt: timestampFromDate(endedAt) }),
      payments: (payments.get(sweepId) ?? []).map(toPayment),
    }),
  );
}

function toPayment(row: sql.ListSweepPaymentsRow) {
  const { externalId, address, asset, decimals, at, grantedBy } = row;
  return create(SweepPaymentSchema, {
    ...{ paymentId: externalId, address, asset },
    amount: coins(BigInt(row.atoms), decimals),
    at: timestampFromDate(at),
    grantedBy: grantedBy ?? "",
  });
}
