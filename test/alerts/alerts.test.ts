// What is found, and how it is told: with the real ledger, keys, people and payments.

import { inspect } from "node:util";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import {
  AlertChannel,
  AlertKind,
  type AlertSettingsSchema,
  DeliveryState,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { CreateOrderRequestSchema } from "../../gen/gateway/payments/v1/payments_pb.ts";
import type { PostWebhook } from "../../src/alerts/webhook.ts";
import { startsOf, unlimited } from "../../src/base/budgets.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { budgetsOfKeys } from "../../src/billing/billing.ts";
import { setLimits } from "../../src/billing/budgets.ts";
import { type Caller, environmentToken } from "../../src/contract/contract.ts";
import { createMailer } from "../../src/mail/mail.ts";
import {
  type AlertNodes,
  allSettings,
  member,
  settingsBy,
  startAlertNodes,
} from "../support/alerts.ts";
import { callBy } from "../support/calls.ts";
import { errorOf } from "../support/keys.ts";
import { checker } from "../support/openapi.ts";
import {
  type Refusal,
  startSilentServer,
  startSmtpServer,
  type TestSmtpServer,
} from "../support/smtp.ts";

const credit = 1_000_000n;
let nodes: AlertNodes;
let smtp: TestSmtpServer;
let refusal: Refusal | undefined;

beforeAll(async () => {
  nodes = await startAlertNodes();
  smtp = await startSmtpServer({ refuse: () => refusal });
});
afterEach(async () => {
  refusal = undefined;
  // Nothing of one test is found or delivered in another.
  for (const table of ["alerts", "alert_settings", "key_changes", "sessions"])
    await nodes.run(`delete from ${table}`);
  await nodes.run("update payment_orders set attention = null");
  await nodes.run("update accounts set status = 'closed'");
});
afterAll(async () => {
  await nodes.stop();
  await smtp.stop();
});

const look = async (node: Pick<AlertNodes, "alerts"> = nodes) => {
  await nodes.makeLookDue();
  return node.alerts.look();
};
const titlesOf = async (accountId: string) => {
  const { alerts } = await nodes.as(member(accountId)).listAlerts({ accountId });
  return alerts.map(({ title }) => title);
};
const mailer = () => createMailer({ url: new URL(smtp.url), from: "gw@localhost" });
const transfer = (accountId: string, amountMicro: bigint) =>
  nodes.store.createTransfer({
    accountId,
    family: "v1",
    kind: TransferKind.ADJUSTMENT,
    amountMicro,
    idempotencyKey: newRequestId(),
    reason: "",
    actor: "test",
  });
const deliveries = (accountId: string) =>
  nodes.run<{ channel: string; state: string; problem: string; failures: number }>(
    `select channel, state, problem, failures from alert_deliveries where account_id = $1
       order by alert_id, channel`,
    [accountId],
  );
const until = (check: () => Promise<unknown>) => expect.poll(check);

// What is found.

test("low credits are told once for each time that the pool was filled above them", async () => {
  const { accountId } = await nodes.payer(1_000n * credit);
  await nodes.as(member(accountId)).updateAlertSettings({
    accountId,
    settings: { ...settingsBy({ page: true }), belowMicrocredits: 500n * credit },
    updateMask: allSettings,
  });
  await look();
  expect(await titlesOf(accountId)).toEqual([]);
  await transfer(accountId, -600n * credit);
  for (let times = 0; times < 3; times++) await look();
  expect(await titlesOf(accountId)).toEqual(["The pool v1 has less than 500 credits."]);
  // Not above 500: it is the same low.
  await transfer(accountId, 50n * credit);
  await look();
  expect(await titlesOf(accountId)).toHaveLength(1);
  await transfer(accountId, 500n * credit);
  await look();
  await transfer(accountId, -600n * credit);
  await look();
  expect(await titlesOf(accountId)).toHaveLength(2);
});

test("a pool that was never filled is not low", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.as(member(accountId)).updateAlertSettings({
    accountId,
    settings: { ...settingsBy({ page: true }), belowMicrocredits: 500n * credit },
    updateMask: allSettings,
  });
  await look();
  expect(await titlesOf(accountId)).toEqual([]);
});

test("without settings, credits are low below three days at the pace of the last week", async () => {
  const enough = await nodes.payer(310n * credit);
  const short = await nodes.payer(290n * credit);
  const young = await nodes.payer(1n * credit);
  await nodes.spendDaily(enough, 100n * credit, 5);
  await nodes.spendDaily(short, 100n * credit, 5);
  // One day is no pace.
  await nodes.spendDaily(young, 100n * credit, 1);
  const { alerts } = nodes.node();
  await look({ alerts });
  expect(await titlesOf(enough.accountId)).toEqual([]);
  expect(await titlesOf(short.accountId)).toEqual([
    "The credits of the pool v1 last for less than 3 days.",
  ]);
  expect(await titlesOf(young.accountId)).toEqual([]);
});

/** The alerts about limits that are on the page, oldest first. */
const capsOf = async (accountId: string) =>
  (await nodes.raised(accountId)).filter(({ kind, on_page }) => kind === "cap_reached" && on_page);
const percentsOf = async (accountId: string) =>
  (await capsOf(accountId)).map(({ facts }) => facts.percent);
/** What a payer has spent today, in all its windows. */
const spend = (payer: string, micro: bigint) =>
  nodes.run(
    `update budgets set day = (now() at time zone 'utc')::date, spent = $2 where payer = $1`,
    [payer, micro],
  );

test("a cap is told at 80 % and when it is reached, and again after it was raised", async () => {
  const { accountId, keyId } = await nodes.payer(100n * credit, { cap: 10n * credit });
  await spend(keyId, 7_999_999n);
  await look();
  expect(await percentsOf(accountId)).toEqual([]);
  await spend(keyId, 8n * credit);
  await look();
  await look();
  expect(await percentsOf(accountId)).toEqual(["80"]);
  // What is left is too little for the next request.
  await nodes.run(
    `insert into errors_hourly (account_id, hour, key_id, reason, requests)
       values ($1, date_trunc('hour', now(), 'UTC'), $2, 'monthly_cap_reached', 1)`,
    [accountId, keyId],
  );
  await look();
  expect(await percentsOf(accountId)).toEqual(["80", "100"]);
  await nodes.run("update budgets set month_limit = $2 where payer = $1", [keyId, 20n * credit]);
  // Less than 80 % of it: it was a large request.
  await look();
  await nodes.run("delete from errors_hourly where key_id = $1", [keyId]);
  expect(await percentsOf(accountId)).toEqual(["80", "100"]);
  // Reached at once: the part of it is not told besides.
  await spend(keyId, 20n * credit);
  await look();
  await nodes.run("update budgets set spent = $2 where payer = $1", [keyId, 19n * credit]);
  await look();
  expect(await percentsOf(accountId)).toEqual(["80", "100", "100"]);
  const month = new Date().toISOString().slice(0, 7);
  expect((await titlesOf(accountId)).toSorted()).toEqual([
    `The key “test” has reached the limit of 10 credits for ${month}.`,
    `The key “test” has reached the limit of 20 credits for ${month}.`,
    `The key “test” has spent 80 % of the limit of 10 credits for ${month}.`,
  ]);
});

