// Calls that create something, sent again under the same idempotency key.

import { createHash } from "node:crypto";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, AdminScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  CreateKeyRequestSchema,
  type CreateKeyResponse,
  KeysService,
  RotateKeyRequestSchema,
} from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  CreateInvitationRequestSchema,
  MailState,
  MembersService,
} from "../../gen/gateway/people/v1/members_pb.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { onceFor, removeReplays } from "../../src/contract/replays.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { createMailer } from "../../src/mail/mail.ts";
import { createPeopleStore } from "../../src/people/store.ts";
import { callBy } from "../support/calls.ts";
import { createNodeKeys, errorOf } from "../support/keys.ts";
import {
  firstOwner,
  type PeopleNode,
  redeem,
  type SignedIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

let people: TestPeople;
let smtp: TestSmtpServer;
let nodes: [PeopleNode, PeopleNode];
let keys: [Keys, Keys];
let owner: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  smtp = await startSmtpServer();
  const mailer = createMailer({ url: new URL(smtp.url), from: "gw@localhost" });
  nodes = [people.node({ mailer }), people.node({ mailer })];
  keys = [createNodeKeys(people.database), createNodeKeys(people.database)];
  owner = await firstOwner(nodes[0]);
});
afterAll(async () => {
  await people.stop();
  await smtp.stop();
});

let made = 0;
/** As many characters as a UUID has. */
const newIdempotencyKey = () => `${++made}`.padStart(36, "k");

type Given = MessageInitShape<typeof CreateKeyRequestSchema>;

/** `header`: the header Idempotency-Key. */
function createKey(request: Given, header?: string, node = keys[0]): Promise<CreateKeyResponse> {
  const headers = new Headers(header === undefined ? {} : { "idempotency-key": header });
  const full = create(CreateKeyRequestSchema, {
    accountId: "acc_a",
    family: Family.V1,
    ...request,
  });
  const call = { accountId: full.accountId, requestHeader: headers };
  return node.service.createKey(full, callBy(environmentToken, call));
}

const digest = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 16);

async function rows<Row>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
  return query<Row>(people.database, { name: `test/${digest(text)}`, text }, values);
}

async function countKeys(name: string): Promise<number> {
  const [row] = await rows<{ keys: number }>(
    "select count(*)::int4 as keys from keys where name = $1",
    [name],
  );
  return row?.keys ?? 0;
}

test("fifty creations at once, on two nodes, make one key and get fifty equal answers", async () => {
  const idempotencyKey = newIdempotencyKey();
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) =>
      createKey(
        { settings: { name: "at once" }, idempotencyKey },
        undefined,
        keys[index % 2 === 0 ? 0 : 1],
      ),
    ),
  );
  expect(await countKeys("at once")).toBe(1);
  expect(answers[0]?.secret).toMatch(/^sk-gw2-1/);
  for (const answer of answers) expect(answer).toEqual(answers[0]);
});

test("without an idempotency key each call makes a key of its own", async () => {
  const answers = [
    await createKey({ settings: { name: "apart" } }),
    await createKey({ settings: { name: "apart" } }, ""),
  ];
  expect(new Set(answers.map(({ secret }) => secret)).size).toBe(2);
  expect(await countKeys("apart")).toBe(2);
});

