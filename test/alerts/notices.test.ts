// What a buyer hears of his payments: each row of the rules tells its events once, by the channels
// that the account chose, whatever is repeated, killed, slow or away.

import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { AlertKind, NewestAlertsSchema } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type SimulatedDepositSchema,
  SimulatedEvent,
} from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import * as sql from "../../gen/sql/alerts.ts";
import { raise } from "../../src/alerts/raise.ts";
import { WebhookSecrets } from "../../src/alerts/secrets.ts";
import { createAlertStore } from "../../src/alerts/store.ts";
import { createAlertWatch } from "../../src/alerts/watch.ts";
import { createLog } from "../../src/base/log.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { allSettings, channelsBy } from "../support/alerts.ts";
import type { Fields } from "../support/keys.ts";
import { type Notices, type NoticesNode, startNotices } from "../support/notices.ts";
import { admin, memberOf, order } from "../support/payments.ts";

let stage: Notices;
let node: NoticesNode;
beforeEach(async () => {
  stage = await startNotices();
  node = stage.node();
});
afterEach(() => stage.stop());

const accountId = "acc_a";
const owner = memberOf(accountId, AccountRole.OWNER);
const paymentKinds = [
  ...["SEEN", "CREDITED", "SHORT", "LATE", "LOST", "REFUNDED", "DECIDED"].map(
    (name) => `PAYMENT_${name}`,
  ),
];
const kindOf = (name: string) => Object(AlertKind)[name];
const nameOf = (kind: AlertKind) =>
  Object.entries(AlertKind).find(([, number]) => number === kind)?.[0] ?? "";

/** Rules by which all kinds of payments go by these channels. */
const rulesBy = (channels: { page?: boolean; mail?: boolean; webhook?: boolean }) =>
  paymentKinds.map((name) => ({ kind: kindOf(name), channels: channelsBy(channels) }));

/** What happens to an order of 5 USD, and what is told of it, in order. */
type Case = {
  readonly name: string;
  readonly coin?: string;
  readonly packMicrodollars?: bigint;
  readonly run: (orderId: string) => Promise<unknown>;
  readonly told: readonly string[];
  /** True: a person has to look, which is told besides. */
  readonly waits?: boolean;
};

const pay =
  (amount: string, more: Fields<typeof SimulatedDepositSchema> = {}) =>
  (orderId: string) => {
    const value = { coins: amount, confirmations: 1, ...more };
    return node.payments.admin.simulateDeposit({ orderId, event: { case: "deposit", value } });
  };
const loses = async (orderId: string) => {
  const { order } = await node.payments.admin.getOrder({ orderId });
  const depositId = order?.deposits[0]?.depositId ?? "";
  const value = { depositId, lost: true };
  await node.payments.admin.simulateDeposit({ orderId, event: { case: "change", value } });
};
const look = (orderId: string) => node.look(orderId);
const steps =
  (...all: ((orderId: string) => Promise<unknown>)[]) =>
  async (orderId: string) => {
    for (const one of all) await one(orderId);
  };
const age = (minutes: number) => (orderId: string) => stage.age(orderId, minutes);
/** So long after the quote, which stands for 15 minutes. */
const over = age(20);
/** Before the quote is over. */
const early = { firstSeenAt: { seconds: BigInt(Math.floor(Date.now() / 1000) - 600) } };

async function refund(orderId: string): Promise<void> {
  const { beginRefund, completeRefund } = node.payments.admin;
  await beginRefund({
    ...{ orderId, reason: "asked for it" },
    what: { case: "amountMicrodollars", value: 5_000_000n },
  });
  await completeRefund({ orderId, transaction: "the-transaction-back" });
}
const decide =
  (choice: object) =>
  (orderId: string): Promise<unknown> =>
    node.payments.admin.decideOrder({ orderId, reason: "an internal reason", ...choice });
const grantOf = (grantedMicrodollars: bigint) => ({
  choice: {
    case: "grant" as const,
    value: { what: { case: "grantedMicrodollars" as const, value: grantedMicrodollars } },
  },
});

