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
  SweepsService,
} from "../../gen/gateway/payments/v1/sweeps_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { toActor } from "../base/actors.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { readPage } from "../base/paging.ts";
import { sweepHoursMax } from "../base/shown-figures.ts";
import {
  askForApproval,
  type CarryOut,
  mayGive,
  memberOf,
  needsApproval,
} from "../contract/approvals.ts";
import { actorOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import type { Runner } from "../postgres/statement.ts";
import { type InAtoms, withAtoms } from "./chain-tables.ts";
import { coins } from "./coins.ts";
import { type Parts, wrongState } from "./parts.ts";
import { type PaymentsTables, tablesOn } from "./store.ts";

const longestMs = sweepHoursMax * 3_600_000;

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
  const rows = await store.run(sql.ownAddresses, { addresses });
  const own = new Set(rows.map(({ address }) => address));
  const stranger = addresses.findIndex((one) => !own.has(one));
  if (stranger >= 0) throw invalidField(`addresses[${stranger}]`, "is no deposit address");
  const until = end && timestampDate(end);
  if (!until || until.getTime() - Date.now() > longestMs)
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

export async function listSweeps(
  parts: Parts,
  request: ListSweepsRequest,
  call: AuthenticatedCall,
) {
  const { entries, nextPageToken } = await readPage(
    SweepsService.method.listSweeps,
    request,
    call,
    {
      read: (after, rows) =>
        parts.store.run(sql.listSweeps, { sweepId: null, before: after ?? null, rows }),
      cursorOf: ({ sweepId }) => sweepId,
    },
  );
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
  const { caller } = call;
  const found = await findPayment(store, sweepId, externalId);
  const { processor, asset, address, at } = found;
  const rate = await parts.processors().get(processor)?.marketRate?.({ asset }, at);
  const [owner] = await store.run(sql.ownAddresses, { addresses: [address] });
  const accountId = owner?.accountId ?? "";
  call.note?.({ accountId });
  const usdMicro = rate === undefined ? 0n : worthOf(found, rate);
  const limit = parts.offer().secondApprovalAboveUsdMicro;
  const approval = await store.transaction(async (tables) => {
    await lockUngranted(tables, sweepId, externalId);
    // Nobody knows what it is worth without a rate.
    const isUnknown = rate === undefined && needsApproval(caller, limit);
    if (!isUnknown && (await mayGive(tables, caller, usdMicro, limit))) {
      await grant(tables, found, rate, actorOf(caller));
      return undefined;
    }
    const amount = `${coins(found.atoms, found.decimals)} ${asset}`;
    return askForApproval(tables, caller, {
      kind: "sweep_payment",
      subject: externalId,
      accountId,
      what: `Grants ${amount}, which came during a sweep, to the account of its address.`,
      reason: "",
      usdMicro,
      request: { sweepId, externalId, rate: rate === undefined ? null : String(rate) },
    });
  });
  return create(GrantSweepPaymentResponseSchema, {
    payment: toPayment(await findPayment(store, sweepId, externalId)),
    ...(approval && { approval }),
  });
}

/** Grants an approved payment, at the rate that was known when it was asked for. */
export const carryOutSweepPayment: CarryOut = async (tx, approved) => {
  const tables = tablesOn(tx);
  const [sweepId, externalId] = [memberOf(approved, "sweepId"), memberOf(approved, "externalId")];
  const { rate } = approved.request;
  await lockUngranted(tables, sweepId, externalId);
  const found = await findPayment(tables, sweepId, externalId);
  const known = typeof rate === "string" ? BigInt(rate) : undefined;
  await grant(tables, found, known, approved.requestedBy);
  return () => {};
};

type FoundPayment = InAtoms<sql.FindSweepPaymentRow>;

async function findPayment(db: Runner, sweepId: string, externalId: string): Promise<FoundPayment> {
  const found = await db.run(sql.findSweepPayment, { sweepId, externalId });
  if (!found) throw new ApiError("not_found", { message: "No such payment.", field: "payment_id" });
  return withAtoms(found);
}

/** Throws `wrong_state` for a payment that was granted. */
async function lockUngranted(tables: PaymentsTables, sweepId: string, externalId: string) {
  if (!(await tables.run(sql.lockSweepPayment, { sweepId, externalId })))
    throw wrongState("This payment was granted.");
}

function worthOf({ atoms, decimals }: FoundPayment, rate: bigint): bigint {
  return (atoms * rate) / 10n ** BigInt(decimals);
}

/** It becomes a payment of its chain, of its time. The caller has locked it. */
async function grant(
  tables: PaymentsTables,
  found: FoundPayment,
  marketRate: bigint | undefined,
  grantedBy: string,
): Promise<void> {
  const { sweepId, externalId, processor, network: chain, height, hash, at } = found;
  const { address, asset, decimals, atoms } = found;
  await tables.run(sql.grantSweepPayment, { sweepId, externalId, grantedBy });
  await tables.putChainPayment(
    { processor, chain },
    {
      ...{ externalId, address, asset, decimals, atoms, marketRate },
      block: { height: Number(height), hash },
      ...{ seenAt: at, blockAt: at, spends: [], needed: 1, transactions: 0, hashes: [] },
    },
  );
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
      ...{ sweepId, network, addresses, read: isRead },
      createdBy: toActor(createdBy),
      beganAt: timestampFromDate(beganAt),
      until: timestampFromDate(until),
      ...(endedAt && { endedAt: timestampFromDate(endedAt) }),
      payments: (payments.get(sweepId) ?? []).map(toPayment),
    }),
  );
}

function toPayment(
  row: Pick<
    sql.ListSweepPaymentsRow,
    "externalId" | "address" | "asset" | "decimals" | "at" | "grantedBy"
  > & { atoms: string | bigint },
) {
  const { externalId, address, asset, decimals, at, grantedBy } = row;
  return create(SweepPaymentSchema, {
    ...{ paymentId: externalId, address, asset },
    coins: coins(BigInt(row.atoms), decimals),
    occurredAt: timestampFromDate(at),
    grantedBy: toActor(grantedBy),
  });
}
