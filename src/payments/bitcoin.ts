// Reads Bitcoin by the JSON-RPC of any node, without a wallet: block by block, each once, and while
// something is awaited also what waits for a block.

import * as sql from "../../gen/sql/payments.ts";
import { type BitcoinSettings, btc } from "../config/catalog.ts";
import type { Answer } from "./ask.ts";
import {
  type Arrival,
  type Chain,
  type ChainParts,
  chunkBlocksMax,
  findCommon,
  goBack,
  hookOrders,
  moveChain,
  type Reading,
  sortArrivals,
  storeArrivals,
} from "./chain.ts";
import { type BlockId, idsOf } from "./chain-tables.ts";
import { addAtoms, atomsOf } from "./coins.ts";
import { usualOf } from "./processor.ts";
import { pagesOf, type Rpc, RpcError, requestsAtOnce } from "./rpc.ts";

const { asset, decimals } = usualOf(btc);
const microDollars = 1_000_000n;
/** Code of a node for a transaction that it does not have. */
const noSuchTransaction = "-5";
/** Blocks of one chunk, and transactions of them: both are in memory at a time. */
const blocksMax = 32;
const transactionsMax = 6_000;
const blocksOfRequest = 8;
/** Waiting transactions that one reading asks for, and how long it does so. */
const waitingMax = 2_000;
const waitingMsMax = 2_000;
const waitingOfRequest = 20;
/** A payment that is in no block, and waits for none, is given up after this time. */
const missingMsMax = 24 * 3_600_000;