describe("an idempotency key", () => {
  test("may come in the header, alone or equal to the field", async () => {
    const idempotencyKey = newIdempotencyKey();
    const first = await createKey({ settings: { name: "by header" } }, idempotencyKey);
    expect(await createKey({ settings: { name: "by header" }, idempotencyKey })).toEqual(first);
    expect(
      await createKey({ settings: { name: "by header" }, idempotencyKey }, idempotencyKey),
    ).toEqual(first);
  });

  test("is refused if header and field differ, and nothing is made", async () => {
    const idempotencyKey = newIdempotencyKey();
    const call = createKey({ settings: { name: "two keys" }, idempotencyKey }, newIdempotencyKey());
    expect(await errorOf(call)).toBe("invalid_request idempotency_key");
    expect(await countKeys("two keys")).toBe(0);
  });

  test.for([
    { length: 1, keepsSecret: false },
    { length: 21, keepsSecret: false },
    { length: 22, keepsSecret: true },
    { length: 255, keepsSecret: true },
  ])(
    "of $length characters makes one key; its secret is repeated: $keepsSecret",
    async ({ length, keepsSecret }) => {
      const name = `long ${length}`;
      const request = { settings: { name }, idempotencyKey: "x".repeat(length) };
      const first = await createKey(request);
      expect(first.secret).not.toBe("");
      const again = await createKey(request);
      expect(again.key).toEqual(first.key);
      expect(again.secret).toBe(keepsSecret ? first.secret : "");
      expect(await countKeys(name)).toBe(1);
    },
  );

  test.for([256, 300])("of %i characters is refused, in field and header", async (length) => {
    const idempotencyKey = "x".repeat(length);
    const refused = "invalid_request idempotency_key";
    expect(await errorOf(createKey({ settings: { name: "too long" }, idempotencyKey }))).toBe(
      refused,
    );
    expect(await errorOf(createKey({ settings: { name: "too long" } }, idempotencyKey))).toBe(
      refused,
    );
    expect(await countKeys("too long")).toBe(0);
  });

  test("is refused for another request, and for another method", async () => {
    const idempotencyKey = newIdempotencyKey();
    const { key } = await createKey({ settings: { name: "this" }, idempotencyKey });
    const reused = "idempotency_key_reused idempotency_key";
    expect(await errorOf(createKey({ settings: { name: "that" }, idempotencyKey }))).toBe(reused);
    const rotate = create(RotateKeyRequestSchema, { keyId: key?.keyId ?? "", idempotencyKey });
    const rotated = keys[0].service.rotateKey(rotate, callBy(environmentToken));
    expect(await errorOf(rotated)).toBe(reused);
    expect([await countKeys("this"), await countKeys("that")]).toEqual([1, 0]);
  });

  test("is refused for another method although its request has the same bytes", async () => {
    const idempotencyKey = newIdempotencyKey();
    const [accountId, name] = ["acc_a", "ana"];
    const key = { accountId, family: Family.V1, settings: { name } };
    // The bytes of a message with the name as its first field.
    const login = `\n\u0003${name}`;
    const invitation = { accountId, role: AccountRole.VIEWER, login };
    expect(toBinary(CreateKeyRequestSchema, create(CreateKeyRequestSchema, key))).toEqual(
      toBinary(CreateInvitationRequestSchema, create(CreateInvitationRequestSchema, invitation)),
    );
    const call = callBy(environmentToken, { accountId, requestHeader: new Headers() });
    const made = { id: "key_of_bytes", secret: "" };
    const creations = [
      onceFor(
        KeysService.method.createKey,
        create(CreateKeyRequestSchema, { ...key, idempotencyKey }),
        call,
      ),
      onceFor(
        MembersService.method.createInvitation,
        create(CreateInvitationRequestSchema, { ...invitation, idempotencyKey }),
        call,
      ),
    ];
    const outcomes: string[] = [];
    for (const once of creations)
      outcomes.push(
        await errorOf(people.database.transaction((tx) => once(tx, made, async () => {}))),
      );
    expect(outcomes).toEqual(["no error", "idempotency_key_reused idempotency_key"]);
  });

  test("counts for one account and one caller", async () => {
    const idempotencyKey = newIdempotencyKey();
    const request = { settings: { name: "for one" }, idempotencyKey };
    const first = await createKey(request);
    const other = await createKey({ ...request, accountId: "acc_b" });
    const person = callBy({ ...environmentToken, name: "another" }, { accountId: "acc_a" });
    const full = { accountId: "acc_a", family: Family.V1, ...request };
    const third = await keys[0].service.createKey(create(CreateKeyRequestSchema, full), person);
    expect(new Set([first, other, third].map(({ secret }) => secret)).size).toBe(3);
  });

  test("is free again after a creation that failed", async () => {
    const idempotencyKey = newIdempotencyKey();
    const missing = createKey({
      accountId: "acc_missing",
      settings: { name: "later" },
      idempotencyKey,
    });
    expect(await errorOf(missing)).toBe("not_found account_id");
    await rows("insert into accounts (account_id, name) values ('acc_missing', 'm')");
    const { secret } = await createKey({
      accountId: "acc_missing",
      settings: { name: "later" },
      idempotencyKey,
    });
    expect(secret).not.toBe("");
  });

  test("makes a new key after a day, when what was noted is removed", async () => {
    const request = { settings: { name: "next day" }, idempotencyKey: newIdempotencyKey() };
    const first = await createKey(request);
    const [kept] = await rows<{ hours: number }>(
      `select extract(epoch from ends_at - now()) / 3600 as hours
         from replays where made_id = $1`,
      [first.key?.keyId],
    );
    expect(Number(kept?.hours)).toBeCloseTo(24, 1);
    await rows("update replays set ends_at = now() where made_id = $1", [first.key?.keyId]);
    const second = await createKey(request);
    expect(second.key?.keyId).not.toBe(first.key?.keyId);
    expect(await createKey(request)).toEqual(second);

    await rows("update replays set ends_at = now() where made_id = $1", [second.key?.keyId]);
    await createPeopleStore(people.database).clean();
    const left = await rows("select from replays where made_id = $1", [second.key?.keyId]);
    expect(left).toEqual([]);
    expect(await people.database.run(removeReplays)).toBe(0);
  });
});