/** Sets the limit of a day of a key, as its owner does. */
const limitDay = (accountId: string, keyId: string, day: bigint | null) =>
  nodes.postgres.transaction((tx) =>
    budgetsOfKeys.changeLimits(tx, { accountId, family: "v1", keyIds: [keyId] }, { day }),
  );

test("a raise repeats nothing: only what is spent after it reaches the new limit", async () => {
  const { accountId, keyId } = await nodes.payer(1_000n * credit);
  const reached = async () => {
    await look();
    await look();
    return (await capsOf(accountId)).map(({ facts }) => `${facts.percent} of ${facts.cap_credits}`);
  };
  const all: string[] = [];
  for (const [limit, spent, ...news] of [
    [100, 79],
    [100, 85, "80 of 100"],
    // 81 % of the new one, of which nothing was spent since.
    [105, 85],
    [105, 104],
    [105, 105, "100 of 105"],
    [120, 105],
    [120, 119],
    [120, 120, "100 of 120"],
    // Raised far enough, it begins anew.
    [200, 120],
    [200, 159],
    [200, 160, "80 of 200"],
    // One that is lowered is reached by that.
    [165, 160, "80 of 165"],
    // Each of them once.
    [200, 160],
    [100, 160, "100 of 100"],
    // So is one that is set where there was none.
    [null, 160],
    [180, 160, "80 of 180"],
    [140, 170, "100 of 140"],
    // Nor what was spent before a raise to less than that.
    [150, 170],
  ] as const) {
    await limitDay(accountId, keyId, limit === null ? null : BigInt(limit) * credit);
    await spend(keyId, BigInt(spent) * credit);
    all.push(...news);
    expect([limit, spent, await reached()]).toEqual([limit, spent, all]);
  }
  // On the next day all of it is new.
  await nodes.run(
    `update budgets set day = day + 1, day_base = spent, spent = spent + 120000000
       where payer = $1`,
    [keyId],
  );
  expect(await reached()).toEqual([...all, "80 of 150"]);
});

test("the first limit of a manager is reached at once by what the keys had spent before, a raised one is not", async () => {
  const { accountId, keyId } = await nodes.payer(1_000n * credit);
  const payer = "mgmt:mgm_first";
  await nodes.run("update keys set managed_by = $2 where key_id = $1", [keyId, payer]);
  await nodes.run(
    `insert into usage_hourly (account_id, key_id, model, hour, amount)
       values ($1, $2, 'm', date_trunc('hour', now(), 'UTC'), $3)`,
    [accountId, keyId, 100n * credit],
  );
  const reached = async (day: number) => {
    const limits = { ...unlimited, day: BigInt(day) * credit };
    await nodes.postgres.transaction((tx) =>
      setLimits(tx, { accountId, family: "v1", payer }, limits),
    );
    await look();
    return (await capsOf(accountId)).map(({ facts }) => `${facts.percent} of ${facts.cap_credits}`);
  };
  const first = ["80 of 120"];
  expect(await reached(120)).toEqual(first);
  expect(await reached(124)).toEqual(first);
  expect(await reached(100)).toEqual([...first, "100 of 100"]);
});

test("a request that was rejected by the limit of before does not reach the new one", async () => {
  const { accountId, keyId } = await nodes.payer(100n * credit);
  const reject = (seconds: number) =>
    nodes.run(
      `insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
         values ($1, date_trunc('hour', now(), 'UTC'), $2, 'budget_reached', 1,
           now() + $3 * interval '1 second')
         on conflict (account_id, hour, key_id, reason) do update set last_at = excluded.last_at`,
      [accountId, keyId, seconds],
    );
  const reached = async () => {
    await look();
    return (await capsOf(accountId)).map(({ facts }) => `${facts.of} ${facts.cap_credits}`);
  };
  await limitDay(accountId, keyId, 10n * credit);
  await spend(keyId, 9n * credit);
  // The pool has a limit of which as much is spent, and more is left.
  await nodes.run(
    `update pools set day = (now() at time zone 'utc')::date, spent = $2, day_limit = $3
       where account_id = $1 and family = 'v1'`,
    [accountId, 9n * credit, 13n * credit],
  );
  await reject(10);
  expect(await reached()).toEqual(["key 10"]);
  await limitDay(accountId, keyId, 11n * credit);
  await nodes.run("update pools set day_limit = $2 where account_id = $1", [
    ...[accountId, 10_500_000n],
  ]);
  // Neither of the key nor of the pool, which has the least left now.
  await reject(0);
  expect(await reached()).toEqual(["key 10", "pool 10.5"]);
  expect(await percentsOf(accountId)).toEqual(["100", "80"]);
  await nodes.run("update pools set day_limit = null where account_id = $1", [accountId]);
  await reject(10);
  expect(await reached()).toEqual(["key 10", "pool 10.5", "key 11"]);
});

test("each percent that the owner chose of a limit raises one alert a window", async () => {
  const { accountId, keyId } = await nodes.payer(100n * credit);
  await nodes.run("update budgets set day_limit = $2 where payer = $1", [keyId, 10n * credit]);
  const owner = nodes.as(member(accountId));
  const choose = async (...percents: number[]) => {
    const settings = { ...settingsBy({ page: true }), percents };
    return (await owner.updateAlertSettings({ accountId, settings, updateMask: allSettings }))
      .settings?.percents;
  };
  expect(await choose(90, 25, 50)).toEqual([25, 50, 90]);
  expect((await owner.listAlerts({ accountId })).settings?.percents).toEqual([25, 50, 90]);
  for (const [spent, percents] of [
    [2_499_999n, []],
    [2_500_000n, ["25"]],
    // Nobody chose 80 or 100.
    [8_999_999n, ["25", "50"]],
    [10n * credit, ["25", "50", "90"]],
  ] as const) {
    await spend(keyId, spent);
    await look();
    await look();
    expect(await percentsOf(accountId)).toEqual(percents);
  }
  // A percent that is chosen later raises one if it is the highest that is reached.
  await choose(50, 60, 95);
  await look();
  expect(await percentsOf(accountId)).toEqual(["25", "50", "90", "95"]);
  // The next day is another window.
  await nodes.run(
    `update budgets set day = day + 1, day_base = spent, spent = spent + 7000000
       where payer = $1`,
    [keyId],
  );
  await look();
  await look();
  expect(await percentsOf(accountId)).toEqual(["25", "50", "90", "95", "60"]);
  // None: as without settings.
  expect(await choose()).toEqual([80, 100]);
});

