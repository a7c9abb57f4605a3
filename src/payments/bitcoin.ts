// Reads Bitcoin by the JSON-RPC of any node, without a wallet: block by block, each once, and while
// something is awaited also what waits for a block.

import * as sql from "../../gen/sql/payments.ts";
import type { BitcoinSettings } from "../config/catalog.ts";
import type { Answer } from "./ask.ts";
import { RefusedError } from "./ask.ts";
import {
  type Chain,
  type ChainParts,
  findCommon,
  goBack,
  hooked,
  keptBlocks,
  type Reading,
} from "./chain.ts";
import { type BlockId, type ChainPayment, idsOf } from "./chain-tables.ts";
import { atomsOf } from "./coins.ts";
import { type Rpc, RpcError } from "./rpc.ts";

const asset = "BTC";
const decimals = 8;
/** Of one reading: the rest is read by the next one. */
const blocksMax = 30;
/** Waiting transactions that one reading asks for. */
const waitingMax = 2_000;
const askedAtOnce = 8;
/** A payment that is in no block, and waits for none, is given up after this time. */
const missingMsMax = 24 * 3_600_000;

/** Blocks that a payment needs, by what its account was paid within a day, in micro-dollars. */
export function blocksNeeded(usdMicro: bigint | undefined): number {
  if (usdMicro === undefined || usdMicro >= 1_000_000_000n) return 6;
  return usdMicro < 100_000_000n ? 1 : 3;
}

export function createBitcoin(
  { chain }: Pick<BitcoinSettings, "chain">,
  rpc: Rpc,
  { store, marketRate }: ChainParts,
): Chain {
  /** What waited for a block at the last look. Undefined: nothing was awaited. */
  let waiting: ReadonlySet<string> | undefined;

  const hashAt = async (height: number, signal: AbortSignal) =>
    (await rpc.call("getblockhash", [height], signal)).text();

  /** The payments to us in some transactions. */
  async function paymentsIn(
    transactions: readonly Answer[],
    seenAt: Date,
    block: BlockId | undefined,
  ): Promise<ChainPayment[]> {
    const outputs = transactions.flatMap((one) =>
      one
        .at("vout")
        .list()
        .map((output) => ({ transaction: one, output, address: addressOf(output) })),
    );
    const all = new Set(outputs.map(({ address }) => address));
    const addresses = [...all].filter((one) => one !== "");
    const own = await store.run(sql.ownAddresses, { addresses });
    const ours = new Set(own.map(({ address }) => address));
    const found = outputs.filter(({ address }) => ours.has(address));
    if (found.length === 0) return [];
    const rate = await marketRate?.({ asset }, seenAt);
    return found.flatMap(({ transaction, output, address }) => {
      const atoms = atomsOf(output.at("value").text(), decimals);
      if (atoms === undefined) throw output.at("value").fault("is no amount");
      if (atoms === 0n) return [];
      return {
        address,
        asset,
        decimals,
        atoms,
        block,
        seenAt,
        marketRate: rate,
        externalId: `${transaction.at("txid").text()}:${output.at("n").text()}`,
        spends: spentBy(transaction),
      };
    });
  }

  async function readBlock(reading: Reading, previous: BlockId): Promise<[BlockId, string[]]> {
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
    const seenAt = new Date(Math.min(Date.now(), block.at("time").time().getTime()));
    const read = { height, hash };
    const payments = await paymentsIn(transactions, seenAt, read);
    const replaced = replacedBy(await store.run(sql.listUnmined, id), transactions);
    const changed = await transaction(async (tables) => {
      const ids: string[] = [];
      for (const one of payments)
        if (await tables.putChainPayment(id, one)) ids.push(one.externalId);
      const lost = { ...id, replaced, missingMs: missingMsMax };
      ids.push(...idsOf(await tables.run(sql.losePayments, lost)));
      await tables.run(sql.putBlock, { ...id, ...read, kept: keptBlocks });
      await tables.run(sql.moveChain, { ...id, ...read });
      return hooked(tables, id, ids);
    });
    return [read, changed];
  }

  /** Compares what waits for a block with the last look, while something is awaited. */
  async function readWaiting(reading: Reading): Promise<string[]> {
    const { id, signal, transaction } = reading;
    const { awaited } = await store.run(sql.countAwaited, { ...id, asset });
    if (awaited === 0n) {
      waiting = undefined;
      return [];
    }
    const list = await rpc.call("getrawmempool", [], signal);
    const now = new Set(list.list().map((one) => one.text()));
    const known = waiting;
    const fresh = [...now].filter((txid) => !known?.has(txid));
    // Without an earlier look all are new. Of a full pool, they are found when they are in a block.
    const asked = fresh.length > waitingMax ? [] : fresh;
    const transactions: Answer[] = [];
    for (let at = 0; at < asked.length; at += askedAtOnce) {
      const some = asked.slice(at, at + askedAtOnce).map((txid) => findTransaction(txid, signal));
      for (const one of await Promise.all(some)) if (one) transactions.push(one);
    }
    const payments = await paymentsIn(transactions, new Date(), undefined);
    const unmined = await store.run(sql.listUnmined, id);
    const replaced = replacedBy(unmined, transactions).filter(
      (externalId) => !now.has(transactionOf(externalId)),
    );
    const changed = await transaction(async (tables) => {
      const ids: string[] = [];
      for (const one of payments)
        if (await tables.putChainPayment(id, one)) ids.push(one.externalId);
      const there = idsOf([...unmined, ...payments]).filter((externalId) =>
        now.has(transactionOf(externalId)),
      );
      await tables.run(sql.markMissing, { ...id, waiting: there });
      const lost = { ...id, replaced, missingMs: missingMsMax };
      ids.push(...idsOf(await tables.run(sql.losePayments, lost)));
      return hooked(tables, id, ids);
    });
    waiting = now;
    return changed;
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
    quoted: [asset],
    async read(reading) {
      const { id, signal, transaction } = reading;
      const tip = Number((await rpc.call("getblockcount", [], signal)).text());
      if (!Number.isSafeInteger(tip) || tip < 0) throw new Error("the node has no height");
      const changed: string[] = [];
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
        changed.push(...(await goBack(reading, cursor)));
      }
      const end = Math.min(tip, cursor.height + blocksMax);
      while (cursor.height < end) {
        const [read, ids]: [BlockId, string[]] = await readBlock(reading, cursor);
        cursor = read;
        changed.push(...ids);
      }
      // Before the newest block was read, what is in it would seem to have gone.
      if (cursor.height === tip) changed.push(...(await readWaiting(reading)));
      return {
        tip: cursor.height,
        changed,
        confirm({ height, usdMicro }) {
          const needed = blocksNeeded(usdMicro);
          return { needed, isSettled: (cursor?.height ?? 0) - height + 1 >= needed };
        },
      };
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