test("the database alone opens no secret of a repeat", async () => {
  const idempotencyKey = newIdempotencyKey();
  const { secret, key } = await createKey({ settings: { name: "sealed" }, idempotencyKey });
  const [replay] = await rows<{ sealed: Buffer }>("select sealed from replays where made_id = $1", [
    key?.keyId,
  ]);
  // Longer than the secret: a nonce before it, and a tag after it.
  expect(replay?.sealed.length).toBe(12 + secret.length + 16);
  const tables = await rows<{ name: string }>(
    `select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p') and n.nspname = current_schema()`,
  );
  const texts: string[] = [];
  for (const { name } of tables)
    for (const { row } of await rows<{ row: string }>(`select t::text as row from ${name} t`))
      texts.push(row);
  const all = texts.join("\n");
  expect(all).toContain(key?.keyId);
  for (const hidden of [secret, secret.slice(12, -4), idempotencyKey])
    for (const form of [hidden, Buffer.from(hidden).toString("hex")])
      expect(all.includes(form)).toBe(false);
});

test("RotateKey adds one secret for twenty calls at once", async () => {
  const { key } = await createKey({ settings: { name: "rotated" } });
  const keyId = key?.keyId ?? "";
  const request = create(RotateKeyRequestSchema, { keyId, idempotencyKey: newIdempotencyKey() });
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      keys[index % 2 === 0 ? 0 : 1].service.rotateKey(request, callBy(environmentToken)),
    ),
  );
  expect(answers[0]?.key?.secrets).toHaveLength(2);
  for (const answer of answers) expect(answer).toEqual(answers[0]);
});

test("Invite makes one link, which works once, and sends one mail", async () => {
  const [one, other] = nodes;
  const shown = {
    accountId: "acc_a",
    role: AccountRole.MEMBER,
    login: "shown",
    idempotencyKey: newIdempotencyKey(),
  };
  const first = await one.as(owner.token).createInvitation(shown);
  expect(first.link).toContain("/console/welcome#");
  expect(await other.as(owner.token).createInvitation(shown)).toEqual(first);
  await redeem(one, first.link, "shown");
  const { link, invitation } = await other.as(owner.token).createInvitation(shown);
  expect([link, invitation?.invitationId]).toEqual([first.link, first.invitation?.invitationId]);

  const mailed = { ...shown, login: "", email: "m@example.com", idempotencyKey: "m".repeat(30) };
  const answers = await Promise.all(
    Array.from({ length: 10 }, (_, index) =>
      nodes[index % 2 === 0 ? 0 : 1].as(owner.token).createInvitation(mailed),
    ),
  );
  const ids = answers.map((answer) => answer.invitation?.invitationId);
  expect(new Set(ids).size).toBe(1);
  expect(answers.map((answer) => answer.link)).toEqual(Array(10).fill(""));
  const [row] = await rows<{ mails: number }>(
    "select count(*)::int4 as mails from mails where address = 'm@example.com'",
  );
  expect(row?.mails).toBe(1);
  expect([MailState.WAITING, MailState.SENT]).toContain(answers[0]?.invitation?.mailState);
});

test("a repeat of an invitation is none of the twenty of a day", async () => {
  const [node] = nodes;
  const request = {
    accountId: "acc_b",
    role: AccountRole.VIEWER,
    idempotencyKey: newIdempotencyKey(),
  };
  const first = await node.as(owner.token).createInvitation(request);
  for (let count = 1; count < 20; count++)
    await node
      .as(owner.token)
      .createInvitation({ ...request, idempotencyKey: newIdempotencyKey() });
  expect(await node.as(owner.token).createInvitation(request)).toEqual(first);
  const more = { ...request, idempotencyKey: newIdempotencyKey() };
  expect(await errorOf(node.as(owner.token).createInvitation(more))).toBe("rate_limited");
});

test("CreateAdminToken makes one token under its name", async () => {
  const [one, other] = nodes;
  const request = {
    name: "deploy",
    scope: AdminScope.READ,
    idempotencyKey: newIdempotencyKey(),
  };
  const first = await one.as(owner.token).createAdminToken(request);
  expect(await other.as(owner.token).createAdminToken(request)).toEqual(first);
  const { idempotencyKey: _, ...plain } = request;
  expect(await errorOf(one.as(owner.token).createAdminToken(plain))).toBe("name_taken name");
});