const cases: readonly Case[] = [
  { name: "nothing was paid", run: steps(look, over, look), told: [] },
  { name: "1: the pack is paid", run: steps(pay("5"), look), told: ["seen", "credited"] },
  {
    name: "1: within the tolerance",
    run: steps(pay("4.96"), look),
    told: ["seen", "credited"],
  },
  {
    name: "2: more than the pack",
    run: steps(pay("7"), look),
    told: ["seen", "credited"],
  },
  {
    name: "2: more than is credited without asking",
    run: steps(pay("70"), look),
    told: ["seen", "credited"],
    waits: true,
  },
  { name: "3: too little, the quote stands", run: steps(pay("2"), look), told: ["seen"] },
  {
    name: "4: too little, the quote is over",
    run: steps(pay("2", early), look, over, look),
    told: ["seen", "short", "credited"],
  },
  {
    name: "4: too little, and another coin that waits for a person",
    run: steps(
      pay("2", early),
      pay("0.0001", { asset: "BTC", network: "bitcoin", ...early }),
      ...[look, over, look],
    ),
    told: ["seen", "credited"],
    waits: true,
  },
  {
    name: "4: the rest comes later",
    run: steps(pay("2", early), look, over, look, pay("3"), look),
    told: ["seen", "short", "credited", "late", "credited"],
  },
  { name: "4: dust", run: steps(pay("0.99"), look, over, look), told: [] },
  {
    name: "4: dust that becomes a dollar",
    run: steps(pay("0.6"), look, pay("0.6"), look),
    told: ["seen"],
  },
  {
    name: "5: a stablecoin after the quote",
    run: steps(over, pay("5"), look),
    told: ["seen", "late", "credited"],
  },
  {
    name: "6: bitcoin after the quote, at the market's rate",
    coin: "btc",
    run: steps(over, pay("0.0001"), look),
    told: ["seen", "late", "credited"],
  },
  {
    name: "6: bitcoin after the quote, of unknown rate",
    coin: "btc",
    run: steps(
      over,
      pay("0.0001", { firstSeenAt: { seconds: BigInt(Math.floor(Date.now() / 1000) - 120) } }),
      look,
    ),
    told: ["seen", "late"],
    waits: true,
  },
  {
    name: "7: another coin",
    run: steps(pay("0.0001", { asset: "BTC", network: "bitcoin" }), look),
    told: ["seen"],
    waits: true,
  },
  {
    name: "8: what was credited is gone",
    run: steps(pay("5"), look, loses, look),
    told: ["seen", "credited", "lost"],
    waits: true,
  },
  {
    name: "9: the processor calls it paid",
    run: steps(
      (orderId) =>
        node.payments.admin.simulateDeposit({
          orderId,
          event: { case: "orderEvent", value: SimulatedEvent.MARKED },
        }),
      look,
    ),
    told: [],
    waits: true,
  },
  { name: "a refund", run: steps(pay("5"), look, refund), told: ["seen", "credited", "refunded"] },
  {
    name: "a person grants",
    run: steps(
      pay("0.0001", { asset: "BTC", network: "bitcoin" }),
      look,
      decide(grantOf(5_000_000n)),
    ),
    told: ["seen", "decided", "credited"],
  },
  {
    name: "a person closes",
    run: steps(
      pay("0.0001", { asset: "BTC", network: "bitcoin" }),
      look,
      decide({ choice: { case: "close" as const, value: {} } }),
    ),
    told: ["seen", "decided"],
  },
];

const orderOf = async (
  { coin = "usdt", packMicrodollars = 5_000_000n }: Case,
  by = admin,
): Promise<string> => (await order(node.payments.as(by), { coin, packMicrodollars })).orderId;

describe("each row of the rules", () => {
  for (const one of cases)
    test(`${one.name}: ${one.told.join(", ") || "nothing"}, once after 50 looks`, async () => {
      const orderId = await orderOf(one);
      await one.run(orderId);
      expect(await stage.events(orderId)).toEqual(one.told);
      for (let times = 0; times < 50; times++) {
        await node.look(orderId);
        if (times % 10 === 0) await node.notice();
      }
      await node.notice();
      expect(await stage.events(orderId)).toEqual(one.told);
      const waits = one.waits ? ["order_waiting"] : [];
      expect((await stage.told(orderId)).sort()).toEqual([...one.told, ...waits].sort());
    });
});

