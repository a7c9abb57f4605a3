// Gateway processes that tests kill: on one ledger, in front of one fake provider, with clients
// that record every byte they receive.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isMessage, type JsonObject } from "@bufbuild/protobuf";
import { Agent, request } from "undici";
import { expect } from "vitest";
import { ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { timeOrderedId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { digestBytes, digestSecret, hintOf, mintSecret } from "../../src/keys/secret.ts";
import { catalogFor } from "./catalog.ts";
import { type ChildGateway, startChildGateway } from "./child-gateway.ts";
import { freshLedger, startNode } from "./ledger.ts";
import { type ReceivedRequest, type Script, startFakeProvider } from "./provider.ts";
import { nativeStream } from "./provider-answers.ts";

/** haiku 4.5, in micro-credits per token. */
export const haiku = { input: 140n, output: 700n };

/** The part of an answer that a client received. */
export type ClientView = {
  readonly requestId: string | undefined;
  readonly status: number;
  /** True when the answer has its proper end. */
  readonly complete: boolean;
  /** Everything received. */
  readonly text: string;
};

export type CrashCluster = Awaited<ReturnType<typeof startCrashCluster>>;

/** Starts a ledger and a provider, and writes a catalogue that routes every model to it. */
export async function startCrashCluster() {
  const ledger = await freshLedger();
  const provider = await startFakeProvider();
  const folder = await mkdtemp(join(tmpdir(), "gateway-crash-"));
  const catalogPath = join(folder, "catalog.yaml");
  await writeFile(catalogPath, catalogFor({ real: { kind: "anthropic", url: provider.url } }));
  const env = {
    DATABASE_URL: ledger.url,
    ADMIN_TOKEN: "the-admin-token-of-a-crash",
    CONFIG: catalogPath,
    DATA_DIR: folder,
    LOG_LEVEL: "error",
  };
  const started = new Set<ChildGateway>();
  const clients = createClients();

  return {
    ledger,
    provider,
    catalogPath,
    /** The variables of its gateways. */
    env,
    /** Starts one more gateway. */
    async start(more: NodeJS.ProcessEnv = {}): Promise<ChildGateway> {
      const gateway = await startChildGateway({ ...env, ...more });
      started.add(gateway);
      return gateway;
    },
    /** A key with its secret and its payer. */
    async key(
      micro: bigint,
      more: { cap?: bigint } = {},
    ): Promise<{ payer: Payer; secret: string }> {
      const payer = await ledger.payer(micro, more);
      const secret = mintSecret(Family.V1);
      await ledger.run(
        "insert into key_secrets (digest, secret_id, key_id, shown) values ($1, $2, $3, $4)",
        [digestBytes(digestSecret(secret)), timeOrderedId("sec_"), payer.keyId, hintOf(secret)],
      );
      return { payer, secret };
    },
    send: (
      { address }: ChildGateway,
      secret: string,
      body: JsonObject = {},
      onText?: (text: string) => void,
    ) => clients.send({ address, secret, body, ...(onText && { onText }) }),
    /** Settles the holds of dead processes, as another process does after a minute of silence. */
    async recover(): Promise<void> {
      for (const gateway of started) await gateway.end("SIGKILL");
      started.clear();
      // PostgreSQL may still run a statement that a killed process sent.
      while ((await ledger.run(busy)).length > 0) await delay(10);
      const node = await startNode(ledger.url, { silentPollsMax: 1, pollIntervalMs: 0 });
      for (let poll = 0; poll < 4; poll++) await node.node.poll(node.holds);
      await node.stop();
      expect(await ledger.run("select request_id from holds")).toEqual([]);
      expect(await ledger.store.verifyLedger()).toEqual([]);
    },
    async chargeOf(requestId: string | undefined) {
      const [charge] = await ledger.store.findCharges(requestId ?? "");
      return isMessage(charge, ReceiptSchema) ? charge : undefined;
    },
    async stop(): Promise<void> {
      await Promise.all([...started].map((gateway) => gateway.end("SIGKILL")));
      await clients.close();
      await provider.stop();
      await ledger.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

const busy =
  "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'";

const usualBody = {
  model: "haiku",
  max_tokens: 100,
  stream: true,
  messages: [{ role: "user", content: "Hello" }],
} satisfies JsonObject;

type ClientRequest = {
  address: string;
  secret: string;
  body: JsonObject;
  onText?: (text: string) => void;
};

/** A client of any gateway, with up to 1,000 connections. */
export function createClients() {
  const agent = new Agent({ connections: 1_000, pipelining: 1 });
  return {
    /** Sends the usual body, a streamed "Hello" to haiku for 100 tokens, with these changes. */
    send: (one: ClientRequest): Promise<ClientView> =>
      send(agent, { ...one, body: { ...usualBody, ...one.body } }),
    close: () => agent.destroy(),
  };
}

/** Never throws: a broken connection is a result, too. */
async function send(
  dispatcher: Agent,
  { address, secret, body, onText }: ClientRequest,
): Promise<ClientView> {
  const seen = { requestId: undefined as string | undefined, status: 0, text: "" };
  try {
    const answer = await request(`${address}/v1/messages`, {
      dispatcher,
      method: "POST",
      headers: {
        "x-api-key": secret,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
      headersTimeout: 240_000,
      bodyTimeout: 240_000,
    });
    const { "request-id": requestId } = answer.headers;
    seen.requestId = typeof requestId === "string" ? requestId : undefined;
    seen.status = answer.statusCode;
    answer.body.setEncoding("utf8");
    for await (const piece of answer.body) {
      seen.text += piece;
      onText?.(seen.text);
    }
  } catch {
    // The bytes received before the error are the result.
  }
  const isStream = body.stream === true;
  const complete =
    seen.status === 200 &&
    (isStream ? seen.text.includes('"type":"message_stop"') : isWhole(seen.text));
  return { ...seen, complete };
}

function isWhole(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** A request with a number, which decides the usage of its answer. */
export function numbered(number: number): { messages: { role: string; content: string }[] } {
  return { messages: [{ role: "user", content: `number ${number}` }] };
}

/** The number of a request that the provider received. */
export function numberIn({ bodyText }: ReceivedRequest): number {
  return Number(/number (\d+)/.exec(bodyText)?.[1] ?? 0);
}

/** The usage of the answer to a numbered request, and its cost in micro-credits. */
export function usageOf(number: number): { input: number; output: number; cost: bigint } {
  const input = 10 + (number % 53);
  const output = 8 + (number % 41);
  return { input, output, cost: BigInt(input) * haiku.input + BigInt(output) * haiku.output };
}

/** A streamed answer to a numbered request, in several writes with pauses. */
export function answerOf(request: ReceivedRequest, pauseMs = 8): Script {
  const usage = usageOf(numberIn(request));
  return nativeStream({ text: ["one ", "two ", "three ", "four"], usage }, { pauseMs });
}