test("alerts of limits of members, management keys and pools name their window", async () => {
  const { accountId, keyId } = await nodes.payer(100n * credit);
  const mia = await nodes.person(accountId, "mia2", "member");
  const gone = await nodes.person(accountId, "gone", "member");
  await nodes.run("delete from members where person_id = $1", [gone]);
  await nodes.run(
    `insert into management_keys
         (management_key_id, account_id, name, scopes, most_keys, created_by)
       values ('mgk_alerts', $1, 'deploy-bot', '{keys}', 10, '')`,
    [accountId],
  );
  const limit = async (payer: string, family: string, column: string) => {
    await nodes.run(
      `insert into budgets (account_id, family, payer) values ($1, $2, $3)
         on conflict do nothing`,
      [accountId, family, payer],
    );
    await nodes.run(
      `update budgets set ${column} = 10000000
         where account_id = $1 and family = $2 and payer = $3`,
      [accountId, family, payer],
    );
  };
  await limit(`person:${mia}`, "v1", "week_limit");
  await limit(`person:${mia}`, "v2", "week_limit");
  await limit(`person:${gone}`, "v1", "week_limit");
  await limit("mgmt:mgk_alerts", "v1", "total_limit");
  await limit(keyId, "v1", "day_limit");
  for (const payer of [`person:${mia}`, `person:${gone}`, "mgmt:mgk_alerts", keyId])
    await spend(payer, 9n * credit);
  await nodes.run(
    `update pools set spent = 9000000, month_limit = 10000000,
       day = (now() at time zone 'utc')::date where account_id = $1 and family = 'v1'`,
    [accountId],
  );
  const node = nodes.node({ mailer: mailer() });
  await look(node);
  const days = startsOf(new Date());
  const [day, week] = [days.day, days.week].map((ms) => new Date(ms).toISOString().slice(0, 10));
  const title = (whose: string, end: string) =>
    `${whose} has spent 80 % of the limit of 10 credits ${end}.`;
  expect((await titlesOf(accountId)).toSorted()).toEqual(
    [
      title("The key “test”", `for ${day}`),
      title("The management key “deploy-bot”", "of the pool v1 in total"),
      title("The member mia2", `of the pool v1 for the week of ${week}`),
      title("The member mia2", `of the pool v2 for the week of ${week}`),
      title("The pool v1", `for ${day?.slice(0, 7)}`),
    ].toSorted(),
  );
  expect((await capsOf(accountId)).map(({ alert_id }) => alert_id).toSorted()).toEqual(
    [
      `${keyId}-80-of-10/${day}`,
      "mgmt:mgk_alerts-v1-80-of-10/since-0",
      `person:${mia}-v1-80-of-10/week-${week}`,
      `person:${mia}-v2-80-of-10/week-${week}`,
      `pool-v1-80-of-10/${day?.slice(0, 7)}`,
    ]
      .map((end) => `cap_reached/${accountId}/${end}`)
      .toSorted(),
  );
  // The member is mailed about his own, and about nobody else's.
  const mailed = (await deliveries(accountId)).filter(({ channel }) => channel === `mail:${mia}`);
  expect(mailed).toHaveLength(2);
  // A total that begins anew raises another.
  const total = () =>
    nodes.run(
      `update budgets set total_base = spent, spent = spent + 8500000
         where payer = 'mgmt:mgk_alerts'`,
    );
  await total();
  await look(node);
  await look(node);
  const ids = (await capsOf(accountId)).map(({ alert_id }) => alert_id);
  expect(ids).toHaveLength(6);
  expect(ids).toContain(`cap_reached/${accountId}/mgmt:mgk_alerts-v1-80-of-10/since-9`);
});

test("a new key and a paused one are told, by the feed of keys", async () => {
  const { accountId } = await nodes.payer(0n);
  await look();
  const { key } = await nodes.keys.createKey({ accountId, settings: { name: "nightly <b>build" } });
  const keyId = key?.keyId ?? "";
  await look();
  expect(await titlesOf(accountId)).toEqual(["The key “nightly b build” was created."]);
  await nodes.keys.pauseKey(keyId);
  await look();
  await look();
  expect((await titlesOf(accountId)).slice(0, 1)).toEqual([
    "The key “nightly b build” was paused.",
  ]);
  await nodes.keys.resumeKey(keyId);
  await nodes.keys.pauseKey(keyId);
  await look();
  expect(await titlesOf(accountId)).toHaveLength(3);
  await nodes.keys.revokeKey(keyId);
  await look();
  await look();
  expect((await titlesOf(accountId)).slice(0, 1)).toEqual([
    "The key “nightly b build” was revoked.",
  ]);
  expect(await titlesOf(accountId)).toHaveLength(4);
});

test("no alert tells of a key of a credit and an hour, and of a larger one each does", async () => {
  const { accountId } = await nodes.payer(10n * credit);
  const make = async (name: string, totalCapMicrocredits: bigint, seconds: number | null) => {
    const { key } = await nodes.keys.createKey({
      accountId,
      settings: {
        name,
        totalCapMicrocredits,
        ...(seconds !== null && { expiresAt: timestampFromDate(new Date(Date.now() + 9_000_000)) }),
      },
    });
    const keyId = key?.keyId ?? "";
    // Exactly so long, whenever it was made.
    if (seconds !== null)
      await nodes.run(
        `update keys set expires_at = created_at + $2::integer * interval '1 second'
           where key_id = $1`,
        [keyId, seconds],
      );
    await spend(keyId, totalCapMicrocredits);
    return keyId;
  };
  const keyIds = [
    await make("trial", credit, 3_600),
    await make("dearer", credit + 1n, 3_600),
    await make("longer", credit, 3_601),
    await make("endless", credit, null),
  ];
  await look();
  for (const keyId of keyIds) await nodes.keys.revokeKey(keyId);
  await look();
  const raised = (await nodes.raised(accountId)).filter(({ on_page }) => on_page);
  const kindsOf = (name: string) =>
    raised.flatMap(({ kind, facts }) => (facts.key === name ? [kind] : [])).toSorted();
  expect(kindsOf("trial")).toEqual([]);
  for (const name of ["dearer", "longer", "endless"])
    expect([name, ...kindsOf(name)]).toEqual([name, "cap_reached", "key_created", "key_stopped"]);
});