test("an update tells nobody what was seen, late or short before it", async () => {
  const orderId = await orderOf(found("5: a stablecoin after the quote"));
  const inAnHour = "quiet_before = now() + interval '1 hour'";
  await stage.run(`update payment_orders set ${inAnHour} where order_id = $1`, [orderId]);
  await steps(pay("2", early), look, over, look, pay("3"), look)(orderId);
  expect(await stage.events(orderId)).toEqual(["credited", "credited"]);
});

/** By what an account without settings hears of each kind. */
const byDefault = {
  PAYMENT_SEEN: { page: true, mail: false, to: ["buyer", "olga"] },
  PAYMENT_CREDITED: { page: true, mail: true, to: ["buyer", "olga"] },
  PAYMENT_SHORT: { page: true, mail: true, to: ["buyer", "olga"] },
  PAYMENT_LATE: { page: true, mail: true, to: ["buyer", "olga"] },
  PAYMENT_LOST: { page: true, mail: true, to: ["olga"] },
  PAYMENT_REFUNDED: { page: true, mail: true, to: ["buyer", "olga"] },
  PAYMENT_DECIDED: { page: true, mail: true, to: ["buyer", "olga"] },
} as const;
const caseOf: Readonly<Record<keyof typeof byDefault, string>> = {
  PAYMENT_SEEN: "3: too little, the quote stands",
  PAYMENT_CREDITED: "1: the pack is paid",
  PAYMENT_SHORT: "4: too little, the quote is over",
  PAYMENT_LATE: "5: a stablecoin after the quote",
  PAYMENT_LOST: "8: what was credited is gone",
  PAYMENT_REFUNDED: "a refund",
  PAYMENT_DECIDED: "a person closes",
};
const found = (name: string): Case => {
  const one = cases.find((candidate) => candidate.name === name);
  if (!one) throw new Error(`there is no case ${name}`);
  return one;
};

