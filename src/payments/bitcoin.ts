// Reads Bitcoin by the JSON-RPC of any node, without a wallet: block by block, each once, and while
// something is awaited also what waits for a block.

import * as sql from "../../gen/sql/payments.ts";
import { type BitcoinSettings, btc } from "../config/catalog.ts";
import type { Answer } from "./ask.ts";
import { RefusedError } from "./ask.ts";
import {
  type Arrival,
  type Chain,
  type ChainParts,
  chunkBlocksMax,
  findCommon,
  goBack,
  hookOrders,
  keptBlocks,
  type Reading,
  sortArrivals,
  storeArrivals,
} from "./chain.ts";
import { type BlockId, idsOf } from "./chain-tables.ts";
import { addAtoms, atomsOf } from "./coins.ts";
import { usualOf } from "./processor.ts";
import { type Rpc, RpcError } from "./rpc.ts";

const { asset, decimals } = usualOf(btc);
const microDollars = 1_000_000n;
/** Waiting transactions that one reading asks for. */
const waitingMax = 2_000;
const askedAtOnce = 8;
/** A payment that is in no block, and waits for none, is given up after this time. */
const missingMsMax = 24 * 3_600_000;

/** Blocks that a payment needs, by what its account was paid within a day, in micro-dollars. */
export function blocksNeeded(usdMicro: bigint | undefined): number {
  const steps = btc.depth === "chain" ? [] : btc.depth;
  const step = steps.find(
    ({ belowUsd }) =>
      belowUsd === undefined ||
      (usdMicro !== undefined && usdMicro < BigInt(belowUsd) * microDollars),
  );
  return step?.blocks ?? 1;
}

