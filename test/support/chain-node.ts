// Real nodes of chains: anvil for EVM chains, btcd for Bitcoin. Each is a child of the test.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { vi } from "vitest";
import { freePort, isListening } from "./ports.ts";
import { findProgram } from "./programs.ts";

// The program itself: the command of the package would start it as a child of its own.
const { platform, arch } = process;
const shipped = `@foundry-rs/anvil-${platform}-${arch === "x64" ? "amd64" : arch}/bin/anvil`;
const packages = join(import.meta.dirname, "../../node_modules");

/** Undefined: the suites that need it are skipped. */
export const anvilBinary = [findProgram("anvil"), join(packages, shipped)].find(isThere);
export const btcdBinary = [findProgram("btcd"), join(homedir(), "go/bin/btcd")].find(isThere);

function isThere(path: string | undefined): boolean {
  return path !== undefined && existsSync(path);
}

export type ChainNode = {
  readonly url: string;
  call(method: string, ...params: unknown[]): Promise<unknown>;
  stop(): Promise<void>;
};

async function startNode(
  program: string,
  port: number,
  args: readonly string[],
  of: { authorization?: string; folder?: string },
): Promise<ChainNode> {
  const child: ChildProcess = spawn(program, args, { stdio: "ignore" });
  const exited = once(child, "exit");
  await vi.waitFor(
    async () => {
      if (child.exitCode !== null) throw new Error(`${program} exited with ${child.exitCode}`);
      if (!(await isListening(port))) throw new Error(`${program} does not listen yet`);
    },
    { interval: 50 },
  );
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    async call(method, ...params) {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(of.authorization !== undefined && { authorization: of.authorization }),
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
      });
      const { result, error } = Object(await response.json());
      if (error) throw new Error(`${method}: ${JSON.stringify(error)}`);
      return result;
    },
    async stop() {
      child.kill("SIGTERM");
      await exited;
      if (of.folder !== undefined) await rm(of.folder, { recursive: true, force: true });
    },
  };
}

const transferTopic = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
/** A token that emits `Transfer` on `transfer(to, amount)`, and keeps no balances. */
const tokenCode = `0x602f8060095f395ff36024355f52600435337f${transferTopic}60205fa300`;

const word = (value: bigint | string) =>
  (typeof value === "bigint"
    ? value.toString(16)
    : value.replace(/^0x/, "").toLowerCase()
  ).padStart(64, "0");

/** An EVM chain that mines a block for each transaction. */
export async function startAnvil(chainId: number) {
  if (anvilBinary === undefined) throw new Error("anvil is not here");
  const port = await freePort();
  const node = await startNode(
    anvilBinary,
    port,
    [...["--port", String(port), "--chain-id", String(chainId)], "--silent"],
    {},
  );
  const [sender] = Object(await node.call("eth_accounts"));
  const send = async (transaction: object) => {
    const hash = await node.call("eth_sendTransaction", {
      from: sender,
      gas: "0x30d40",
      ...transaction,
    });
    // It is mined at once, but in a moment.
    const receipt = await vi.waitUntil(() => node.call("eth_getTransactionReceipt", hash), {
      interval: 10,
    });
    return Object(receipt);
  };
  return {
    ...node,
    sender: String(sender),
    send,
    async deployToken(): Promise<string> {
      return String((await send({ data: tokenCode })).contractAddress);
    },
    transfer: (token: string, to: string, atoms: bigint) =>
      send({ to: token, data: `0xa9059cbb${word(to)}${word(atoms)}` }),
    pay: (to: string, atoms: bigint) => send({ to, value: `0x${atoms.toString(16)}` }),
    mine: (blocks: number) => node.call("anvil_mine", `0x${blocks.toString(16)}`),
  };
}

export type Anvil = Awaited<ReturnType<typeof startAnvil>>;

/** A chain of Bitcoin for tests. Rewards go to `miner`. */
export async function startBtcd(miner: string) {
  if (btcdBinary === undefined) throw new Error("btcd is not here");
  const folder = await mkdtemp(join(tmpdir(), "btcd-"));
  const port = await freePort();
  const node = await startNode(
    btcdBinary,
    port,
    [
      ...["--regtest", "--notls", "--nolisten", "--rpcuser=user", "--rpcpass=pass", "--txindex"],
      ...[`--datadir=${folder}`, `--logdir=${folder}`, `--configfile=${folder}/btcd.conf`],
      ...[`--rpclisten=127.0.0.1:${port}`, `--miningaddr=${miner}`],
    ],
    { folder, authorization: `Basic ${Buffer.from("user:pass").toString("base64")}` },
  );
  return { ...node, url: `http://user:pass@127.0.0.1:${port}` };
}

export type Btcd = Awaited<ReturnType<typeof startBtcd>>;
