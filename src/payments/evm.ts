// Reads an EVM chain by the JSON-RPC of any node: transfers of listed tokens by their logs, and
// Ether, which leaves no log, by comparing balances. Blocks that are not final are read again each
// time, so a node that is behind, or a chain that goes another way, hides nothing for long.

import * as sql from "../../gen/sql/payments.ts";
import type { EvmChain } from "../config/catalog.ts";
import type { Answer } from "./ask.ts";
import {
  type Chain,
  type ChainParts,
  findCommon,
  goBack,
  hooked,
  keptBlocks,
  type Reading,
} from "./chain.ts";
import { type Balance, type BlockId, type ChainPayment, idsOf } from "./chain-tables.ts";
import type { Rpc } from "./rpc.ts";

/** `Transfer(address,address,uint256)` */
const transferTopic = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const blocksAtOnce = 500;
/** Of one reading: the rest is read by the next one. */
const blocksMax = 10_000;
const addressesAtOnce = 1_000;
const balancesMax = 200;
const balancesAtOnce = 50;
/** A transfer whose block the chain left, and that is in no other, is given up after this time. */
const missingMsMax = 24 * 3_600_000;
const etherDecimals = 18;

type Block = BlockId & { readonly at: Date };

export function createEvm(
  settings: Pick<EvmChain, "name" | "chainId" | "depth" | "takesEther" | "tokens">,
  rpc: Rpc,
  { store, marketRate, log }: ChainParts,
): Chain {
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

  /** The transfers of listed tokens to us. Throws unless the node has the last of the blocks. */
  async function transfersIn(from: number, to: number, signal: AbortSignal): Promise<Answer[]> {
    const found: Answer[] = [];
    for (let after = "", isMore = tokens.length > 0; isMore; ) {
      const rows = await store.run(sql.listAddresses, { after, rows: addressesAtOnce });
      const addresses = rows.map(({ address }) => address);
      after = addresses.at(-1) ?? "";
      isMore = addresses.length === addressesAtOnce;
      if (addresses.length === 0) break;
      const topics = addresses.map((address) => `0x${address.slice(2).padStart(64, "0")}`);
      const filter = {
        fromBlock: hex(from),
        toBlock: hex(to),
        address: [...tokenAt.keys()],
        topics: [transferTopic, null, topics],
      };
      // One request for both: a node that lacks the block would answer without its logs.
      const [logs, last] = await rpc.batch(
        [
          { method: "eth_getLogs", params: [filter] },
          { method: "eth_getBlockByNumber", params: [hex(to), false] },
        ],
        signal,
      );
      if (!logs || !last || toBlock(last)?.height !== to)
        throw new Error(`${name}: the node is behind, it lacks block ${to}`);
      for (const log of logs.list()) {
        checkLog(log, { from, to, topics });
        found.push(log);
      }
    }
    return found;
  }

  /** Throws for what was not asked for: such a node is not to be believed. */
  function checkLog(
    log: Answer,
    { from, to, topics }: { from: number; to: number; topics: string[] },
  ) {
    const [topic, , receiver, ...others] = log.at("topics").list();
    const height = numberOf(log.at("blockNumber"));
    const isAsked =
      topic?.text() === transferTopic &&
      topics.includes(receiver?.textOrEmpty().toLowerCase() ?? "") &&
      others.length === 0 &&
      tokenAt.has(log.at("address").text().toLowerCase()) &&
      /^0x[0-9a-fA-F]{64}$/.test(log.at("data").text()) &&
      height >= from &&
      height <= to &&
      !log.at("removed").isTrue;
    if (!isAsked) throw log.fault("is a log that was not asked for");
  }

  async function toPayment(log: Answer, blocks: Map<number, Block>, signal: AbortSignal) {
    const height = numberOf(log.at("blockNumber"));
    const block = blocks.get(height) ?? (await knownBlockAt(height, signal));
    blocks.set(height, block);
    if (log.at("blockHash").text() !== block.hash)
      throw new Error(`${name}: the chain changed during the reading`);
    const token = tokenAt.get(log.at("address").text().toLowerCase());
    const atoms = BigInt(log.at("data").text());
    if (!token || atoms === 0n) return undefined;
    const transaction = log.at("transactionHash").text();
    const receipt = await rpc.call("eth_getTransactionReceipt", [transaction], signal);
    // Among its own logs: in another block, the same transaction has other numbers.
    const place = receipt
      .at("logs")
      .list()
      .findIndex((one) => one.at("logIndex").text() === log.at("logIndex").text());
    if (place < 0) throw receipt.fault("lacks the log");
    const receiver = log.at("topics").list()[2]?.text() ?? "";
    const { asset, decimals } = token;
    const seenAt = block.at;
    const payment: ChainPayment = {
      asset,
      decimals,
      atoms,
      block,
      seenAt,
      spends: [],
      externalId: `${name}:${transaction}:${place}`,
      address: `0x${receiver.slice(-40).toLowerCase()}`,
      marketRate: await marketRate?.({ asset }, seenAt),
    };
    return payment;
  }

  /** Compares the balances at a final block with those of an earlier one. */
  async function readEther(reading: Reading, final: Block): Promise<string[]> {
    const { id, signal } = reading;
    const height = reading.cursor?.height ?? final.height - 1;
    await store.run(sql.ensureBalances, { ...id, height });
    const balances = await store.listBalances(id, final.height, balancesMax);
    const changed: string[] = [];
    for (let at = 0; at < balances.length; at += balancesAtOnce) {
      const some = balances.slice(at, at + balancesAtOnce);
      const tag = hex(final.height);
      const answers = await rpc.batch(
        [
          { method: "eth_getBlockByNumber", params: [tag, false] },
          ...some.flatMap(({ address }) => [
            { method: "eth_getBalance", params: [address, tag] },
            { method: "eth_getTransactionCount", params: [address, tag] },
          ]),
        ],
        signal,
      );
      if (!answers[0] || toBlock(answers[0])?.hash !== final.hash)
        throw new Error(`${name}: the chain changed during the reading`);
      for (const [index, before] of some.entries()) {
        const [atoms, nonce] = [answers[1 + 2 * index], answers[2 + 2 * index]];
        if (!atoms || !nonce) throw new Error(`${name}: the node left a call without an answer`);
        const now: Balance = {
          address: before.address,
          height: final.height,
          blockAt: final.at,
          atoms: atomsOf(atoms),
          nonce: numberOf(nonce),
        };
        changed.push(...(await compare(reading, before, now, final)));
      }
    }
    return changed;
  }

  async function compare(reading: Reading, before: Balance, now: Balance, final: Block) {
    const { id } = reading;
    const isSwept = now.nonce !== before.nonce;
    // Without a transaction of its own an address cannot have less: the node is not believed.
    if (now.nonce < before.nonce || (!isSwept && now.atoms < before.atoms)) {
      log.error(
        { code: "chain_balance_lower", chain: name, address: now.address },
        "a node says that an address lost Ether",
      );
      return [];
    }
    // One that was used before it became ours: what it has is no deposit.
    const isUsed = isSwept && before.nonce === 0 && before.atoms === 0n;
    const atoms = now.atoms > before.atoms && !isUsed ? now.atoms - before.atoms : 0n;
    // It came at some time in between. An order that stood then gets it.
    const { address } = now;
    const between = { ...id, address, from: before.blockAt, to: final.at };
    const seenAt = (await store.run(sql.findQuoted, between))?.at ?? final.at;
    const rate = atoms > 0n ? await marketRate?.({ asset: "ETH" }, seenAt) : undefined;
    return reading.transaction(async (tables) => {
      const moved = await tables.run(sql.moveBalance, { ...id, ...now, from: before.height });
      if (moved === 0) return [];
      if (isSwept) await tables.run(sql.markSwept, between);
      if (atoms === 0n) return [];
      const externalId = `${name}:${address}:${final.height}`;
      await tables.putChainPayment(id, {
        externalId,
        address,
        asset: "ETH",
        decimals: etherDecimals,
        atoms,
        block: final,
        seenAt,
        marketRate: rate,
        spends: [],
      });
      return [externalId];
    });
  }

  return {
    name,
    quoted: takesEther ? ["ETH"] : [],
    async read(reading) {
      const { id, signal, transaction } = reading;
      await checkChain(signal);
      const tip = await knownBlockAt("latest", signal);
      const final =
        depth === undefined
          ? await knownBlockAt("finalized", signal)
          : await knownBlockAt(Math.max(0, tip.height - depth + 1), signal);
      const changed: string[] = [];
      let cursor: BlockId = reading.cursor ?? final;
      // A node that lacks the block is behind, which says nothing of the chain.
      if (reading.cursor && (await knownBlockAt(cursor.height, signal)).hash !== cursor.hash) {
        cursor = await findCommon(
          store,
          reading,
          tip.height,
          async (height) => (await blockAt(height, signal))?.hash,
        );
        changed.push(...(await goBack(reading, cursor)));
      }
      const from = cursor.height + 1;
      const to = Math.min(tip.height, cursor.height + blocksMax);
      const payments: ChainPayment[] = [];
      const blocks = new Map<number, Block>();
      for (let first = from; first <= to; first += blocksAtOnce) {
        const last = Math.min(to, first + blocksAtOnce - 1);
        for (const log of await transfersIn(first, last, signal)) {
          const payment = await toPayment(log, blocks, signal);
          if (payment) payments.push(payment);
        }
      }
      const height = Math.max(cursor.height, Math.min(final.height, to));
      const next = height === final.height ? final : await knownBlockAt(height, signal);
      const ids = await transaction(async (tables) => {
        const found: string[] = [];
        for (const one of payments)
          if (await tables.putChainPayment(id, one)) found.push(one.externalId);
        const left = { ...id, from, to, but: idsOf(payments) };
        const gone = await tables.run(sql.orphanPayments, left);
        const missing = { ...id, replaced: [], missingMs: missingMsMax };
        const lost = await tables.run(sql.losePayments, missing);
        await tables.run(sql.putBlock, { ...id, ...next, kept: keptBlocks });
        await tables.run(sql.moveChain, { ...id, ...next });
        return hooked(tables, id, [...found, ...idsOf([...gone, ...lost])]);
      });
      changed.push(...ids);
      if (takesEther) changed.push(...(await readEther({ ...reading, cursor }, next)));
      return {
        tip: tip.height,
        changed,
        confirm: (payment) => ({
          needed: depth ?? Math.max(1, tip.height - final.height + 1),
          isSettled: payment.height <= final.height,
        }),
      };
    },
  };
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
