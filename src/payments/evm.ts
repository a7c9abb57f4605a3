// Reads an EVM chain by the JSON-RPC of any node: transfers of listed tokens by their logs, and
// Ether, which leaves no log, by comparing balances. Blocks that are not final are read again each
// time, so a node that is behind, or a chain that goes another way, hides nothing for long.

import * as sql from "../../gen/sql/payments.ts";
import { type EvmChain, eth } from "../config/catalog.ts";
import { type Answer, RefusedError } from "./ask.ts";
import {
  type Arrival,
  type Chain,
  type ChainParts,
  chunkBlocksMax,
  findCommon,
  goBack,
  hookOrders,
  idInBlock,
  moveChain,
  type Reading,
  sortArrivals,
  storeArrivals,
} from "./chain.ts";
import { type Balance, type BlockId, idsOf, withAtoms } from "./chain-tables.ts";
import { addAtoms } from "./coins.ts";
import { usualOf } from "./processor.ts";
import { inTurns, pagesOf, type Rpc, RpcError } from "./rpc.ts";

/** `Transfer(address,address,uint256)` */
const transferTopic = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const addressesAtOnce = 1_000;
const callsAtOnce = 100;
/** Of one reading: the rest is compared by the next one. */
const balancesMax = 2_000;
const balancesAtOnce = 50;
const { asset: native, decimals: nativeDecimals } = usualOf(eth);
/** A difference of balances within this time needs no search for its block. */
const soonMs = 60_000;

type Block = BlockId & { readonly at: Date };

/** A transfer of a listed token to an address of ours. */
type Transfer = {
  readonly token: EvmChain["tokens"][number];
  readonly height: number;
  readonly blockHash: string;
  /** Its place in its block. */
  readonly index: number;
  readonly sender: string;
  readonly address: string;
  readonly atoms: bigint;
  readonly transaction: string;
};