describe("kinds and channels", () => {
  const buyer = { ...memberOf(accountId, AccountRole.MEMBER), personId: "per_buyer" };
  const ofKind = async (kind: string) => {
    const rows = await stage.run<{ alert_id: string; on_page: boolean; channels: string[] }>(
      `select a.alert_id, a.on_page,
         array(select d.channel from alert_deliveries d where d.alert_id = a.alert_id
           order by 1) as channels
       from alerts a where a.kind = $1`,
      [kind.toLowerCase()],
    );
    return rows.map(({ on_page: page, channels }) => ({ page, channels }));
  };
  beforeEach(async () => {
    await stage.member("olga");
    await stage.member("buyer", "member");
    await stage.member("someone", "member");
  });

  test("the settings of an account that has set nothing are this table, and each kind has a row", async () => {
    const { settings } = await node.as(owner).listAlerts({ accountId });
    const shown = settings?.rules.map(({ kind, channels }) => [nameOf(kind), channels]);
    const others = [
      ...["CREDITS_LOW", "CAP_REACHED", "KEY_CREATED", "NEW_PLACE", "KEY_STOPPED"],
      ...["KEY_MISPLACED", "ORDER_WAITING", "WEBHOOK_OFF"],
    ];
    expect(Object.fromEntries(shown ?? [])).toEqual({
      ...Object.fromEntries(others.map((kind) => [kind, channelsBy({ page: true, mail: true })])),
      ...Object.fromEntries(
        Object.entries(byDefault).map(([kind, { page, mail }]) => [
          kind,
          channelsBy({ page, mail }),
        ]),
      ),
    });
  });

  for (const [kind, { mail, to }] of Object.entries(byDefault)) {
    const one = found(Object(caseOf)[kind]);
    test(`${kind} without settings: page${mail ? `, mail to ${to.join(" and ")}` : ""}`, async () => {
      await one.run(await orderOf(one, buyer));
      await node.notice();
      const channels = mail ? to.map((name) => `mail:per_${name}`) : [];
      expect(await ofKind(kind)).toEqual([{ page: true, channels }]);
    });
    for (const channel of ["page", "mail", "webhook"] as const)
      test(`${kind} by ${channel} alone`, async () => {
        await node.as(owner).updateAlertSettings({
          accountId,
          settings: {
            rules: [{ kind: kindOf(kind), channels: channelsBy({ [channel]: true }) }],
            webhookUrl: channel === "webhook" ? "https://hooks.example/alerts" : "",
          },
          updateMask: allSettings,
        });
        const orderId = await orderOf(one, buyer);
        await one.run(orderId);
        await node.notice();
        const mails = to.map((name) => `mail:per_${name}`);
        expect(await ofKind(kind)).toEqual([
          {
            page: channel === "page",
            channels: channel === "mail" ? mails : channel === "webhook" ? ["webhook"] : [],
          },
        ]);
        // No other kind has a rule.
        expect(await stage.told(orderId)).toEqual([kind.replace("PAYMENT_", "").toLowerCase()]);
        if (channel !== "webhook") return;
        node.alerts.start();
        await expect.poll(() => stage.posts.length).toBe(1);
        const body = JSON.parse(stage.posts[0]?.body ?? "");
        expect(body.type).toBe(`alert.${kind.toLowerCase()}`);
        expect(body.data.facts).toMatchObject({ order_id: orderId, family: "v1" });
      });
    test(`${kind} switched off`, async () => {
      await node.as(owner).updateAlertSettings({
        accountId,
        settings: { rules: rulesBy({}) },
        updateMask: allSettings,
      });
      const orderId = await orderOf(one, buyer);
      await one.run(orderId);
      await node.notice();
      expect(await stage.told(orderId)).toEqual([]);
      // Nor is it told once it is switched on: that is past.
      await node.as(owner).updateAlertSettings({
        accountId,
        settings: { rules: rulesBy({ page: true }) },
        updateMask: allSettings,
      });
      await node.notice();
      expect(await stage.told(orderId)).toEqual([]);
    });
  }
});

test("facts have ids and whole numbers for programs, beside words for people", async () => {
  const orderId = await orderOf(found("1: the pack is paid"));
  await found("1: the pack is paid").run(orderId);
  await node.notice();
  const { alerts } = await node.as(owner).listAlerts({ accountId });
  const [transfer] = await stage.transfers();
  const credited = alerts.find(({ kind }) => kind === AlertKind.PAYMENT_CREDITED);
  expect(credited).toMatchObject({
    orderId,
    title: "1000 credits were added to the pool v1.",
    facts: {
      ...{ order_id: orderId, transfer_id: transfer?.transferId, family: "v1" },
      ...{ microcredits: "1000000000", credits: "1000", usd_micro: "5000000", usd: "5.00" },
      ...{ asset: "USDT", amount: "5", document: expect.stringMatching(/^R\d{4}-\d{6}$/) },
    },
  });
  const { order: shown } = await node.payments.admin.getOrder({ orderId });
  expect(shown?.events.map(({ facts }) => facts.amount)).toEqual(["5", "5"]);
});

// Exactly once.

/** Fails behind so many statements, counted from 0, of transactions and of others. */
function killing(kill: { at: number }): (postgres: Postgres) => Postgres {
  const count = (runner: Runner): Runner["run"] => {
    return async (statement, ...parameters) => {
      const result = await runner.run(statement, ...parameters);
      if (kill.at-- === 0) throw new Error("killed");
      return result;
    };
  };
  return (postgres) => ({
    ...postgres,
    run: count(postgres),
    transaction: (work, settings) =>
      postgres.transaction((tx) => work({ run: count(tx) }), settings),
  });
}