test("a credential at an address that its list does not allow is told once a day", async () => {
  const { accountId } = await nodes.payer(0n);
  const day = "2026-11-27";
  const use = { accountId, id: "key_1", name: "nightly", hint: "sk-gw2-1ab…cd", day };
  const seen = [
    { ...use, address: "192.0.2.1" },
    { ...use, accountId: "", id: "tok_1", name: "deploy", address: "2001:db8::1" },
  ];
  const node = nodes.node({ sources: { listMisplaced: () => seen } });
  for (let times = 0; times < 2; times++) await look(node);
  // Another process saw the same key elsewhere.
  const [first] = seen;
  expect.assert(first);
  await look(nodes.node({ sources: { listMisplaced: () => [{ ...first, address: "::1" }] } }));
  expect(await titlesOf(accountId)).toEqual(["The key “nightly” was used from 192.0.2.1."]);
  // Of the next day, while the one before is still in memory.
  seen.unshift({ ...first, day: "2026-11-28" });
  await look(node);
  expect(await titlesOf(accountId)).toHaveLength(2);
  const raised = await nodes.raised("");
  expect(raised.map(({ kind, facts }) => [kind, facts])).toEqual([
    ["key_misplaced", { key: "deploy", hint: use.hint, address: "2001:db8::1" }],
  ]);
});

test("a key of which a look that failed did not read is told by the next look", async () => {
  const { accountId } = await nodes.payer(0n);
  let isFailing = true;
  const failing = nodes.node({
    sources: {
      listNewPlaces: async () => {
        if (isFailing) throw new Error("the database is away");
        return [];
      },
    },
  });
  await nodes.keys.createKey({ accountId, settings: { name: "first" } });
  // Longer ago than what a look repeats of the one before.
  const longAgo = "now() - interval '5 minutes'";
  await nodes.run(`update keys set created_at = ${longAgo} where account_id = $1`, [accountId]);
  await nodes.run(`update key_changes set changed_at = ${longAgo}`);
  await nodes.run("update alert_progress set events_at = now() - interval '6 minutes'");
  await look(failing);
  isFailing = false;
  await look(failing);
  expect(await titlesOf(accountId)).toEqual(["The key “first” was created."]);
});

test("a sign-in from a new network is told to the account, and not the first one", async () => {
  const { accountId } = await nodes.payer(0n);
  const personId = await nodes.person(accountId, "ada", "member");
  await nodes.session(personId, "198.51.100.7", 50);
  await nodes.run("update alert_progress set events_at = now() - interval '1 hour'");
  await look();
  expect(await titlesOf(accountId)).toEqual([]);
  // The same network, whose last part changes.
  await nodes.session(personId, "198.51.100.99", 0);
  await look();
  expect(await titlesOf(accountId)).toEqual([]);
  await nodes.session(personId, "203.0.113.5", 0);
  await nodes.session(personId, "2001:db8:1:2::5", 0);
  await look();
  expect((await titlesOf(accountId)).sort()).toEqual([
    "ada signed in from a new place: 2001:db8:1:2::5.",
    "ada signed in from a new place: 203.0.113.5.",
  ]);
  // Where members sign in is seen by owners only.
  const { VIEWER, MEMBER } = AccountRole;
  for (const role of [VIEWER, MEMBER]) {
    const seen = await nodes.as(member(accountId, role)).listAlerts({ accountId });
    expect([seen.alerts, seen.settings]).toEqual([[], undefined]);
  }
});

test("a suspended account and a waiting order are told, the order to operators too", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.run(
    "update accounts set status = 'suspended', status_changed_at = now() where account_id = $1",
    [accountId],
  );
  const { order } = await nodes.payments.createOrder(
    create(CreateOrderRequestSchema, {
      family: Family.V1,
      packMicrodollars: 5_000_000n,
      method: "simulated:usdt",
      idempotencyKey: "1",
    }),
    callBy(environmentToken, { accountId: (await nodes.payer(0n)).accountId }),
  );
  const { orderId = "", accountId: buyer = "" } = order ?? {};
  await nodes.run("update payment_orders set attention = 'paid_late' where order_id = $1", [
    orderId,
  ]);
  await look();
  await look();
  expect(await titlesOf(accountId)).toEqual(["The account was suspended."]);
  const waits = `The payment of the order ${orderId} waits for a person.`;
  expect(await titlesOf(buyer)).toEqual([waits]);
  const { alerts } = await nodes.as(environmentToken).listAlerts({ allAccounts: true });
  expect(alerts.map(({ title, facts }) => [title, facts.account_id])).toEqual([[waits, buyer]]);
});

test("operators hear of an outage of a provider once, and once of its end", async () => {
  const condition = { provider: "real", model: "haiku", isUnusable: true, isAnswered: false };
  const lastFailure = { status: 401, reason: "authentication_error: invalid key" };
  let conditions = [{ ...condition, lastFailure }];
  const sources = { modelConditions: () => conditions };
  const [one, other] = [nodes.node({ sources }), nodes.node({ sources })];
  const titles = async () => {
    const { alerts } = await nodes.as(environmentToken).listAlerts({ allAccounts: true });
    return alerts.map(({ title, facts }) => [title, facts.reason]);
  };
  const opened = ["The provider real answers no calls for haiku.", lastFailure.reason];
  const ended = ["The provider real answers calls for haiku again.", undefined];
  const pass = (minutes: number) =>
    nodes.run(
      `update provider_outages set answered_at = answered_at - $1::integer * interval '1 minute'`,
      [minutes],
    );

  await Promise.all([look(one), look(other), look(one)]);
  await look(other);
  expect(await titles()).toEqual([opened]);

  // One node is answered, and the other still finds it unusable.
  const bad = conditions;
  conditions = [{ ...condition, isUnusable: false, isAnswered: true, lastFailure }];
  await look(one);
  await pass(6);
  conditions = bad;
  await look(other);
  await look(one);
  expect(await titles()).toEqual([opened]);

  conditions = [{ ...condition, isUnusable: false, isAnswered: true, lastFailure }];
  await look(one);
  await pass(4);
  await look(other);
  expect(await titles()).toEqual([opened]);
  await pass(2);
  await Promise.all([look(one), look(other)]);
  expect(await titles()).toEqual([ended, opened]);
  expect(await nodes.run("select provider from provider_outages")).toEqual([]);

  // The next one is another.
  conditions = bad;
  await look(one);
  expect(await titles()).toEqual([opened, ended, opened]);
  await nodes.run("delete from provider_outages");
});

test("operators hear of the ledger and of the verifier once, from every node", async () => {
  const sources = {
    ledgerProblem: () => "no standby",
    findViolations: async () => ({ verificationId: "ver_1", violations: 2 }),
  };
  const [one, other] = [nodes.node({ sources }), nodes.node({ sources })];
  await Promise.all([look(one), look(other), look(one)]);
  const { alerts } = await nodes.as(environmentToken).listAlerts({ allAccounts: true });
  expect(alerts.map(({ title }) => title).sort()).toEqual([
    "A failover would lose the last charges: the ledger is not synchronous.",
    "The verifier of the ledger found something.",
  ]);
});