export function createBitcoin(
  { chain }: Pick<BitcoinSettings, "chain">,
  rpc: Rpc,
  parts: ChainParts,
): Chain {
  const { store } = parts;
  /** What waited at the last look, and what of that was asked for. Undefined: no order waited. */
  let looked: { listed: ReadonlySet<string>; asked: ReadonlySet<string> } | undefined;

  const hashAt = async (height: number, signal: AbortSignal) =>
    (await rpc.call("getblockhash", [height], signal)).text();

  /** What some transactions pay to our addresses: to each, its outputs together. */
  async function arrivalsIn(
    transactions: readonly Answer[],
    at: Date,
    block: BlockId | undefined,
  ): Promise<Arrival[]> {
    const all = new Set<string>();
    const outputs = transactions.flatMap((transaction) =>
      transaction
        .at("vout")
        .list()
        .map((output) => {
          const address = addressOf(output);
          all.add(address);
          return { transaction, output, address };
        }),
    );
    all.delete("");
    const own = await store.run(sql.ownAddresses, { addresses: [...all] });
    const ours = new Set(own.map(({ address }) => address));
    const found = new Map<string, Arrival>();
    for (const { transaction, output, address } of outputs) {
      if (!ours.has(address)) continue;
      const atoms = atomsOf(output.at("value").text(), decimals);
      if (atoms === undefined) throw output.at("value").fault("is no amount");
      if (atoms === 0n) continue;
      const txid = transaction.at("txid").text();
      const externalId = `${txid}:${address}`;
      const before = found.get(externalId);
      const sum = addAtoms(before?.atoms ?? 0n, atoms);
      found.set(externalId, {
        ...{ externalId, address, asset, decimals, block, at, atoms: sum },
        blockAt: block && at,
        spends: before?.spends ?? spentBy(transaction),
        needed: 1,
        transactions: new Map([[txid, sum]]),
      });
    }
    return [...found.values()];
  }

  async function readBlock(reading: Reading, previous: BlockId): Promise<BlockId> {
    const { id, signal, transaction } = reading;
    const height = previous.height + 1;
    const hash = await hashAt(height, signal);
    const block = await rpc.call("getblock", [hash, 2], signal);
    if (block.at("hash").text() !== hash) throw block.at("hash").fault("is of another block");
    // The chain went another way meanwhile: the next reading goes back.
    if (block.at("previousblockhash").text() !== previous.hash)
      throw new Error(`the chain left block ${previous.height} during the reading`);
    const transactions = [...block.at("tx").optionalList(), ...block.at("rawtx").optionalList()];
    if (transactions.length === 0) throw block.fault("has no transactions");
    const at = new Date(Math.min(Date.now(), block.at("time").time().getTime()));
    const read = { height, hash };
    const arrivals = await arrivalsIn(transactions, at, read);
    const unmined = await store.run(sql.listUnmined, id);
    const known = new Set(idsOf(unmined));
    const sorted = await sortArrivals(parts, id, arrivals, { known, isFinal: true });
    const replaced = replacedBy(unmined, transactions);
    await transaction(async (tables) => {
      await storeArrivals(tables, id, sorted);
      const lost = { ...id, replaced, missingMs: missingMsMax };
      await hookOrders(tables, id, idsOf(await tables.run(sql.losePayments, lost)));
      await tables.run(sql.putBlock, { ...id, ...read, kept: keptBlocks });
      await tables.run(sql.moveChain, { ...id, ...read });
      await tables.run(sql.endChunk, { ...id, most: chunkBlocksMax });
    });
    return read;
  }

  /**
   * Reads what waits for a block, while something is awaited: at most so many transactions, the new
   * ones first. Of a pool with more, the next readings go on.
   */
  async function readWaiting(reading: Reading): Promise<void> {
    const { id, signal, transaction } = reading;
    const { orders, payments } = await store.run(sql.countAwaited, { ...id, asset });
    if (orders === 0n) looked = undefined;
    if (orders === 0n && payments === 0n) return;
    const list = await rpc.call("getrawmempool", [], signal);
    const now = new Set(list.list().map((one) => one.text()));
    const { listed, asked: before } = looked ?? { listed: now, asked: new Set<string>() };
    const unasked = [...now].filter((txid) => !before.has(txid));
    const [fresh, others] = [true, false].map((isNew) =>
      unasked.filter((txid) => !listed.has(txid) === isNew),
    );
    const asked = orders === 0n ? [] : [...(fresh ?? []), ...(others ?? [])].slice(0, waitingMax);
    const transactions: Answer[] = [];
    for (let at = 0; at < asked.length; at += askedAtOnce) {
      const some = asked.slice(at, at + askedAtOnce).map((txid) => findTransaction(txid, signal));
      for (const one of await Promise.all(some)) if (one) transactions.push(one);
    }
    const arrivals = await arrivalsIn(transactions, new Date(), undefined);
    const unmined = await store.run(sql.listUnmined, id);
    const known = new Set(idsOf(unmined));
    const sorted = await sortArrivals(parts, id, arrivals, { known, isFinal: false });
    const replaced = replacedBy(unmined, transactions).filter(
      (externalId) => !now.has(transactionOf(externalId)),
    );
    await transaction(async (tables) => {
      await storeArrivals(tables, id, sorted);
      const there = idsOf([...unmined, ...sorted.payments]).filter((externalId) =>
        now.has(transactionOf(externalId)),
      );
      await tables.run(sql.markMissing, { ...id, waiting: there });
      const lost = { ...id, replaced, missingMs: missingMsMax };
      await hookOrders(tables, id, idsOf(await tables.run(sql.losePayments, lost)));
    });
    if (orders > 0n)
      looked = {
        listed: now,
        asked: new Set([...before, ...asked].filter((txid) => now.has(txid))),
      };
  }

  /** Undefined: it is in a block by now, or was replaced. */
  async function findTransaction(txid: string, signal: AbortSignal): Promise<Answer | undefined> {
    try {
      return await rpc.call("getrawtransaction", [txid, 1], signal);
    } catch (error) {
      if (error instanceof RpcError || error instanceof RefusedError) return undefined;
      throw error;
    }
  }

  return {
    name: chain,
    hasBalances: false,
    async read(reading) {
      const { id, signal, transaction } = reading;
      const tip = Number((await rpc.call("getblockcount", [], signal)).text());
      if (!Number.isSafeInteger(tip) || tip < 0) throw new Error("the node has no height");
      let cursor = reading.cursor;
      if (!cursor) {
        const first = { height: tip, hash: await hashAt(tip, signal) };
        await transaction(async (tables) => {
          await tables.run(sql.putBlock, { ...id, ...first, kept: keptBlocks });
          await tables.run(sql.moveChain, { ...id, ...first });
        });
        cursor = first;
      }
      if (tip < cursor.height || (await hashAt(cursor.height, signal)) !== cursor.hash) {
        cursor = await findCommon(store, reading, tip, (height) => hashAt(height, signal));
        const above = cursor.height;
        await goBack(reading, cursor, (tables) => tables.run(sql.orphanPayments, { ...id, above }));
      }
      while (cursor.height < tip && !reading.isOver()) cursor = await readBlock(reading, cursor);
      const isWhole = cursor.height >= tip;
      // Before the newest block was read, what is in it would seem to have gone.
      if (isWhole) await readWaiting(reading);
      return { tip, isWhole };
    },
    settling(usdMicro, height) {
      const needed = blocksNeeded(usdMicro);
      return { needed, upto: height - needed + 1 };
    },
  };
}

/** Empty: it goes to no single address. */
function addressOf(output: Answer): string {
  const script = output.at("scriptPubKey");
  const [first] = script.at("addresses").optionalList();
  return script.optional("address") || (first?.textOrEmpty() ?? "");
}

/** The outputs that a transaction spends. A reward for a block spends none. */
function spentBy(transaction: Answer): string[] {
  return transaction
    .at("vin")
    .optionalList()
    .filter((input) => !input.at("txid").isAbsent)
    .map((input) => `${input.at("txid").text()}:${input.at("vout").text()}`);
}

function transactionOf(externalId: string): string {
  return externalId.split(":", 1)[0] ?? "";
}

/** The payments in no block whose money another transaction spends. */
function replacedBy(
  unmined: readonly { externalId: string; spends: readonly string[] }[],
  transactions: readonly Answer[],
): string[] {
  if (unmined.length === 0) return [];
  const spenders = new Map<string, string>();
  for (const one of transactions)
    for (const output of spentBy(one)) spenders.set(output, one.at("txid").text());
  const replaced = unmined.filter(({ externalId, spends }) =>
    spends.some((output) => {
      const spender = spenders.get(output);
      return spender !== undefined && spender !== transactionOf(externalId);
    }),
  );
  return idsOf(replaced);
}