test("a process that dies behind any statement loses no notice, and doubles none", async () => {
  await stage.member("olga");
  const kill = { at: Number.POSITIVE_INFINITY };
  const dying = stage.node({ wrap: killing(kill) });
  const one = found("5: a stablecoin after the quote");
  let deaths = 0;
  for (; ; deaths++) {
    const orderId = await orderOf(one);
    await over(orderId);
    await pay("5")(orderId);
    kill.at = deaths;
    await dying.look(orderId).catch(() => undefined);
    // A look for alerts takes no error of its sources.
    if (kill.at >= 0) await dying.notice().catch(() => undefined);
    const isKilled = kill.at < 0;
    kill.at = Number.POSITIVE_INFINITY;
    // Another process goes on.
    await node.look(orderId);
    await node.notice();
    expect(await stage.events(orderId), `killed behind ${deaths}`).toEqual(one.told);
    expect(await stage.told(orderId)).toEqual([...one.told].sort());
    if (!isKilled) break;
  }
  // A look and its credits, and the look for alerts, have many more than these.
  expect(deaths).toBeGreaterThan(20);
  const mails = (await stage.deliveries()).map(({ alert_id, channel }) => `${alert_id} ${channel}`);
  expect(new Set(mails).size).toBe(mails.length);
  expect(mails).toHaveLength(2 * (deaths + 1));
}, 120_000);

test("two nodes that look and tell at once send one mail of each", async () => {
  await stage.member("olga");
  const nodes = [stage.node(), stage.node()];
  const orderIds: string[] = [];
  for (let times = 0; times < 5; times++)
    orderIds.push(await orderOf(found("1: the pack is paid")));
  for (const orderId of orderIds) await pay("5")(orderId);
  for (const one of nodes) one.alerts.start();
  await Promise.all(
    orderIds.flatMap((orderId) => nodes.map((one) => one.look(orderId).catch(() => undefined))),
  );
  await stage.run("delete from leases where task = 'alerts'");
  await Promise.all(nodes.map((one) => one.alerts.look()));
  for (const one of nodes) await one.notice();
  await expect.poll(() => stage.smtp.mails.length).toBe(5);
  await expect
    .poll(async () => (await stage.deliveries()).map(({ state }) => state))
    .toEqual(Array(5).fill("sent"));
  for (const one of nodes) await one.notice();
  for (const one of nodes) await one.alerts.stop();
  expect(stage.smtp.mails).toHaveLength(5);
  for (const orderId of orderIds) expect(await stage.told(orderId)).toEqual(["credited", "seen"]);
});

test("an event that is committed after a later one was read is told all the same", async () => {
  const [slow, quick] = [
    await orderOf(found("1: the pack is paid")),
    await orderOf(found("1: the pack is paid")),
  ];
  const { promise: waits, resolve: goOn } = Promise.withResolvers<void>();
  const { promise: isInserted, resolve: inserted } = Promise.withResolvers<void>();
  const holding = stage.node({
    wrap: (postgres) => ({
      ...postgres,
      transaction: (work, settings) =>
        postgres.transaction(async (tx) => {
          const result = await work(tx);
          inserted();
          await waits;
          return result;
        }, settings),
    }),
  });
  await pay("2")(slow);
  const looking = holding.look(slow);
  await isInserted;
  await pay("5")(quick);
  await node.look(quick);
  await node.notice();
  expect(await stage.told(quick)).toEqual(["credited", "seen"]);
  expect(await stage.told(slow)).toEqual([]);
  goOn();
  await looking;
  await node.notice();
  expect(await stage.told(slow)).toEqual(["seen"]);
});

test("the process that wrote an event wakes the mail, before the next look of alerts", async () => {
  await stage.member("olga");
  // What is told besides may fail.
  const quick = stage.node({
    isStarted: true,
    wrap: (postgres) => ({
      ...postgres,
      run: (statement, ...parameters) =>
        statement.name === "alerts/list-switched-off"
          ? Promise.reject(new Error("webhooks cannot be read"))
          : postgres.run(statement, ...parameters),
    }),
  });
  // Somebody else looks for alerts, for the whole test.
  await stage.run(
    `insert into leases (task, holder, taken_at, until)
     values ('alerts', 'other', now(), now() + interval '1 day')
     on conflict (task) do update set holder = excluded.holder, until = excluded.until`,
  );
  quick.alerts.start();
  const orderId = await orderOf(found("1: the pack is paid"));
  await pay("5")(orderId);
  await stage.until(() => expect(stage.smtp.mails).toHaveLength(1));
  const [mail] = stage.smtp.mails;
  expect(mail?.text).toContain("1000 credits were added to the pool v1.");
  expect(mail?.text).toContain(`http://localhost:8080/console/acc_a/credits/orders/${orderId}`);
  // The receipt as text.
  expect(mail?.text).toMatch(/Receipt R\d{4}-\d{6} of \d{4}-\d{2}-\d{2}/);
  expect(mail?.text).toContain("Total: 1000 credits, 5.00 USD");
});