test("mail is a way to operators only while one of them would get it", async () => {
  const node = nodes.node({ mailer: mailer() });
  expect(await node.alerts.operatorChannels()).toEqual([]);
  const personId = await nodes.person("", "olga_of_operators");
  const set = (change: string) =>
    nodes.run(`update people set ${change} where person_id = $1`, [personId]);
  await set("operator = 'support'");
  expect(await node.alerts.operatorChannels()).toEqual([]);
  await set("operator = 'admin'");
  expect(await node.alerts.operatorChannels()).toEqual(["mail"]);
  expect(await nodes.alerts.operatorChannels(), "without a mail server").toEqual([]);
  await set("disabled_at = now()");
  expect(await node.alerts.operatorChannels(), "to one who may not sign in").toEqual([]);
  await set("disabled_at = null, email = null, email_verified_at = null");
  expect(await node.alerts.operatorChannels()).toEqual([]);
});

test("operators hear of a chain that is not read, once for each time", async () => {
  const stuck = { processor: "onchain", chain: "base", since: new Date("2026-11-26T10:00:00Z") };
  const sources = { listUnreadChains: async () => [{ ...stuck, block: 17n }] };
  const [one, other] = [nodes.node({ sources }), nodes.node({ sources })];
  await look(one);
  await look(other);
  const { alerts } = await nodes.as(environmentToken).listAlerts({ allAccounts: true });
  const of = alerts.filter(({ kind }) => kind === AlertKind.CHAIN_UNREAD);
  expect(of.map(({ title, facts }) => [title, facts])).toEqual([
    [
      "Payments on the chain base are not read.",
      { chain: "base", since: "2026-11-26T10:00:00.000Z", block: "17" },
    ],
  ]);
});

test("operators hear of a large gift that the machine made alone", async () => {
  await nodes.run(
    `insert into approvals (approval_id, kind, subject, account_id, what, reason, request,
         requested_by, person_id, usd_micro, state)
       values ('apv_alone', 'transfer', 'key-1', 'acc_large', 'Adds 100200 credits.', '', '{}',
         'token:ADMIN_TOKEN', '', 501000000, 'bypassed')`,
  );
  await look();
  await look();
  expect((await nodes.raised("")).filter(({ kind }) => kind === "approval_bypassed")).toEqual([
    {
      alert_id: "approval_bypassed//acc_large/apv_alone",
      kind: "approval_bypassed",
      facts: {
        account_id: "acc_large",
        actor: "token:ADMIN_TOKEN",
        what: "Adds 100200 credits.",
      },
      on_page: true,
    },
  ]);
  await nodes.run("delete from approvals");
});

test("two nodes that look at once raise each alert once, also when both are at it", async () => {
  const accounts = await Promise.all(Array.from({ length: 20 }, () => nodes.payer(1n * credit)));
  for (const { accountId } of accounts) {
    await nodes.person(accountId, `owner-${accountId.toLowerCase()}`);
    await nodes.as(member(accountId)).updateAlertSettings({
      accountId,
      settings: { ...settingsBy({ page: true, mail: true }), belowMicrocredits: 5n * credit },
      updateMask: allSettings,
    });
  }
  // Without a lease, nothing keeps the second from looking while the first does.
  const times = { everyMs: 0, leaseMs: -1 };
  await nodes.makeLookDue();
  const some = [1, 2, 3].map(() => nodes.node({ times, mailer: mailer() }));
  const looked = await Promise.all(some.map(({ alerts }) => alerts.look()));
  expect(looked.filter((did) => did).length).toBeGreaterThan(1);
  for (const { accountId } of accounts) {
    expect(await nodes.raised(accountId)).toHaveLength(1);
    expect(await deliveries(accountId)).toHaveLength(1);
  }
});

test("of nodes that look at once, one looks at all accounts", async () => {
  const some = [1, 2, 3, 4].map(() => nodes.node({ times: { everyMs: 60_000 } }));
  await nodes.makeLookDue();
  const looked = await Promise.all(some.map(({ alerts }) => alerts.look()));
  expect(looked.filter((did) => did)).toHaveLength(1);
});

test("10,000 accounts that are low at once cost few statements, and few posts at a time", async () => {
  const many = 10_000;
  await nodes.run(
    `with made as (
       insert into accounts (account_id, name)
       select 'acc_many' || n, 'many' from generate_series(1, $1::integer) n returning account_id
     ), pools as (
       insert into pools (account_id, "family", posted) select account_id, 'v1', 5 from made
     ), filled as (
       insert into transfers (account_id, transfer_id, "family", kind, amount, posted_after, actor,
         idempotency_key)
       select account_id, 'tra_1', 'v1', 'bonus', 5, 5, 'test', '1' from made
     )
     insert into alert_settings (account_id, below_credits, rules, webhook_url, webhook_secret)
     select account_id, 100, '{"credits_low": {"page": true, "mail": false, "webhook": true}}',
       'https://hooks.example/', 'secret' from made`,
    [many],
  );
  let atOnce = 0;
  let most = 0;
  let posts = 0;
  const post: PostWebhook = async () => {
    most = Math.max(most, ++atOnce);
    posts++;
    await new Promise(setImmediate);
    atOnce--;
  };
  const node = nodes.node({ post });
  await look(node);
  const count = async () =>
    (
      await nodes.run<{ n: bigint }>(
        "select count(*) as n from alerts where account_id like 'acc_many%'",
      )
    )[0]?.n;
  expect(await count()).toBe(BigInt(many));
  expect(node.ran.length).toBeLessThan(100);
  node.ran.length = 0;
  await look(node);
  expect(await count()).toBe(BigInt(many));
  expect(node.ran.length).toBeLessThan(100);
  node.alerts.start();
  await until(async () => posts).toBeGreaterThan(200);
  await node.alerts.stop();
  expect(most).toBeLessThanOrEqual(10);
});

// How it is told.

test("owners are mailed, and whom a sign-in is about; others are not", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "olga");
  await nodes.person(accountId, "viktor", "viewer");
  await nodes.person(accountId, "dora");
  const mia = await nodes.person(accountId, "mia", "member");
  await nodes.run("update people set disabled_at = now() where login = 'dora'");
  const node = nodes.node({ mailer: mailer() });
  await nodes.session(mia, "198.51.100.7", 50);
  await nodes.session(mia, "203.0.113.5", 0);
  await look(node);
  node.alerts.start();
  await until(async () => (await deliveries(accountId)).map(({ state }) => state)).toEqual([
    "sent",
    "sent",
  ]);
  await node.alerts.stop();
  const mails = smtp.mails.filter(({ text }) => text.includes("mia signed in"));
  expect(mails.flatMap(({ to }) => to).sort()).toEqual(["mia@example.com", "olga@example.com"]);
  const [{ alert_id } = { alert_id: "" }] = await nodes.raised(accountId);
  expect(mails[0]?.text).toContain(`Alert ${alert_id}.`);
  expect(mails[0]?.headers.get("subject")).toContain("signed in from a new place");
});