export function createEvm(
  settings: Pick<EvmChain, "name" | "chainId" | "depth" | "takesEther" | "tokens">,
  rpc: Rpc,
  parts: ChainParts,
): Chain {
  const { store } = parts;
  const { name, chainId, depth, takesEther, tokens } = settings;
  const tokenAt = new Map(tokens.map((token) => [token.contract, token]));
  let isRightChain = false;

  async function blockAt(which: string | number, signal: AbortSignal): Promise<Block | undefined> {
    const tag = typeof which === "number" ? hex(which) : which;
    const block = toBlock(await rpc.call("eth_getBlockByNumber", [tag, false], signal));
    if (typeof which === "number" && block && block.height !== which)
      throw new Error(`${name}: the node answered with another block`);
    return block;
  }

  async function knownBlockAt(which: string | number, signal: AbortSignal): Promise<Block> {
    const block = await blockAt(which, signal);
    if (!block) throw new Error(`${name}: the node is behind, or lacks block ${which}`);
    return block;
  }

  async function checkChain(signal: AbortSignal): Promise<void> {
    if (isRightChain) return;
    const id = numberOf(await rpc.call("eth_chainId", [], signal));
    if (id !== chainId) throw new Error(`${name}: the node is of chain ${id}, not ${chainId}`);
    isRightChain = true;
  }

  /** All addresses of ours, in pages. */
  async function addressPages(): Promise<string[][]> {
    const pages: string[][] = [];
    for (let after = ""; ; ) {
      const rows = await store.run(sql.listAddresses, { after, rows: addressesAtOnce });
      if (rows.length > 0) pages.push(rows.map(({ address }) => address));
      if (rows.length < addressesAtOnce) return pages;
      after = rows.at(-1)?.address ?? "";
    }
  }

  /** The transfers of listed tokens to us. Throws unless the node has the last of the blocks. */
  async function transfersIn(from: number, to: number, signal: AbortSignal): Promise<Transfer[]> {
    if (tokens.length === 0) return [];
    const lastBlocks = new Set<string>();
    const pages = await inTurns(await addressPages(), async (addresses) => {
      const topics = addresses.map((address) => `0x${address.slice(2).padStart(64, "0")}`);
      const filter = {
        fromBlock: hex(from),
        toBlock: hex(to),
        address: [...tokenAt.keys()],
        topics: [transferTopic, null, topics],
      };
      // One request for both: a node that lacks the block would answer without its logs.
      const [found, last] = await rpc.batch(
        [
          { method: "eth_getLogs", params: [filter] },
          { method: "eth_getBlockByNumber", params: [hex(to), false] },
        ],
        signal,
      );
      const block = last && toBlock(last);
      if (!found || block?.height !== to)
        throw new Error(`${name}: the node is behind, it lacks block ${to}`);
      lastBlocks.add(block.hash);
      const asked = new Set(topics);
      return found.list().flatMap((log) => readLog(log, { from, to, topics: asked }) ?? []);
    });
    if (lastBlocks.size > 1) throw new Error(`${name}: the chain changed during the reading`);
    const transfers = pages.flat();
    // Only the operator moves coins from our addresses: what he sends to another one is no payment.
    const addresses = [...new Set(transfers.map(({ sender }) => sender))];
    const own = addresses.length > 0 ? await store.run(sql.ownAddresses, { addresses }) : [];
    const ours = new Set(own.map(({ address }) => address));
    return transfers.filter(({ sender }) => !ours.has(sender));
  }

  /**
   * What a log says. Undefined: a token logs it in another form, the chain left its block, or it is
   * of nothing. Throws for what was not asked for: such a node is not to be believed.
   */
  function readLog(
    log: Answer,
    { from, to, topics }: { from: number; to: number; topics: ReadonlySet<string> },
  ): Transfer | undefined {
    const [topic, sender, receiver, ...more] = log.at("topics").list();
    const topicOfReceiver = receiver?.textOrEmpty().toLowerCase() ?? "";
    const token = tokenAt.get(log.at("address").text().toLowerCase());
    const height = numberOf(log.at("blockNumber"));
    const isAsked =
      topic?.text() === transferTopic &&
      topics.has(topicOfReceiver) &&
      height >= from &&
      height <= to;
    if (!token || !isAsked) throw log.fault("is a log that was not asked for");
    const data = log.at("data").textOrEmpty();
    const isPlain = more.length === 0 && /^0x[0-9a-fA-F]{64}$/.test(data);
    const atoms = isPlain && !log.at("removed").isTrue ? BigInt(data) : 0n;
    if (atoms === 0n) return undefined;
    return {
      ...{ token, height, atoms },
      sender: `0x${sender?.textOrEmpty().toLowerCase().slice(-40) ?? ""}`,
      address: `0x${topicOfReceiver.slice(-40)}`,
      blockHash: log.at("blockHash").text(),
      index: numberOf(log.at("logIndex")),
      transaction: log.at("transactionHash").text(),
    };
  }

  /** What each address got of each token in each block. */
  async function arrivalsIn(
    { from, to, needed }: { from: number; to: number; needed: number },
    signal: AbortSignal,
  ): Promise<Arrival[]> {
    const transfers = await transfersIn(from, to, signal);
    const blocks = await blocksOf(new Set(transfers.map(({ height }) => height)), signal);
    /** Of one address, asset and block each. */
    const groups = new Map<string, Map<number, Transfer>>();
    for (const one of transfers) {
      const { token, height, address, blockHash, index } = one;
      if (blocks.get(height)?.hash !== blockHash)
        throw new Error(`${name}: the chain changed during the reading`);
      const key = idInBlock(name, { height, hash: blockHash }, address, token.asset);
      const group = groups.get(key) ?? new Map<number, Transfer>();
      // A log that is told twice has one place in its block.
      groups.set(key, group.set(index, one));
    }
    return [...groups].flatMap(([externalId, group]) => {
      const [first] = group.values();
      const block = first && blocks.get(first.height);
      if (!block) return [];
      const transactions = new Map<string, bigint>();
      let sum = 0n;
      for (const { transaction, atoms } of group.values()) {
        sum = addAtoms(sum, atoms);
        transactions.set(transaction, addAtoms(transactions.get(transaction) ?? 0n, atoms));
      }
      const { address, token } = first;
      const { asset, decimals } = token;
      return {
        ...{ externalId, address, asset, decimals, block, needed, transactions },
        ...{ at: block.at, blockAt: block.at, atoms: sum, spends: [] },
      };
    });
  }

  async function blocksOf(
    heights: ReadonlySet<number>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, Block>> {
    const calls = [...heights].map((height) => ({
      method: "eth_getBlockByNumber",
      params: [hex(height), false],
    }));
    const blocks = (await rpc.batches(calls, callsAtOnce, signal)).map(toBlock);
    return new Map(blocks.flatMap((block) => (block ? [[block.height, block]] : [])));
  }

  /** Hands on when the largest transaction of each arrival was seen in a block that is left. */
  async function seenBefore(reading: Reading, arrivals: readonly Arrival[]): Promise<Arrival[]> {
    const hashes = arrivals.flatMap(({ transactions }) => largestOf(transactions) ?? []);
    if (hashes.length === 0) return [...arrivals];
    const sights = await store.run(sql.findFirstSights, { ...reading.id, hashes });
    const seen = new Map(
      sights.map(({ tx, address, firstSeenAt }) => [`${tx} ${address}`, firstSeenAt]),
    );
    return arrivals.map((arrival) => {
      const first = seen.get(`${largestOf(arrival.transactions)} ${arrival.address}`);
      return first && first < arrival.at ? { ...arrival, at: first } : arrival;
    });
  }

  /** Reads some blocks, which are all final or all not. Returns the last final one. */
  async function readChunk(
    reading: Reading,
    { cursor, final, from, to }: { cursor: BlockId; final: Block; from: number; to: number },
    needed: number,
  ): Promise<BlockId> {
    const { id, signal, transaction } = reading;
    const isFinal = to <= final.height;
    const stored = (await store.run(sql.listInBlocks, { ...id, native, from, to })).map(withAtoms);
    const known = new Map(stored.map(({ externalId, atoms }) => [externalId, atoms]));
    const arrivals = await arrivalsIn({ from, to, needed }, signal);
    const isGrown = ({ externalId, atoms }: Arrival) => (known.get(externalId) ?? 0n) > atoms;
    const grown = new Set(idsOf(arrivals.filter(isGrown)));
    // A block that is read again, since the chain left later ones, has its dust once more.
    const fresh = arrivals.filter(
      ({ externalId }) => !known.has(externalId) || grown.has(externalId),
    );
    const sorted = await sortArrivals(parts, id, await seenBefore(reading, fresh), {
      known: new Set(),
      ...{ grown, isFinal },
    });
    const there = new Set(idsOf([...arrivals, ...sorted.grown]));
    const gone = idsOf(stored).filter((externalId) => !there.has(externalId));
    const end = to === final.height ? final : isFinal ? await knownBlockAt(to, signal) : cursor;
    await transaction(async (tables) => {
      await storeArrivals(tables, id, sorted);
      await tables.run(sql.loseWithBlocks, { processor: id.processor, externalIds: gone });
      await hookOrders(tables, id, gone);
      if (end !== cursor) await moveChain(tables, id, [end]);
      await tables.run(sql.endChunk, { ...id, most: chunkBlocksMax });
    });
    return end;
  }

  /** Compares the balances at a final block with those of an earlier one. */
  async function readEther(reading: Reading, final: Block): Promise<void> {
    const { id, signal, transaction } = reading;
    // What came to a new address up to this block counts, too.
    await store.run(sql.ensureBalances, { ...id, height: final.height - 1 });
    const balances = await store.listBalances(id, native, final.height, balancesMax);
    const pages = pagesOf(balancesAtOnce, balances);
    const tag = hex(final.height);
    const read = await inTurns(pages, async (some) => {
      const [block, ...answers] = await rpc.batch(
        [
          { method: "eth_getBlockByNumber", params: [tag, false] },
          ...some.flatMap(({ address }) => [
            { method: "eth_getBalance", params: [address, tag] },
            { method: "eth_getTransactionCount", params: [address, tag] },
          ]),
        ],
        signal,
      );
      if (!block || toBlock(block)?.hash !== final.hash)
        throw new Error(`${name}: the chain changed during the reading`);
      return some.map((before, index) => {
        const [atoms, nonce] = [answers[2 * index], answers[2 * index + 1]];
        if (!atoms || !nonce) throw new Error(`${name}: the node left a call without an answer`);
        return { before, atoms: atomsOf(atoms), nonce: numberOf(nonce) };
      });
    });
    const same: string[] = [];
    for (const { before, atoms, nonce } of read.flat()) {
      const { address } = before;
      const now = { address, atoms, nonce, height: final.height, blockAt: final.at };
      if (atoms === before.atoms && nonce === before.nonce) same.push(address);
      else await compare(reading, before, now, final);
    }
    const kept = { ...id, addresses: same, height: final.height, blockAt: final.at };
    await transaction((tables) => tables.run(sql.keepBalances, kept));
  }

  async function compare(reading: Reading, before: Balance, now: Balance, final: Block) {
    const { id, signal, transaction } = reading;
    // Who emptied it is the operator, whatever its count of transactions says (EIP-7702).
    const isSwept = now.nonce !== before.nonce || now.atoms < before.atoms;
    // One that was used before it became ours: what it has is no deposit.
    const isUsed = isSwept && before.nonce === 0 && before.atoms === 0n;
    const atoms = now.atoms > before.atoms && !isUsed ? now.atoms - before.atoms : 0n;
    const at = atoms > 0n ? await timeOfBalance(before, now, final, signal) : final.at;
    const { address } = now;
    const arrival: Arrival = {
      ...{
        address,
        atoms,
        at,
        blockAt: at,
        asset: native,
        decimals: nativeDecimals,
        block: blockId(final),
      },
      externalId: idInBlock(name, final, address, native),
      spends: [],
      needed: 1,
      transactions: new Map(),
    };
    const between = { ...id, address, from: before.blockAt, to: final.at };
    const sweep = await store.run(sql.findSweep, between);
    if (sweep) {
      const { sweepId } = sweep;
      const payment = { ...arrival, ...blockId(final), processor: id.processor };
      await transaction(async (tables) => {
        const moved = await tables.run(sql.moveBalance, { ...id, ...now, from: before.height });
        if (moved > 0 && atoms > 0n) await tables.run(sql.putSweepPayment, { ...payment, sweepId });
      });
      return;
    }
    // What is too little stays in the difference, until it is enough.
    const sorted = await sortArrivals(parts, id, atoms > 0n ? [arrival] : [], {
      known: new Set(),
      isFinal: false,
    });
    const isLeft = atoms > 0n && sorted.payments.length === 0;
    await transaction(async (tables) => {
      const base = { ...now, atoms: isLeft ? before.atoms : now.atoms };
      const moved = await tables.run(sql.moveBalance, { ...id, ...base, from: before.height });
      if (moved === 0) return;
      if (isSwept) await tables.run(sql.markSwept, { ...between, native });
      await storeArrivals(tables, id, sorted);
    });
  }

  /**
   * When a balance became what it is. A gateway that was away looks for the block; a node that
   * knows no balances of before leaves it at the time of the last one.
   */
  async function timeOfBalance(
    before: Balance,
    now: Balance,
    final: Block,
    signal: AbortSignal,
  ): Promise<Date> {
    let found = final;
    if (final.at.getTime() - before.blockAt.getTime() < soonMs) return found.at;
    for (let low = before.height + 1, high = final.height; low < high; ) {
      const middle = Math.floor((low + high) / 2);
      const calls = [
        { method: "eth_getBlockByNumber", params: [hex(middle), false] },
        { method: "eth_getBalance", params: [now.address, hex(middle)] },
      ];
      const [block, atoms] = await rpc.batch(calls, signal).catch((error: unknown) => {
        if (error instanceof RpcError || error instanceof RefusedError) return [];
        throw error;
      });
      const there = block && toBlock(block);
      if (!there || !atoms) break;
      if (atomsOf(atoms) >= now.atoms) {
        found = there;
        high = middle;
      } else low = middle + 1;
    }
    return found.at;
  }

  return {
    name,
    hasBalances: takesEther,
    async read(reading) {
      const { id, signal } = reading;
      await checkChain(signal);
      const tip = await knownBlockAt("latest", signal);
      const final =
        depth === undefined
          ? await knownBlockAt("finalized", signal)
          : await knownBlockAt(Math.max(0, tip.height - depth + 1), signal);
      let cursor: BlockId = reading.cursor ?? (await begin(reading, final));
      // A node that lacks the block is behind, which says nothing of the chain.
      if (reading.cursor && (await knownBlockAt(cursor.height, signal)).hash !== cursor.hash) {
        cursor = await findCommon(
          store,
          reading,
          tip.height,
          async (height) => (await blockAt(height, signal))?.hash,
        );
        const { height: above } = cursor;
        await goBack(reading, cursor, async (tables) => {
          const lost = await tables.run(sql.loseNative, { ...id, native, above });
          await tables.run(sql.loseSweepPayments, { ...id, above });
          return lost;
        });
      }
      const needed = depth ?? Math.max(1, tip.height - final.height + 1);
      let at = cursor.height;
      for (let blocks = reading.chunkBlocks; at < tip.height && !reading.isOver(); blocks *= 2) {
        const end = at < final.height ? final.height : tip.height;
        const to = Math.min(end, at + Math.min(blocks, chunkBlocksMax));
        cursor = await readChunk(reading, { cursor, final, from: at + 1, to }, needed);
        at = to;
      }
      // Of what was read to its end: a balance counts at the block that the cursor has reached.
      if (takesEther && cursor.height === final.height) await readEther(reading, final);
      return { tip: tip.height, isWhole: at >= tip.height };
    },
    async lookUp(hash, signal) {
      await checkChain(signal);
      const id = `0x${hash.replace(/^0x/, "")}`;
      const [sent, receipt, tip] = await rpc.batch(
        [
          { method: "eth_getTransactionByHash", params: [id] },
          { method: "eth_getTransactionReceipt", params: [id] },
          { method: "eth_blockNumber", params: [] },
        ],
        signal,
      );
      if (!sent || !receipt || !tip || sent.isAbsent) return undefined;
      const isIncluded = !receipt.isAbsent;
      const outputs = receipt.at("logs").optionalList().flatMap(outputOfLog);
      const value = atomsOf(sent.at("value"));
      const address = sent.optional("to").toLowerCase();
      if (takesEther && value > 0n && address !== "")
        outputs.push({ address, asset: native, decimals: nativeDecimals, atoms: value });
      const isFailed = isIncluded && receipt.optional("status") === "0x0";
      const isCall = address === "" || !["", "0x"].includes(sent.optional("input"));
      return {
        confirmations: isIncluded
          ? Math.max(1, numberOf(tip) - numberOf(receipt.at("blockNumber")) + 1)
          : undefined,
        isFailed,
        maySendMore: takesEther && isCall && !isFailed,
        outputs,
      };
    },
  };

  /** What a log says of a listed token. */
  function outputOfLog(log: Answer) {
    const token = tokenAt.get(log.optional("address").toLowerCase());
    const [topic, , receiver] = log.at("topics").optionalList();
    const data = log.at("data").textOrEmpty();
    const isTransfer = topic?.textOrEmpty() === transferTopic && /^0x[0-9a-fA-F]{64}$/.test(data);
    if (!token || !receiver || !isTransfer) return [];
    const { asset, decimals } = token;
    const address = `0x${receiver.textOrEmpty().toLowerCase().slice(-40)}`;
    return [{ address, asset, decimals, atoms: BigInt(data) }];
  }

  async function begin({ id, transaction }: Reading, final: Block): Promise<BlockId> {
    const first = blockId(final);
    await transaction((tables) => moveChain(tables, id, [first]));
    return first;
  }
}

function largestOf(transactions: ReadonlyMap<string, bigint>): string | undefined {
  let [largest, most]: [string | undefined, bigint] = [undefined, -1n];
  for (const [hash, atoms] of transactions) if (atoms > most) [largest, most] = [hash, atoms];
  return largest;
}

function blockId({ height, hash }: BlockId): BlockId {
  return { height, hash };
}

function hex(height: number): string {
  return `0x${height.toString(16)}`;
}

/** Undefined: the node does not have it. */
function toBlock(answer: Answer): Block | undefined {
  if (answer.isAbsent) return undefined;
  // A clock of theirs may be ahead of ours.
  const at = new Date(Math.min(Date.now(), numberOf(answer.at("timestamp")) * 1000));
  return { height: numberOf(answer.at("number")), hash: answer.at("hash").text(), at };
}

function atomsOf(answer: Answer): bigint {
  const text = answer.text();
  if (!/^0x[0-9a-fA-F]{1,64}$/.test(text)) throw answer.fault("is no number");
  return BigInt(text);
}

function numberOf(answer: Answer): number {
  const number = Number(atomsOf(answer));
  if (!Number.isSafeInteger(number)) throw answer.fault("is too large a number");
  return number;
}