// Each would wait for two minutes at least: for the next look of all, or for the lease to end.
test.for([
  ["payments/list-unread-events", 0],
  ["alerts/find-new", 0],
  ["alerts/read-settings", 0],
  ["people/list-recipients", 0],
  ["alerts/insert-alerts", 0],
  ["payments/mark-events-read", 0],
  ["alerts/list-switched-off", 0],
  ["alerts/claim-mails", 0],
  // Of the mail that was taken.
  ["people/list-recipients", 1],
  ["payments/list-documents", 0],
] as const)("a mail leaves soon although %s fails once, after %i times", async ([name, times]) => {
  await stage.member("olga");
  // Somebody else looks for alerts, for the whole test.
  await stage.run(
    `insert into leases (task, holder, taken_at, until)
     values ('alerts', 'other', now(), now() + interval '1 day')
     on conflict (task) do update set holder = excluded.holder, until = excluded.until`,
  );
  let runs = 0;
  const flaky = stage.node({
    wrap: (postgres) => ({
      ...postgres,
      run: (statement, ...parameters) =>
        statement.name === name && runs++ === times
          ? Promise.reject(new Error("the connection broke"))
          : postgres.run(statement, ...parameters),
    }),
  });
  const orderId = await orderOf(found("1: the pack is paid"));
  await pay("5")(orderId);
  await node.look(orderId);
  flaky.alerts.start();
  await expect.poll(() => stage.smtp.mails.length).toBe(1);
  await flaky.alerts.stop();
  expect(runs).toBeGreaterThan(times);
  expect(stage.smtp.mails[0]?.text).toContain("1000 credits were added to the pool v1.");
});

test("events add at most one statement to a look at an order, and one to a look for alerts", async () => {
  const ran: string[] = [];
  const counting = (runner: Runner): Runner["run"] => {
    return (statement, ...parameters) => {
      ran.push(statement.name);
      return runner.run(statement, ...parameters);
    };
  };
  const counted = stage.node({
    mailer: null,
    wrap: (postgres) => ({
      ...postgres,
      run: counting(postgres),
      transaction: (work, settings) =>
        postgres.transaction((tx) => work({ run: counting(tx) }), settings),
    }),
  });
  const ofEvents = () => ran.filter((name) => /event/.test(name) && name.startsWith("payments/"));
  for (const one of cases) {
    const orderId = await orderOf(one);
    await one.run(orderId);
    ran.length = 0;
    await counted.look(orderId);
    // Nothing is new.
    expect([one.name, ofEvents()]).toEqual([one.name, []]);
  }
  const orderId = await orderOf(found("5: a stablecoin after the quote"));
  await over(orderId);
  await pay("5")(orderId);
  ran.length = 0;
  await counted.look(orderId);
  // What was seen and what came late by one statement; the credits with their transfer.
  expect(ofEvents()).toEqual(["payments/insert-events"]);
  await node.notice();
  ran.length = 0;
  await counted.notice();
  expect(ofEvents()).toEqual(["payments/list-unread-events"]);
});

// Bounds of mails.

/** Lets something become of payments of an account so often at once. */
const happen = (orderId: string, times: number) =>
  stage.run(
    `insert into payment_events (order_id, kind, subject, facts)
     select $1, 'payment_late', 'made-' || n,
       '{"asset": "BTC", "amount": "0.5", "rated": "person"}'
     from generate_series(1, $2::integer) n`,
    [orderId, times],
  );