/** Lets time pass for mails that were sent. */
const age = (accountId: string, interval: string) =>
  nodes.run(
    `update alert_deliveries set next_at = next_at - $2::interval
       where account_id = $1 and state = 'sent'`,
    [accountId, interval],
  );

test("an owner gets one mail an hour about each kind, which counts the others", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "hanna");
  const node = nodes.node({ mailer: mailer() });
  const mailed = () => smtp.mails.filter(({ to }) => to.includes("hanna@example.com"));
  const states = async () => (await deliveries(accountId)).map(({ state }) => state).toSorted();
  for (const name of ["one", "two", "three"])
    await nodes.keys.createKey({ accountId, settings: { name } });
  await look(node);
  node.alerts.start();
  await until(states).toEqual(["sent", "sent", "sent"]);
  expect(mailed()).toHaveLength(1);
  expect(mailed()[0]?.text).toContain("There were 2 others of this kind");
  const problems = (await deliveries(accountId)).map(({ problem }) => problem);
  expect(problems.filter((problem) => problem.endsWith("counted it."))).toHaveLength(2);

  // Within the hour it waits, and another kind does not.
  const { key } = await nodes.keys.createKey({ accountId, settings: { name: "four" } });
  await nodes.keys.pauseKey(key?.keyId ?? "");
  await look(node);
  await until(states).toEqual(["sent", "sent", "sent", "sent", "waiting"]);
  expect(mailed()).toHaveLength(2);
  expect(mailed()[1]?.text).toContain("was paused");
  await age(accountId, "61 minutes");
  await until(states).not.toContain("waiting");
  await node.alerts.stop();
  expect(mailed()).toHaveLength(3);
  expect(mailed()[2]?.text).not.toContain("of this kind");
});

test("an account gets fifty mails a day, and the rest is on its page", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "fred");
  await nodes.run(
    `with raised as (
       insert into alerts (alert_id, account_id, kind, facts, on_page)
         select 'new_place/' || $1 || '/' || n, $1, 'new_place', '{}', true
         from generate_series(1, 50) n
         returning alert_id, account_id
     )
     insert into alert_deliveries (alert_id, channel, account_id, state, ends_at)
       select alert_id, 'mail:per_old', account_id, 'sent', now() + interval '1 day' from raised`,
    [accountId],
  );
  const node = nodes.node({ mailer: mailer() });
  await nodes.keys.createKey({ accountId, settings: { name: "beyond" } });
  await look(node);
  node.alerts.start();
  // Another account is mailed meanwhile.
  const other = await nodes.payer(0n);
  await nodes.person(other.accountId, "frida");
  await nodes.keys.createKey({ accountId: other.accountId, settings: { name: "usual" } });
  await look(node);
  await until(async () => (await deliveries(other.accountId))[0]?.state).toBe("sent");
  const toFred = () => smtp.mails.filter(({ to }) => to.includes("fred@example.com"));
  expect(toFred()).toEqual([]);
  expect(await titlesOf(accountId)).toContain("The key “beyond” was created.");
  await age(accountId, "24 hours");
  await until(async () => toFred().length).toBe(1);
  await node.alerts.stop();
});

test("a mail server that is away for an hour loses nothing, and stops no other delivery", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "otto");
  const gone = await startSilentServer();
  await gone.stop();
  const away = nodes.node({
    mailer: createMailer({ url: new URL(gone.url), from: "gw@localhost" }),
  });
  await nodes.keys.createKey({ accountId, settings: { name: "kept" } });
  await look(away);
  away.alerts.start();
  await until(async () => (await deliveries(accountId))[0]?.failures).toBe(1);
  // As often as within an hour.
  for (let failures = 2; failures <= 8; failures++) {
    await nodes.makeDeliveriesDue();
    await until(async () => (await deliveries(accountId))[0]?.failures).toBe(failures);
  }
  await away.alerts.stop();
  const [waiting] = await deliveries(accountId);
  expect([waiting?.state, waiting?.problem]).toEqual([
    "waiting",
    "The mail server cannot be reached",
  ]);
  await nodes.makeDeliveriesDue();
  const back = nodes.node({ mailer: mailer() });
  back.alerts.start();
  await until(async () => (await deliveries(accountId))[0]?.state).toBe("sent");
  await back.alerts.stop();
  expect(smtp.mails.filter(({ to }) => to.includes("otto@example.com"))).toHaveLength(1);
});

test("an address that is refused for good, and a person who left, are given up", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "rita");
  const left = await nodes.person(accountId, "lena");
  const node = nodes.node({ mailer: mailer() });
  await nodes.keys.createKey({ accountId, settings: { name: "refused" } });
  await look(node);
  await nodes.run("delete from members where person_id = $1", [left]);
  refusal = { code: 550, message: "no such user" };
  node.alerts.start();
  await until(async () => (await deliveries(accountId)).map(({ state }) => state)).toEqual([
    "failed",
    "failed",
  ]);
  await node.alerts.stop();
  expect(smtp.mails.filter(({ to }) => to.includes("lena@example.com"))).toEqual([]);
  // What became of it is seen by owners.
  const { alerts } = await nodes.as(member(accountId)).listAlerts({ accountId });
  expect(alerts[0]?.deliveries.map(({ state }) => state)).toEqual([
    DeliveryState.FAILED,
    DeliveryState.FAILED,
  ]);
  const seen = await nodes.as(member(accountId, AccountRole.VIEWER)).listAlerts({ accountId });
  expect(seen.alerts[0]?.deliveries).toEqual([]);
});

test("what a mail server says of an address names no whole one to owners or in the log", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.person(accountId, "mara");
  const lines: unknown[] = [];
  const log = Object.assign(createLog("silent"), { warn: (line: unknown) => lines.push(line) });
  const node = nodes.node({ mailer: mailer(), log });
  await nodes.keys.createKey({ accountId, settings: { name: "refused" } });
  await look(node);
  refusal = { code: 550, message: "<mara@example.com> moved to mara.new@example.org" };
  const problem = "The mail server refused the mail: 550 <m…@example.com> moved to m…@example.org";
  node.alerts.start();
  await until(async () => (await deliveries(accountId))[0]?.state).toBe("failed");
  await node.alerts.stop();
  const asOwner = nodes.as(member(accountId));
  const { alerts } = await asOwner.listAlerts({ accountId });
  expect(alerts[0]?.deliveries.map((one) => one.problem)).toEqual([problem]);
  const listed = await asOwner.listDeliveries({ accountId });
  expect(listed.deliveries.map(({ delivery }) => delivery?.problem)).toEqual([problem]);
  expect(lines).toEqual([expect.objectContaining({ code: "alert_not_delivered", problem })]);
  expect(inspect(lines, { depth: 9 })).not.toContain("mara");
});