type Block = {
  readonly block: BlockId;
  readonly at: Date;
  readonly transactions: readonly Answer[];
};

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
  /** Transactions of the largest of the blocks that were read last. */
  let fullest = transactionsMax;

  const hashAt = async (height: number, signal: AbortSignal) =>
    (await rpc.call("getblockhash", [height], signal)).text();

  /** What transactions pay to our addresses: to each, the outputs of one together. */
  async function arrivalsIn(
    blocks: readonly { block: BlockId | undefined; at: Date; transactions: readonly Answer[] }[],
  ): Promise<Arrival[]> {
    const outputs = blocks.flatMap(({ at, block, transactions }) =>
      transactions.flatMap((transaction) =>
        transaction
          .at("vout")
          .list()
          .map((output) => ({ at, block, transaction, output, address: addressOf(output) })),
      ),
    );
    const addresses = new Set(outputs.map(({ address }) => address));
    addresses.delete("");
    const own = await store.run(sql.ownAddresses, { addresses: [...addresses] });
    const ours = new Set(own.map(({ address }) => address));
    const found = new Map<string, Arrival>();
    for (const { at, block, transaction, output, address } of outputs) {
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

  /** The hashes of the blocks after one, up to a height, or of the next 500. */
  async function hashesAfter({ height }: BlockId, tip: number, signal: AbortSignal) {
    const length = Math.min(tip - height, chunkBlocksMax);
    const calls = Array.from({ length }, (_, at) => ({
      method: "getblockhash",
      params: [height + 1 + at],
    }));
    return (await rpc.batch(calls, signal)).map((hash) => hash.text());
  }

  /** The blocks after one. Throws unless each follows the one before it. */
  async function readBlocks(previous: BlockId, hashes: readonly string[], signal: AbortSignal) {
    const calls = hashes.map((hash) => ({ method: "getblock", params: [hash, 2] }));
    const answers = await rpc.batches(calls, blocksOfRequest, signal);
    let before = previous;
    return answers.map((answer, index): Block => {
      const block = { height: before.height + 1, hash: hashes[index] ?? "" };
      if (answer.at("hash").text() !== block.hash)
        throw answer.at("hash").fault("is of another block");
      // The chain went another way meanwhile: the next reading goes back.
      if (answer.at("previousblockhash").text() !== before.hash)
        throw new Error(`the chain left block ${before.height} during the reading`);
      const transactions = [
        ...answer.at("tx").optionalList(),
        ...answer.at("rawtx").optionalList(),
      ];
      if (transactions.length === 0) throw answer.fault("has no transactions");
      const at = new Date(Math.min(Date.now(), answer.at("time").time().getTime()));
      before = block;
      return { block, at, transactions };
    });
  }

  async function begin(reading: Reading, tip: number): Promise<BlockId> {
    const first = { height: tip, hash: await hashAt(tip, reading.signal) };
    await reading.transaction((tables) => moveChain(tables, reading.id, [first]));
    return first;
  }

  async function storeBlocks(
    { id, transaction }: Reading,
    blocks: readonly Block[],
  ): Promise<void> {
    const arrivals = await arrivalsIn(blocks);
    const unmined = await store.run(sql.listUnmined, id);
    const known = new Set(idsOf(unmined));
    const sorted = await sortArrivals(parts, id, arrivals, { known, isFinal: true });
    const replaced = replacedBy(
      unmined,
      blocks.flatMap(({ transactions }) => transactions),
    );
    await transaction(async (tables) => {
      await storeArrivals(tables, id, sorted);
      const lost = { ...id, replaced, missingMs: missingMsMax };
      await hookOrders(tables, id, idsOf(await tables.run(sql.losePayments, lost)));
      await moveChain(
        tables,
        id,
        blocks.map(({ block }) => block),
      );
      await tables.run(sql.endChunk, { ...id, most: chunkBlocksMax });
    });
  }

  /**
   * Reads what waits for a block, while something is awaited: at most so many transactions, the new
   * ones first. Of a pool with more, the next readings go on.
   */
  async function readWaiting(reading: Reading): Promise<void> {
    const { id, signal, transaction } = reading;
    const { order: isOrder, payment } = await store.run(sql.isAwaited, { ...id, asset });
    if (!isOrder) looked = undefined;
    if (!isOrder && !payment) return;
    const list = await rpc.call("getrawmempool", [], signal);
    const now = new Set(list.list().map((one) => one.text()));
    const { listed, asked: before } = looked ?? { listed: now, asked: new Set<string>() };
    const unasked = [...now].filter((txid) => !before.has(txid));
    const [fresh, others] = [true, false].map((isNew) =>
      unasked.filter((txid) => !listed.has(txid) === isNew),
    );
    const wanted = !isOrder ? [] : [...(fresh ?? []), ...(others ?? [])].slice(0, waitingMax);
    const untilMs = performance.now() + waitingMsMax;
    const asked: string[] = [];
    const transactions: Answer[] = [];
    for (const some of pagesOf(waitingOfRequest * requestsAtOnce, wanted)) {
      if (performance.now() > untilMs) break;
      const calls = some.map((txid) => ({ method: "getrawtransaction", params: [txid, 1] }));
      const answers = await rpc.batches(calls, waitingOfRequest, signal, { isSome: true });
      // Others are in a block by now, or were replaced.
      transactions.push(...answers.filter((one) => !one.isAbsent));
      asked.push(...some);
    }
    const waiting = { block: undefined, at: new Date(), transactions };
    const arrivals = await arrivalsIn([waiting]);
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
    if (isOrder)
      looked = {
        listed: now,
        asked: new Set([...before, ...asked].filter((txid) => now.has(txid))),
      };
  }

  return {
    name: chain,
    hasBalances: false,
    async read(reading) {
      const { id, signal } = reading;
      const tip = Number((await rpc.call("getblockcount", [], signal)).text());
      if (!Number.isSafeInteger(tip) || tip < 0) throw new Error("the node has no height");
      let cursor = reading.cursor ?? (await begin(reading, tip));
      if (tip < cursor.height || (await hashAt(cursor.height, signal)) !== cursor.hash) {
        cursor = await findCommon(store, reading, tip, (height) => hashAt(height, signal));
        const above = cursor.height;
        await goBack(reading, cursor, (tables) => tables.run(sql.orphanPayments, { ...id, above }));
      }
      let hashes: string[] = [];
      for (let most = reading.chunkBlocks; cursor.height < tip && !reading.isOver(); most *= 2) {
        const size = Math.min(most, blocksMax, Math.max(1, Math.floor(transactionsMax / fullest)));
        if (hashes.length === 0) hashes = await hashesAfter(cursor, tip, signal);
        const blocks = await readBlocks(cursor, hashes.splice(0, size), signal);
        await storeBlocks(reading, blocks);
        fullest = Math.max(...blocks.map(({ transactions }) => transactions.length));
        cursor = blocks.at(-1)?.block ?? cursor;
      }
      const isWhole = cursor.height >= tip;
      // Before the newest block was read, what is in it would seem to have gone.
      if (isWhole) await readWaiting(reading);
      return { tip, isWhole };
    },
    async lookUp(hash, signal) {
      const txid = hash.replace(/^0x/, "");
      const found = await rpc
        .call("getrawtransaction", [txid, 1], signal)
        .catch((error: unknown) => {
          if (error instanceof RpcError && error.code === noSuchTransaction) return undefined;
          throw error;
        });
      if (found === undefined || found.isAbsent) return undefined;
      const confirmations = Number(found.at("confirmations").textOrEmpty());
      const outputs = found
        .at("vout")
        .list()
        .flatMap((output) => {
          const address = addressOf(output);
          const atoms = atomsOf(output.at("value").text(), decimals);
          return address === "" || atoms === undefined ? [] : [{ address, asset, decimals, atoms }];
        });
      return {
        confirmations: confirmations > 0 ? confirmations : undefined,
        isFailed: false,
        maySendMore: false,
        outputs,
      };
    },
    blocksNeeded,
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
