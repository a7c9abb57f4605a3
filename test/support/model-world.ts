// Chains in memory with the payments service that reads them.

import { expect } from "vitest";
import type { FreshDatabase } from "./database.ts";
import { startModelBitcoin, startModelEvm } from "./model-chains.ts";
import { evmAccountKey, onchainSettings, regtestAccountKey, startRates } from "./onchain.ts";
import { startPaymentsNodes } from "./payments-nodes.ts";

/** The one token of the EVM chain. */
export const token = `0x${"11".repeat(20)}`;
export const usd = 1_000_000n;
/** Satoshi of a dollar. */
export const satoshi = 2_000n;
/** Micro-credits of a micro-dollar. */
export const credits = 200n;

/**
 * The payments service in front of both chains, whose networks are `one` and `regtest`. `database`:
 * a migrated one. Default: one of the run of tests.
 */
export async function startModelWorld(database?: FreshDatabase) {
  const evm = await startModelEvm(7);
  const bitcoin = await startModelBitcoin();
  const rates = await startRates({ BTC: 50_000, ETH: 2_500 });
  const world = await startPaymentsNodes({
    isReal: true,
    database,
    chainPaceMs: 10,
    settings: onchainSettings(
      {
        bitcoin: {
          chain: "regtest",
          rpcEnv: "BITCOIN_RPC",
          leastUsd: 5,
          accountKey: regtestAccountKey,
          gapLimit: 1_000,
        },
        evm: {
          accountKey: evmAccountKey,
          gapLimit: 1_000,
          chains: [
            {
              name: "one",
              chainId: 7,
              rpcEnv: "EVM_RPC",
              depth: 3,
              takesEther: false,
              leastUsd: 5,
              tokens: [{ asset: "USDC", contract: token, decimals: 6 }],
            },
          ],
        },
      },
      rates.sources,
    ),
    env: { BITCOIN_RPC: bitcoin.url, EVM_RPC: evm.url },
  });
  /** Waits until two readings of a chain, one after the other, have begun and ended. */
  const reads = async (chain: string) => {
    for (let done = 0; done < 2; done++) {
      const [{ at } = { at: undefined }] = await world.run<{ at: Date }>("select now() as at");
      await world.until(async () =>
        expect(
          await world.run("select from chains where read_at > $1 and chain = $2", [at, chain]),
        ).toHaveLength(1),
      );
    }
  };
  const payer = async (network: string) => {
    const accountId = await world.newAccount();
    const method = `onchain:${network === "one" ? "usdc" : "btc"}-${network}`;
    const address = (await world.addressByOrder(accountId, method)).toLowerCase();
    return { accountId, address };
  };
  return {
    ...{ evm, bitcoin, rates, world, reads, payer },
    async stop() {
      await world.stop();
      for (const server of [rates, bitcoin, evm]) await server.stop();
    },
  };
}

export type ModelWorld = Awaited<ReturnType<typeof startModelWorld>>;
