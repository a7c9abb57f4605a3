// The cores of a facade. With one cell, the client of its cores is all there is. With several, one
// Core of all of them, and the check that each core is of the cell under which CORE_ADDRESS has it.

import type { DescribeResponse } from "../../gen/gateway/cells/v1/cells_pb.ts";
import { type Clock, every, systemClock } from "../base/clock.ts";
import { type ApiError, toApiError } from "../base/errors.ts";
import { proveFacade } from "../base/facade-proof.ts";
import type { Log } from "../base/log.ts";
import type { ClientTls, Config, CoreAddresses } from "../config/environment.ts";
import { cellsCore, isDown } from "../contract/cells.ts";
import type { Core } from "../contract/contract.ts";
import { grpcCore, type RemoteCore } from "../grpc/client.ts";

/** The cores that a facade calls. */
export type ConnectedCores = {
  readonly core: Core;
  /** As `RemoteCore.certificate`, which all clients share. */
  readonly certificate: RemoteCore["certificate"];
  /** True if a core of some cell serves requests. Rejects if none answers. */
  isServing(timeoutMs: number): Promise<boolean>;
  close(): void;
};

/** How long a search for a person, or for what a core is, waits for a cell. */
const askMsMax = 2_000;
const checkEveryMs = 30_000;

type Parts = {
  readonly config: Pick<Config, "cores" | "coreTls" | "signUpCells" | "contentKeys">;
  readonly log: Log;
  readonly clock?: Clock | undefined;
};

/** Rejects if two cores that are there do not belong where CORE_ADDRESS has them. */
export async function connectCores({ config, log, clock }: Parts): Promise<ConnectedCores> {
  const { cores, coreTls: tls, signUpCells, contentKeys = [] } = config;
  const client = { log, ...(tls && { tls }), ...(clock && { clock }) };
  const [only] = cores;
  if (only?.cell === undefined) {
    const core = grpcCore({ ...client, addresses: only?.addresses ?? [] });
    const { certificate, isServing, close } = core;
    return { core, certificate, isServing, close };
  }
  const prove = () => ({ authorization: proveFacade(contentKeys) });
  // By the names of cells. The first answer decides: a core of another database is refused.
  const databases = new Map<string, string>();
  const check = () => checkCores(cores, { tls, prove, databases, chains: new Map() });
  await check();
  const remotes = cores.map(({ cell = "", addresses }) => {
    const named = () => {
      const database = databases.get(cell);
      return database === undefined ? cell : `${cell}/${database}`;
    };
    return { name: cell, remote: grpcCore({ ...client, addresses, cell: named }) };
  });
  const stopChecking = every(clock ?? systemClock, checkEveryMs, () => {
    check().catch((error: unknown) =>
      log.error(
        { code: "cells_mixed", problem: error instanceof Error ? error.message : String(error) },
        "a core is not of the cell under which CORE_ADDRESS has it",
      ),
    );
  });
  const cells = remotes.map(({ name, remote }) => ({
    name,
    core: remote,
    async locate(who: Parameters<typeof remote.cells.locate>[0]["who"]) {
      const call = { headers: prove(), timeoutMs: askMsMax };
      const { found } = await remote.cells.locate(who === undefined ? {} : { who }, call);
      return found;
    },
    readOidc: (
      request: Parameters<typeof remote.cells.readOidc>[0],
      options: Parameters<typeof remote.cells.readOidc>[1],
    ) => {
      const headers = new Headers(options?.headers);
      headers.set("authorization", prove().authorization);
      return remote.cells.readOidc(request, { ...options, headers });
    },
  }));
  return {
    core: cellsCore(cells, signUpCells),
    certificate: remotes[0]?.remote.certificate,
    isServing: (timeoutMs) => anyServes(remotes.map(({ remote }) => remote.isServing(timeoutMs))),
    close() {
      stopChecking();
      for (const { remote } of remotes) remote.close();
    },
  };
}

/** True as soon as one answer is. Rejects if all do. */
export async function anyServes(answers: readonly Promise<boolean>[]): Promise<boolean> {
  const serving = answers.map(async (answer) => {
    if (!(await answer)) throw new Error("a cell does not serve");
  });
  const serves = await Promise.any(serving).then(
    () => true,
    () => false,
  );
  // Otherwise each has answered no, or failed.
  return serves || Promise.any(answers);
}

type Known = {
  readonly tls: ClientTls | undefined;
  readonly prove: () => { authorization: string };
  readonly databases: Map<string, string>;
  /** The cells of the keys for coins. */
  readonly chains: Map<string, string>;
};

/** Asks each core what it is. One that does not answer is asked again later. Throws a problem. */
async function checkCores(cores: readonly CoreAddresses[], known: Known): Promise<void> {
  const answers = await askCores(cores, known);
  for (const one of answers) if (one?.said) checkCore(one, known);
  for (const one of answers)
    if (one?.problem)
      throw new Error(`CORE_ADDRESS: the core at ${one.address} ${why(one.problem)}`);
}

type Said = {
  readonly cell: string;
  readonly address: string;
  readonly said: DescribeResponse;
};

function checkCore({ cell, address, said }: Said, { databases, chains }: Known): void {
  const where = `CORE_ADDRESS: the core at ${address}`;
  if (said.cell !== cell) throw new Error(`${where} serves cell ${said.cell}, not ${cell}`);
  const database = databases.get(cell);
  if (database !== undefined && database !== said.installationId)
    throw new Error(`${where} has another database than the other cores of cell ${cell}`);
  for (const [other, id] of databases)
    if (other !== cell && id === said.installationId)
      throw new Error(`${where} has the database of cell ${other}`);
  databases.set(cell, said.installationId);
  for (const chain of said.chainKeys) {
    const other = chains.get(chain);
    if (other !== undefined && other !== cell)
      throw new Error(`${where} has a key for coins that cell ${other} has, too`);
    chains.set(chain, cell);
  }
}

/** What each core says that it is, or why it does not. Undefined: it does not answer. */
function askCores(cores: readonly CoreAddresses[], { tls, prove }: Known) {
  const asked = cores.flatMap(({ cell = "", addresses }) =>
    addresses.map(async (address) => {
      const remote = grpcCore({ addresses: [address], ...(tls && { tls }) });
      try {
        const call = { headers: prove(), timeoutMs: askMsMax };
        return { cell, address, said: await remote.cells.describe({}, call) };
      } catch (error) {
        const problem = toApiError(error);
        return isDown(problem) ? undefined : { cell, address, problem };
      } finally {
        remote.close();
      }
    }),
  );
  return Promise.all(asked);
}

/** Why a core does not say what it is, although it is there. */
function why({ reason, message }: ApiError): string {
  if (reason === "invalid_key") return "has another CONTENT_KEY";
  if (reason === "unimplemented") return "is too old to be the core of a cell";
  return `does not say what it is: ${message}`;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** correct CORE_ADDRESS, or CELL, DATABASE_URL or CONTENT_KEY of the core that it names */
    cells_mixed: true;
  }
}
