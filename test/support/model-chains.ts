// Chains in memory, behind the JSON-RPC that the readers of chains speak: they go other ways, are
// filled by strangers, and answer as slowly as a test wants.

import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { startJsonServer } from "./json-server.ts";

export type Transfer = {
  readonly tx: string;
  readonly to: string;
  readonly atoms: bigint;
  /** Default: the address 0. */
  readonly from?: string;
  /** True: of Ether, which leaves no log. */
  readonly isEther?: boolean;
};
type Block<T> = { readonly hash: string; readonly at: number; readonly items: readonly T[] };

const transferTopic = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const hex = (value: number | bigint) => `0x${value.toString(16)}`;
let made = 0;
/** A new hash each time. */
export function newHash(): string {
  return createHash("sha256").update(String(made++)).digest("hex");
}

/** Blocks from 0 on. The first has nothing in it. */
class ModelChain<T> {
  readonly blocks: Block<T>[] = [];
  readonly byHash = new Map<string, number>();

  constructor() {
    this.mine([]);
  }

  get tip(): number {
    return this.blocks.length - 1;
  }

  mine(items: readonly T[], secondsAgo = 1): void {
    const at = Math.floor(Date.now() / 1000) - secondsAgo;
    this.blocks.push({ hash: newHash(), at, items });
  }

  /** Leaves the newest blocks. Returns what was in each of them. */
  leave(count: number): (readonly T[])[] {
    return this.blocks.splice(Math.max(1, this.blocks.length - count)).map(({ items }) => items);
  }
}

export type Call = { readonly id: unknown; readonly method: string; readonly params: unknown[] };

/** What a node says instead of a result. Undefined: that result. Throws: an error. */
export type Lie = (call: Call, result: unknown) => unknown;
/** What goes wrong: milliseconds of each request, its lie, and whether the node refuses all. */
type Manners = {
  delayMs: number;
  isAway: boolean;
  /** True: it accepts requests and never answers. */
  isSilent: boolean;
  lie: Lie | undefined;
};

async function serve(answer: (call: Call) => unknown) {
  const manners: Manners = { delayMs: 0, isAway: false, isSilent: false, lie: undefined };
  const server = await startJsonServer(async ({ body }) => {
    await delay(manners.delayMs);
    if (manners.isSilent) return new Promise<never>(() => {});
    if (manners.isAway) return { status: 503, body: "away" };
    const calls: Call[] = Array.isArray(body) ? body : [Object(body)];
    const answers = calls.map((call) => {
      const error = { jsonrpc: "2.0", id: call.id, error: { code: -1, message: "unknown" } };
      try {
        const answered = answer(call);
        const lie = manners.lie?.(call, answered);
        const result = lie === undefined ? answered : lie;
        return result === undefined ? error : { jsonrpc: "2.0", id: call.id, result };
      } catch {
        return error;
      }
    });
    return { body: Array.isArray(body) ? answers : answers[0] };
  });
  return { ...server, manners };
}

/** An EVM chain with Ether and one token, which is not there before it is named in a filter. */
export async function startModelEvm(chainId: number) {
  const chain = new ModelChain<Transfer>();
  const balanceOf = (address: string, height: number) => {
    const items = chain.blocks.slice(0, height + 1).flatMap((block) => block.items);
    return items
      .filter(({ isEther = false, to }) => isEther && to === address)
      .reduce((sum, { atoms }) => sum + atoms, 0n);
  };
  const header = (height: number) => {
    const block = chain.blocks[height];
    return block
      ? { number: hex(height), hash: `0x${block.hash}`, timestamp: hex(block.at) }
      : null;
  };
  const server = await serve(({ method, params: [first, second] }) => {
    const filter = Object(first);
    if (method === "eth_getBalance") return hex(balanceOf(String(first), Number(second)));
    if (method === "eth_getTransactionCount") return "0x0";
    if (method === "eth_chainId") return hex(chainId);
    if (method === "eth_getBlockByNumber")
      return header(first === "latest" ? chain.tip : Number(first));
    if (method !== "eth_getLogs") return undefined;
    const asked = new Set<string>(filter.topics[2]);
    const logs: object[] = [];
    for (let height = Number(filter.fromBlock); height <= Number(filter.toBlock); height++) {
      const { hash = "", items = [] } = chain.blocks[height] ?? {};
      for (const [index, { tx, to, atoms, from = "0x", isEther = false }] of items.entries()) {
        if (isEther) continue;
        const [sender, receiver] = [from, to].map((one) => `0x${one.slice(2).padStart(64, "0")}`);
        if (!asked.has(receiver ?? "")) continue;
        logs.push({
          address: filter.address[0],
          topics: [transferTopic, sender, receiver],
          data: `0x${atoms.toString(16).padStart(64, "0")}`,
          blockNumber: hex(height),
          blockHash: `0x${hash}`,
          transactionHash: `0x${tx}`,
          logIndex: hex(index),
          removed: false,
        });
      }
    }
    return logs;
  });
  return { ...server, chain };
}

export type Payment = Transfer & { readonly spends: string };

/** A Bitcoin chain, with a pool of what waits for a block. */
export async function startModelBitcoin() {
  const chain = new ModelChain<Payment>();
  const pool = new Map<string, Payment>();
  const toJson = ({ tx, to, atoms, spends }: Payment) => ({
    txid: tx,
    vin: [{ txid: spends, vout: 0 }],
    vout: [{ n: 0, value: Number(atoms) / 1e8, scriptPubKey: { address: to } }],
  });
  const heightOf = (hash: unknown) => chain.blocks.findIndex((block) => block.hash === hash);
  const server = await serve(({ method, params: [first] }) => {
    if (method === "getblockcount") return chain.tip;
    if (method === "getblockhash") return chain.blocks[Number(first)]?.hash;
    if (method === "getrawmempool") return [...pool.keys()];
    if (method === "getrawtransaction") {
      const found = pool.get(String(first));
      return found && toJson(found);
    }
    if (method !== "getblock") return undefined;
    const height = heightOf(first);
    const block = chain.blocks[height];
    const coinbase = { txid: newHash(), vin: [{}], vout: [] };
    return (
      block && {
        hash: block.hash,
        previousblockhash: chain.blocks[height - 1]?.hash,
        time: block.at,
        tx: [coinbase, ...block.items.map(toJson)],
      }
    );
  });
  return { ...server, chain, pool };
}