test("10,000 events while mail is away become at most 20 mails a day, and the last counts the others", async () => {
  await stage.member("olga");
  await stage.member("otto");
  const refused = { isAway: true };
  const taken: { to: string; text: string }[] = [];
  const { MailError } = await import("../../src/mail/mail.ts");
  const slow = stage.node({
    mailer: {
      async send({ to, text }) {
        if (refused.isAway) throw new MailError("The mail server cannot be reached", false, "");
        taken.push({ to, text });
      },
      close() {},
    },
  });
  const orderId = await orderOf(found("nothing was paid"));
  await happen(orderId, 10_000);
  await slow.notice();
  expect(await stage.told(orderId)).toHaveLength(10_000);
  slow.alerts.start();
  await vi.waitFor(async () => {
    const [{ tried = 0n } = {}] = await stage.run<{ tried: bigint }>(
      "select count(*) as tried from alert_deliveries where failures > 0",
    );
    expect(tried).toBe(2n);
  });
  // Each person's first mail is tried, and no other.
  refused.isAway = false;
  await stage.run("update alert_deliveries set next_at = now() where state = 'waiting'");
  const left = async () =>
    (
      await stage.run<{ left: bigint }>(
        "select count(*) as left from alert_deliveries where state = 'waiting'",
      )
    )[0]?.left;
  await expect.poll(left, { timeout: 60_000 }).toBe(0n);
  expect(taken).toHaveLength(20);
  for (const name of ["olga", "otto"]) {
    const own = taken.filter(({ to }) => to === `${name}@example.com`);
    const counts = own.map(({ text }) =>
      Number(/And ([\d,]+) more/.exec(text)?.[1]?.replace(",", "") ?? 0),
    );
    // Nothing is lost: each event is in a mail, or counted.
    expect(own.length + counts.reduce((sum, one) => sum + one, 0)).toBe(10_000);
    expect(counts.filter((one) => one > 0)).toHaveLength(1);
  }
  // A day later the next ones go.
  await happen(await orderOf(found("nothing was paid")), 3);
  await slow.notice();
  expect(taken).toHaveLength(20);
  await stage.run(
    "update alert_deliveries set next_at = next_at - interval '1 day' where state = 'sent'",
  );
  await expect.poll(left).toBe(0n);
  expect(taken).toHaveLength(26);
}, 180_000);

test("texts of customers bring neither markup nor line ends into mails", async () => {
  await stage.member("olga");
  const evil = "Eve\r\nBcc: all@example.com\r\n\r\n<a href=https://evil.example>click</a>";
  await stage.run("update accounts set name = $1 where account_id = 'acc_a'", [evil]);
  const orderId = await orderOf(found("1: the pack is paid"));
  await stage.run(
    `update payment_orders set buyer_name = $2, buyer_address = $2, buyer_tax_id = $2,
       asset = asset where order_id = $1`,
    [orderId, evil],
  );
  await pay("5")(orderId);
  await node.look(orderId);
  await stage.run(
    `insert into payment_events (order_id, kind, subject, facts) values
       ($1, 'payment_refunded', 'evil', jsonb_build_object('document', $2::text, 'tx', $2::text,
         'microcredits', '7')),
       ($1, 'payment_late', 'evil', jsonb_build_object('amount', $2::text, 'asset', $2::text,
         'rated', 'person')),
       ($1, 'payment_short', 'evil', jsonb_build_object('amount', $2::text, 'asset', $2::text,
         'until', $2::text, 'microcredits', '0'))`,
    [orderId, evil],
  );
  await node.notice();
  node.alerts.start();
  await expect.poll(() => stage.smtp.mails.length).toBe(4);
  for (const { headers, text, to } of stage.smtp.mails) {
    expect(to).toEqual(["olga@example.com"]);
    expect(headers.get("bcc")).toBeUndefined();
    expect([...headers.keys()].filter((name) => name.includes("example"))).toEqual([]);
    expect(text).not.toMatch(/[<>]|evil\.example|all@example|^Bcc/m);
  }
});

// The bell.

