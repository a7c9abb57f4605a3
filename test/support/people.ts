// The people service of one or several nodes on a database of its own, behind the interceptor.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import type { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import type { Person } from "../../gen/gateway/people/v1/person_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfMembers } from "../../src/billing/billing.ts";
import {
  boundMethod,
  type Caller,
  type Core,
  implement,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createPeople, type People } from "../../src/people/people.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { Authenticator } from "./authenticator.ts";
import { freshDatabase } from "./database.ts";
import { countStatements, createNodeKeys } from "./keys.ts";
import { query } from "./query.ts";

export const publicUrl = "http://localhost:8080";

export type PeopleClient = Core["people"];

/** A node, and clients of its service. */
export type PeopleNode = People & {
  /** Calls with this session. Undefined: without a credential. */
  as(token: string | undefined, address?: string): PeopleClient;
};

export type NodeOptions = Partial<
  Pick<Parameters<typeof createPeople>[0], "mailer" | "settings" | "env" | "clock" | "log" | "keys">
>;

/** A signed-in person. */
export type SignedIn = {
  readonly token: string;
  readonly person: Person;
  readonly device: Authenticator;
};

const insertAccount = {
  name: "test/insert-account",
  text: "insert into accounts (account_id, name) values ($1, $2) on conflict do nothing",
};

/** A node on a database with the accounts `acc_a` and `acc_b`. */
export async function startTestPeople(url = publicUrl) {
  const { postgres, drop } = await freshDatabase();
  for (const name of ["a", "b"])
    await query(postgres, insertAccount, [`acc_${name}`, `account ${name}`]);
  const database = countStatements(postgres);
  const started: People[] = [];
  const node = (options: NodeOptions = {}): PeopleNode => {
    const one = createNode(database, url, options);
    one.start();
    started.push(one);
    return one;
  };
  return {
    database,
    node,
    async stop() {
      for (const one of started) await one.stop();
      await drop();
    },
  };
}

export type TestPeople = Awaited<ReturnType<typeof startTestPeople>>;

function createNode(postgres: Postgres, url: string, options: NodeOptions): PeopleNode {
  const log = createLog("silent");
  const people = createPeople({
    // Nodes of one database share it.
    contentKeys: [Buffer.alloc(32, 7)],
    budgets: budgetsOfMembers,
    postgres,
    publicUrl: () => new URL(url),
    keys: createNodeKeys(postgres).managed,
    ensureAccount: async (accountId, name) => {
      await query(postgres, insertAccount, [accountId, name]);
    },
    log,
    ...options,
  });
  const { authenticate, audit, onCallerChange } = people;
  const service = intercept(serviceTypes.people, people.service, {
    authenticate,
    log,
    audit,
    onCallerChange,
  });
  return {
    ...people,
    as: (token, address = "192.0.2.1") =>
      implement<PeopleClient>(serviceTypes.people, (desc) => {
        const { run } = boundMethod(service, desc);
        const requestHeader = new Headers({ "user-agent": "a test" });
        if (token !== undefined) requestHeader.set("authorization", `Session ${token}`);
        return (request: MessageInitShape<DescMessage>, options?: CallOptions) => {
          const signal = options?.signal ?? new AbortController().signal;
          return run(create(desc.input, request), { signal, requestHeader, peer: address });
        };
      }),
  };
}

/** The caller of a session, as the node identifies it. */
export function identify(node: PeopleNode, token: string): Promise<Caller> {
  return node.authenticate(new Headers({ authorization: `Session ${token}` }));
}

/** The secret part of a link. */
export function tokenOf(link: string): string {
  return new URL(link).hash.slice(1);
}

/** Redeems a link with a new passkey. */
export async function redeem(node: PeopleNode, link: string, login: string): Promise<SignedIn> {
  const token = tokenOf(link);
  const device = new Authenticator(publicUrl);
  const { passkeyOptionsJson } = await node.as(undefined).beginPasskey({ linkToken: token, login });
  const { grant, person } = await node.as(undefined).redeemLink({
    token,
    login,
    passkeyAnswerJson: device.register(passkeyOptionsJson),
  });
  return signedIn(grant?.token, person, device);
}

/** Signs in once more, with the passkey. */
export async function signIn(node: PeopleNode, { device }: SignedIn): Promise<SignedIn> {
  const { passkeyOptionsJson } = await node.as(undefined).beginSignIn({});
  const { grant, person } = await node
    .as(undefined)
    .signInWithPasskey({ answerJson: device.sign(passkeyOptionsJson) });
  return signedIn(grant?.token, person, device);
}

function signedIn(
  token: string | undefined,
  person: Person | undefined,
  device: Authenticator,
): SignedIn {
  if (token === undefined || !person) throw new Error("the answer has no session");
  return { token, person, device };
}

/** The first operator, who owns `acc_a`. */
export async function firstOwner(node: PeopleNode, login = "owner"): Promise<SignedIn> {
  await node.installation.claimFirstAccount("acc_a");
  return redeem(node, await node.installation.makeOwnerLink(), login);
}

/** A new person who joins an account. */
export async function join(
  node: PeopleNode,
  inviter: SignedIn,
  accountId: string,
  role: AccountRole,
  login: string,
): Promise<SignedIn> {
  const { link } = await node.as(inviter.token).createInvitation({ accountId, role });
  return redeem(node, link, login);
}