test("a webhook is tried six times, and given up with its problem", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.as(member(accountId)).updateAlertSettings({
    accountId,
    settings: settingsBy({ webhook: true }),
    updateMask: allSettings,
  });
  let posts = 0;
  const node = nodes.node({
    post: async () => {
      posts++;
      throw new Error("whatever");
    },
  });
  await nodes.keys.createKey({ accountId, settings: { name: "hooked" } });
  await look(node);
  node.alerts.start();
  for (let failures = 1; failures <= 6; failures++) {
    await until(async () => (await deliveries(accountId))[0]?.failures).toBe(failures);
    await nodes.makeDeliveriesDue();
  }
  await node.alerts.stop();
  expect([posts, (await deliveries(accountId))[0]?.state]).toEqual([6, "failed"]);
  // Neither page nor mail was asked for.
  expect(await titlesOf(accountId)).toEqual([]);
});

test("an account whose receiver fails keeps no other account waiting", async () => {
  const [slow, fast] = [await nodes.payer(0n), await nodes.payer(0n)];
  for (const { accountId } of [slow, fast])
    await nodes.as(member(accountId)).updateAlertSettings({
      accountId,
      settings: {
        ...settingsBy({ webhook: true }),
        webhookUrl: `https://hooks.example/${accountId}`,
      },
      updateMask: allSettings,
    });
  const posted: string[] = [];
  const node = nodes.node({
    post: async ({ url }) => {
      posted.push(new URL(url).pathname.slice(1));
      if (url.endsWith(slow.accountId)) throw new Error("away");
    },
  });
  for (let index = 0; index < 30; index++)
    await nodes.keys.createKey({ accountId: slow.accountId, settings: { name: `slow ${index}` } });
  await look(node);
  await nodes.keys.createKey({ accountId: fast.accountId, settings: { name: "fast" } });
  await look(node);
  node.alerts.start();
  await until(async () => (await deliveries(fast.accountId))[0]?.state).toBe("sent");
  await node.alerts.stop();
  // One attempt, then the others wait as well.
  expect(posted.filter((one) => one === slow.accountId)).toHaveLength(1);
});

test("what a process that died had taken is delivered by another, with the same id", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.as(member(accountId)).updateAlertSettings({
    accountId,
    settings: settingsBy({ page: true, webhook: true }),
    updateMask: allSettings,
  });
  const ids: string[] = [];
  const bodies: unknown[] = [];
  const dead = nodes.node({
    // It has sent the post, and never learns what became of it.
    post: async (_, { id }, signal) => {
      ids.push(id);
      await new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
      );
    },
  });
  await nodes.keys.createKey({ accountId, settings: { name: "twice" } });
  await look(dead);
  dead.alerts.start();
  await until(async () => ids.length).toBe(1);
  const other = nodes.node({
    post: async (_, { id, body }) => {
      ids.push(id);
      bodies.push(JSON.parse(body));
    },
  });
  await nodes.makeDeliveriesDue();
  other.alerts.start();
  await until(async () => (await deliveries(accountId))[0]?.state).toBe("sent");
  await other.alerts.stop();
  await dead.alerts.stop();
  const [first] = ids;
  expect(ids).toEqual([first, first]);
  const { checkPost } = await checker();
  checkPost("alert", bodies[0]);
  expect(await titlesOf(accountId)).toHaveLength(1);
});

// The methods.

test("settings are kept, and the secret of a webhook is shown once", async () => {
  const { accountId } = await nodes.payer(0n);
  const owner = nodes.as(member(accountId));
  const before = await owner.listAlerts({ accountId });
  expect([before.settings?.belowDays, before.settings?.rules.length]).toEqual([3, 15]);
  const settings = { ...settingsBy({ mail: true, webhook: true }), belowDays: 7 };
  const set = await owner.updateAlertSettings({ accountId, settings, updateMask: allSettings });
  expect(set.webhookSecret).toMatch(/^whsec_[0-9A-Za-z+/]{43}=$/);
  const { settings: kept } = await owner.listAlerts({ accountId });
  expect(kept).toEqual(set.settings);
  expect(
    JSON.stringify(kept, (_, value) => (typeof value === "bigint" ? "" : value)),
  ).not.toContain("whsec_");
  // The same host keeps its secret, another one gets another.
  const again = async (webhookUrl: string, newWebhookSecret = false) =>
    (
      await owner.updateAlertSettings({
        accountId,
        settings: { ...settings, webhookUrl },
        updateMask: allSettings,
        rotateWebhookSecret: newWebhookSecret,
      })
    ).webhookSecret;
  expect(await again("https://hooks.example/other")).toBe("");
  expect(await again("https://hooks.example/other", true)).toMatch(/^whsec_/);
  expect(await again("https://elsewhere.example/")).toMatch(/^whsec_/);
});

test("an update changes the settings that its mask names, and no others", async () => {
  const { accountId } = await nodes.payer(0n);
  const owner = nodes.as(member(accountId));
  const update = (...paths: string[]) => ({ accountId, updateMask: { paths } });
  const all = { ...settingsBy({ webhook: true }), belowDays: 7, percents: [50] };
  const first = await owner.updateAlertSettings({
    accountId,
    settings: all,
    updateMask: allSettings,
  });
  expect.assert(first.settings);
  const settings = { belowDays: 9 };
  const second = await owner.updateAlertSettings({ ...update("below_days"), settings });
  expect(second).toMatchObject({
    settings: { ...first.settings, belowDays: 9 },
    webhookSecret: "",
  });
  // What is named and absent is cleared: of percents, to the defaults.
  const third = await owner.updateAlertSettings(update("below_days", "percents"));
  const { belowDays, percents, webhookUrl } = third.settings ?? {};
  expect([belowDays, percents, webhookUrl]).toEqual([undefined, [80, 100], all.webhookUrl]);
  // The address is gone, which the rules need.
  for (const [request, field] of [
    [update("webhook_url"), "settings.webhook_url"],
    [{ accountId }, "update_mask"],
    [{ ...update(), rotateWebhookSecret: true }, "update_mask"],
    [update("*"), "update_mask"],
    [update("secret"), "update_mask"],
    [{ ...update("percents"), settings }, "settings.below_days"],
    [{ accountId, settings, rotateWebhookSecret: true }, "update_mask"],
  ] as const)
    expect(await errorOf(owner.updateAlertSettings(request))).toContain(field);
  const rotated = await owner.updateAlertSettings({ accountId, rotateWebhookSecret: true });
  expect(rotated.webhookSecret).toMatch(/^whsec_/);
  expect(rotated.settings).toEqual(third.settings);
});

test("two first updates at once keep the settings of both", async () => {
  const { accountId } = await nodes.payer(0n);
  const owner = nodes.as(member(accountId));
  await Promise.all([
    owner.updateAlertSettings({
      accountId,
      settings: { belowDays: 9 },
      updateMask: { paths: ["below_days"] },
    }),
    owner.updateAlertSettings({
      accountId,
      settings: { percents: [50] },
      updateMask: { paths: ["percents"] },
    }),
  ]);
  const { settings } = await owner.listAlerts({ accountId });
  expect([settings?.belowDays, settings?.percents]).toEqual([9, [50]]);
});