test("streams of an account share one reading, and none follows what changes elsewhere", async () => {
  const reads: string[] = [];
  let unread = 0;
  const watch = createAlertWatch({
    // No other process changes anything.
    store: { run: async () => Object([]) },
    read: async ({ accountId: id, hidesPeople }) => {
      reads.push(`${id} ${hidesPeople}`);
      return create(NewestAlertsSchema, { unread });
    },
    log: createLog("silent"),
  });
  const watching = new AbortController();
  const got: string[] = [];
  const streams = Array.from({ length: 101 }, async (_, index) => {
    const id = index === 100 ? "acc_b" : "acc_a";
    const watched = { accountId: id, hidesPeople: index % 2 === 1 };
    for await (const { newest } of watch.watch(watched, watching.signal))
      if (newest) got.push(`${id} ${newest.unread}`);
  });
  await expect.poll(() => got.length).toBe(101);
  const ofA = ["acc_a false", "acc_a true"];
  expect(reads.splice(0).sort()).toEqual([...ofA, "acc_b false"]);
  await expect(
    watch.watch({ accountId: "acc_a", hidesPeople: false }, watching.signal).next(),
  ).rejects.toMatchObject({ reason: "rate_limited" });
  unread = 1;
  watch.changed("acc_a");
  await expect.poll(() => got.filter((one) => one === "acc_a 1")).toHaveLength(100);
  expect(reads.sort()).toEqual(ofA);
  watching.abort();
  await Promise.allSettled(streams);
  await watch.stop();
});

test("an alert wakes the bell of its account only where it is new, or read for the first time", async () => {
  const postgres = connectPostgres(stage.url);
  onTestFinished(() => postgres.close());
  const store = createAlertStore(postgres, new WebhookSecrets([Buffer.alloc(32)]));
  const woken: string[] = [];
  const parts = {
    // As two processes that find the same at once.
    store: { ...store, findNew: async (alertIds: readonly string[]) => new Set(alertIds) },
    listRecipients: async () => [],
    mails: false,
    onRaised: (accountIds: readonly string[]) => woken.push(...accountIds),
  };
  const finding = { accountId, kind: "key_created" as const, about: "key", period: "", facts: {} };
  for (let times = 0; times < 2; times++) await raise(parts, [finding]);
  expect(woken).toEqual([accountId]);
  const dismiss = () =>
    store.run(sql.dismissAlert, {
      ...{ alertId: `key_created/${accountId}/key/`, accountId, hidesPeople: false },
    });
  expect(await dismiss()).toEqual({ isListed: true, isChanged: true });
  expect(await dismiss()).toEqual({ isListed: true, isChanged: false });
  await node.as(owner).dismissAlert({ accountId, alertId: `key_created/${accountId}/key/` });
});

test("WatchAlerts shows the newest at once, and what this and another node change, each once", async () => {
  const watching = new AbortController();
  const viewer = memberOf(accountId, AccountRole.VIEWER);
  const seen: { kinds: string[]; unread: number }[] = [];
  const other = stage.node();
  const stream = (async () => {
    for await (const { newest } of other
      .as(viewer)
      .watchAlerts({ accountId }, { signal: watching.signal }))
      if (newest)
        seen.push({
          kinds: newest.alerts.map(({ kind }) => nameOf(kind)),
          unread: newest.unread,
        });
  })().catch(() => undefined);
  await expect.poll(() => seen.length).toBe(1);
  const orderId = await orderOf(found("1: the pack is paid"));
  await pay("5")(orderId);
  await node.look(orderId);
  await node.notice();
  await expect.poll(() => seen.at(-1)?.unread, { timeout: 10_000 }).toBe(2);
  const { alerts } = await other.as(viewer).listAlerts({ accountId });
  const [newest] = alerts;
  await other.as(owner).dismissAlert({ accountId, alertId: newest?.alertId ?? "" });
  await expect.poll(() => seen.at(-1)?.unread).toBe(1);
  watching.abort();
  await stream;
  expect(seen[0]).toEqual({ kinds: [], unread: 0 });
  expect(seen.at(-1)?.kinds.toSorted()).toEqual(["PAYMENT_CREDITED", "PAYMENT_SEEN"]);
});