test("settings that cannot be are refused at their field, and change nothing", async () => {
  const { accountId } = await nodes.payer(0n);
  const owner = nodes.as(member(accountId));
  const { KEY_CREATED, PROVIDER_ALARM } = AlertKind;
  type Settings = MessageInitShape<typeof AlertSettingsSchema>;
  const wrong: readonly (readonly [Settings, string])[] = [
    [{ belowMicrocredits: 0n }, "settings.below_microcredits"],
    [{ belowMicrocredits: -1n }, "settings.below_microcredits"],
    [{ belowMicrocredits: 2n ** 62n }, "settings.below_microcredits"],
    [{ belowDays: 0 }, "settings.below_days"],
    [{ belowDays: 366 }, "settings.below_days"],
    [{ percents: [80, 0] }, "settings.percents[1]"],
    [{ percents: [101] }, "settings.percents[0]"],
    [{ percents: [50, 80, 50] }, "settings.percents[2]"],
    [{ percents: Array.from({ length: 11 }, (_, index) => index + 1) }, "settings.percents"],
    [{ webhookUrl: "http://hooks.example/" }, "settings.webhook_url"],
    [{ webhookUrl: "nonsense" }, "settings.webhook_url"],
    [{ rules: [{ kind: KEY_CREATED, channels: [AlertChannel.WEBHOOK] }] }, "settings.webhook_url"],
    [{ rules: [{ kind: PROVIDER_ALARM }] }, "settings.rules[0].kind"],
    [{ rules: [{ kind: KEY_CREATED }, { kind: KEY_CREATED }] }, "settings.rules[1].kind"],
  ];
  for (const [settings, field] of wrong)
    expect(
      await errorOf(owner.updateAlertSettings({ accountId, settings, updateMask: allSettings })),
    ).toContain(field);
  const { settings } = await owner.listAlerts({ accountId });
  expect(settings?.belowDays).toBe(3);
  const operator = nodes.as(environmentToken);
  expect(
    await errorOf(
      operator.updateAlertSettings({
        allAccounts: true,
        settings: { belowDays: 3 },
        updateMask: allSettings,
      }),
    ),
  ).toContain("settings.below_days");
  expect(
    await errorOf(
      operator.updateAlertSettings({
        allAccounts: true,
        settings: { percents: [80] },
        updateMask: allSettings,
      }),
    ),
  ).toContain("settings.percents");
  expect((await operator.listAlerts({ allAccounts: true })).settings?.percents).toEqual([]);
  expect(
    await errorOf(
      operator.updateAlertSettings({
        accountId: "acc_none",
        settings: {},
        updateMask: allSettings,
      }),
    ),
  ).toContain("not_found");
});

test("only owners and operator admins set alerts, and only after a confirmation", async () => {
  const { accountId } = await nodes.payer(0n);
  const set = (caller: Caller) =>
    errorOf(
      nodes.as(caller).updateAlertSettings({ accountId, settings: {}, updateMask: allSettings }),
    );
  expect(await set(member(accountId, AccountRole.MEMBER))).toContain("not_permitted");
  const owner = member(accountId);
  if (owner.kind !== "person") return expect.unreachable();
  expect(await set({ ...owner, strongUntil: undefined })).toContain("confirm_identity");
  const support = { ...owner, memberships: [], operator: OperatorRole.SUPPORT };
  expect(await set(support)).toContain("not_permitted");
  await nodes.as(support).listAlerts({ allAccounts: true });
});

test("an alert is marked as read for everybody, and lists go on at their page", async () => {
  const { accountId } = await nodes.payer(0n);
  for (let index = 0; index < 5; index++)
    await nodes.keys.createKey({ accountId, settings: { name: `key ${index}` } });
  await look();
  const owner = nodes.as(member(accountId));
  const all = await owner.listAlerts({ accountId });
  const first = await owner.listAlerts({ accountId, pageSize: 2 });
  const rest = await owner.listAlerts({ accountId, pageSize: 3, pageToken: first.nextPageToken });
  const ids = [...first.alerts, ...rest.alerts].map(({ alertId }) => alertId);
  expect(ids).toEqual(all.alerts.map(({ alertId }) => alertId));
  expect([ids.length, rest.nextPageToken]).toEqual([5, ""]);
  const [alertId = ""] = ids;
  await nodes.as(member(accountId, AccountRole.MEMBER)).dismissAlert({ accountId, alertId });
  await owner.dismissAlert({ accountId, alertId });
  const unread = await owner.listAlerts({ accountId, unread: true });
  expect(unread.alerts.map((one) => one.alertId)).toEqual(ids.slice(1));
  const viewer = nodes.as(member(accountId, AccountRole.VIEWER));
  expect(await errorOf(viewer.dismissAlert({ accountId, alertId }))).toContain("not_permitted");
});

test("a webhook is tested once in five seconds, and its problem is told", async () => {
  const { accountId } = await nodes.payer(0n);
  const bodies: unknown[] = [];
  const node = nodes.node({
    post: async (_, { body }) => {
      bodies.push(JSON.parse(body));
    },
  });
  const owner = node.as(member(accountId));
  expect(await errorOf(owner.testWebhook({ accountId }))).toContain("wrong_state");
  await owner.updateAlertSettings({
    accountId,
    settings: settingsBy({ webhook: true }),
    updateMask: allSettings,
  });
  expect((await owner.testWebhook({ accountId })).problem).toBe("");
  expect(bodies).toEqual([expect.objectContaining({ type: "alert.test" })]);
  const { checkPost } = await checker();
  checkPost("alert", bodies[0]);
  expect(() => checkPost("alert", { ...Object(bodies[0]), type: "alert.none" })).toThrow();
  expect(await errorOf(owner.testWebhook({ accountId }))).toContain("rate_limited");
  // The real post: nobody is there.
  await owner.updateAlertSettings({
    accountId,
    settings: { ...settingsBy({ webhook: true }), webhookUrl: "https://127.0.0.1/" },
    updateMask: allSettings,
  });
  const { problem } = await nodes.as(member(accountId)).testWebhook({ accountId });
  expect(problem).toBe("The address of the host is not a public one");
});

test("old alerts are removed with their deliveries", async () => {
  const { accountId } = await nodes.payer(0n);
  await nodes.run(
    `insert into alerts (alert_id, account_id, kind, facts, on_page, raised_at)
       values ('old', $1, 'key_created', '{}', true, now() - interval '181 days'),
         ('new', $1, 'key_created', '{}', true, now() - interval '179 days')`,
    [accountId],
  );
  await look();
  expect((await nodes.raised(accountId)).map(({ alert_id }) => alert_id)).toEqual(["new"]);
});
