// Deliveries of alerts as their account sees them: listed, sent again, in another form, signed with
// a sealed secret, and ended after days of failures.

import { afterEach, beforeEach, expect, test } from "vitest";
import { AlertKind, DeliveryState, WebhookForm } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { WebhookSecrets } from "../../src/alerts/secrets.ts";
import { type Webhook, WebhookError } from "../../src/alerts/webhook.ts";
import { allSettings, channelsBy } from "../support/alerts.ts";
import { errorOf } from "../support/keys.ts";
import { type Notices, type NoticesNode, startNotices } from "../support/notices.ts";
import { memberOf, order } from "../support/payments.ts";

const accountId = "acc_a";
const owner = memberOf(accountId, AccountRole.OWNER);
const hook = "https://hooks.example/alerts";

let stage: Notices;
beforeEach(async () => {
  stage = await startNotices();
});
afterEach(() => stage.stop());

const rules = [AlertKind.PAYMENT_SEEN, AlertKind.WEBHOOK_OFF].map((kind) => ({
  kind,
  channels: channelsBy({ page: true, mail: kind === AlertKind.WEBHOOK_OFF, webhook: true }),
}));
const settings = { rules, webhookUrl: hook };

/** Something that is posted. */
async function happens(node: NoticesNode): Promise<void> {
  const { orderId } = await order(node.payments.admin);
  await node.payments.admin.simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "2", confirmations: 0 } },
  });
  await node.look(orderId);
  await node.notice();
}
const posts = () =>
  stage.run<{ state: string; problem: string; failures: number }>(
    `select state, problem, failures from alert_deliveries where channel = 'webhook'
     order by made_at, alert_id`,
  );
const due = () => stage.run("update alert_deliveries set next_at = now() where state = 'waiting'");
/** Failed attempts that are over: none of them puts off what is due from now on. */
const failures = async () => (await posts()).reduce((sum, post) => sum + post.failures, 0);
const troubleOf = (node: NoticesNode) => node.as(owner).listAlerts({ accountId });

/** A receiver that does as `answer` says. */
function receiver() {
  const got: { webhook: Webhook; id: string; body: string }[] = [];
  const manners: { answer: () => void } = { answer: () => {} };
  const post = async (webhook: Webhook, { id, body }: { id: string; body: string }) => {
    got.push({ webhook, id, body });
    manners.answer();
  };
  const fail = (isGone = false) => {
    manners.answer = () => {
      throw new WebhookError("The receiver answered with status 500", { isGone });
    };
  };
  return { got, post, fail, manners };
}

test("deliveries are listed to owners, page by page, and kept for 30 days", async () => {
  await stage.member("olga");
  const { post, fail } = receiver();
  fail();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({
    accountId,
    settings: {
      ...settings,
      rules: [
        {
          kind: AlertKind.PAYMENT_SEEN,
          channels: channelsBy({ page: true, mail: true, webhook: true }),
        },
      ],
    },
    updateMask: allSettings,
  });
  await happens(node);
  await happens(node);
  node.alerts.start();
  await expect
    .poll(async () => (await stage.deliveries()).filter(({ state }) => state === "sent").length)
    .toBe(2);
  const all = await node.as(owner).listDeliveries({ accountId });
  expect(all.deliveries).toHaveLength(4);
  expect(all.deliveries[0]).toMatchObject({
    kind: AlertKind.PAYMENT_SEEN,
    title: "A payment of 2 USDT was seen.",
  });
  const paged: string[] = [];
  for (let pageToken = ""; ; ) {
    const page = await node.as(owner).listDeliveries({ accountId, pageSize: 1, pageToken });
    paged.push(...page.deliveries.map((one) => `${one.alertId} ${one.delivery?.personId}`));
    pageToken = page.nextPageToken;
    if (pageToken === "") break;
  }
  expect(paged).toEqual(all.deliveries.map((one) => `${one.alertId} ${one.delivery?.personId}`));
  expect((await node.as(owner).listDeliveries({ accountId, failed: true })).deliveries).toEqual([]);
  const viewer = node.as(memberOf(accountId, AccountRole.MEMBER));
  expect(await errorOf(viewer.listDeliveries({ accountId }))).toBe("not_permitted");

  await stage.run("update alert_deliveries set made_at = made_at - interval '31 days'");
  await node.notice();
  // What still waits is not forgotten.
  const left = await node.as(owner).listDeliveries({ accountId });
  expect(left.deliveries.map(({ delivery }) => delivery?.state)).toEqual([
    DeliveryState.WAITING,
    DeliveryState.WAITING,
  ]);
  expect((await node.as(owner).listAlerts({ accountId })).alerts).toHaveLength(2);
});

test("a delivery is sent again with its id, once however often it is asked for", async () => {
  const { got, post } = receiver();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  await happens(node);
  const [{ alertId = "" } = {}] = (await node.as(owner).listAlerts({ accountId })).alerts;
  node.alerts.start();
  await expect.poll(async () => (await posts())[0]?.state).toBe("sent");
  await node.alerts.stop();
  await node.as(owner).resendDelivery({ accountId, alertId });
  // Whatever the account asks for within five seconds.
  for (const id of [alertId, "payment_seen/acc_a/other/1"])
    expect(await errorOf(node.as(owner).resendDelivery({ accountId, alertId: id }))).toBe(
      "rate_limited",
    );
  const other = stage.node({ post });
  other.alerts.start();
  await expect.poll(async () => (await posts())[0]?.state).toBe("sent");
  await other.alerts.stop();
  expect(got.map(({ id }) => id)).toEqual([alertId, alertId]);
  const again = (id: string) => errorOf(other.as(owner).resendDelivery({ accountId, alertId: id }));
  // What is not there takes no turn.
  for (let times = 0; times < 2; times++)
    expect(await again("payment_seen/acc_b/other/1")).toBe("not_found alert_id");
  await node
    .as(owner)
    .updateAlertSettings({ accountId, settings: { rules: [] }, updateMask: allSettings });
  expect(await again(alertId)).toBe("wrong_state");
});

test("five days of failures alone switch a webhook off, and the owners are mailed once", async () => {
  await stage.member("olga");
  const { got, post, fail, manners } = receiver();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  node.alerts.start();
  fail();
  await happens(node);
  await expect.poll(failures).toBe(1);
  expect((await troubleOf(node)).webhookFailingSince).toBeDefined();
  // One that is taken begins the days anew.
  manners.answer = () => {};
  await due();
  await expect.poll(async () => (await troubleOf(node)).webhookFailingSince).toBeUndefined();
  fail();
  await happens(node);
  await expect.poll(failures).toBe(2);
  expect((await troubleOf(node)).webhookFailingSince).toBeDefined();
  await stage.run("update alert_settings set failing_since = now() - interval '119 hours'");
  await due();
  await expect.poll(failures).toBe(3);
  expect((await troubleOf(node)).webhookOffAt).toBeUndefined();
  await stage.run("update alert_settings set failing_since = now() - interval '121 hours'");
  await happens(node);
  await due();
  await expect.poll(async () => (await troubleOf(node)).webhookOffAt).toBeDefined();
  await expect.poll(() => stage.smtp.mails.length).toBe(1);
  expect(stage.smtp.mails[0]?.text).toContain("The webhook at hooks.example was switched off.");
  expect((await posts()).map(({ state }) => state)).not.toContain("waiting");
  const sent = got.length;
  await happens(node);
  await node.notice();
  expect([got.length, stage.smtp.mails.length]).toEqual([sent, 1]);
  // Its settings switch it on.
  manners.answer = () => {};
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  expect((await troubleOf(node)).webhookOffAt).toBeUndefined();
  await happens(node);
  await expect.poll(() => got.length).toBe(sent + 1);
});

test("two failures a month apart are no month of failures, those of every day are", async () => {
  const { post, fail } = receiver();
  fail();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  node.alerts.start();
  await happens(node);
  await expect.poll(failures).toBe(1);
  const before = (hours: number, of: "failing_since" | "last_failed_at") =>
    stage.run(`update alert_settings set ${of} = now() - $1::integer * interval '1 hour'`, [hours]);
  await before(720, "failing_since");
  await before(718, "last_failed_at");
  await happens(node);
  await expect.poll(failures).toBe(2);
  const { webhookFailingSince: failingSince, webhookOffAt } = await troubleOf(node);
  expect(Number(failingSince?.seconds)).toBeGreaterThan(Date.now() / 1000 - 3_600);
  expect(webhookOffAt).toBeUndefined();
  await before(121, "failing_since");
  await before(23, "last_failed_at");
  await due();
  await expect.poll(async () => (await troubleOf(node)).webhookOffAt).toBeDefined();
});

test("a post that is taken ends failures that another process noted meanwhile", async () => {
  const noted = Promise.withResolvers<void>();
  const node = stage.node({ post: () => noted.promise });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  await happens(node);
  node.alerts.start();
  // Both begin while nothing has failed.
  await expect
    .poll(() => stage.run("select from alert_deliveries where next_at > now() + interval '9 s'"))
    .toHaveLength(1);
  await stage.run(
    "update alert_settings set failing_since = now() - interval '4 days', last_failed_at = now()",
  );
  noted.resolve();
  await expect.poll(async () => (await posts())[0]?.state).toBe("sent");
  await expect.poll(async () => (await troubleOf(node)).webhookFailingSince).toBeUndefined();
});

test("a post that was taken leaves soon although its webhook could not be read", async () => {
  const { got, post } = receiver();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  await happens(node);
  let [isTaken, failed] = [false, 0];
  const flaky = stage.node({
    post,
    wrap: (postgres) => ({
      ...postgres,
      async run(statement, ...parameters) {
        if (isTaken && failed === 0 && statement.name === "alerts/read-settings") {
          failed += 1;
          throw new Error("the connection broke");
        }
        const rows = await postgres.run(statement, ...parameters);
        isTaken ||=
          statement.name === "alerts/claim-posts" && Array.isArray(rows) && rows.length > 0;
        return rows;
      },
    }),
  });
  flaky.alerts.start();
  // The lease would keep it for two minutes.
  await expect.poll(() => got.length).toBe(1);
  await flaky.alerts.stop();
  expect(failed).toBe(1);
});

test("a receiver that is gone for good (410) is switched off at once", async () => {
  await stage.member("olga");
  const { post, fail } = receiver();
  const node = stage.node({ post });
  await node.as(owner).updateAlertSettings({ accountId, settings, updateMask: allSettings });
  fail(true);
  node.alerts.start();
  await happens(node);
  await expect.poll(async () => (await troubleOf(node)).webhookOffAt).toBeDefined();
  await expect.poll(() => stage.smtp.mails.length).toBe(1);
  expect(stage.smtp.mails[0]?.text).toContain("it is gone for good");
});

test("however many webhooks are switched off at once, each is reported, a page at a time", async () => {
  await stage.run(
    `insert into alert_settings (account_id, rules, webhook_url, webhook_secret, failing_since,
         last_failed_at, webhook_off_at)
     select 'acc_' || n, '{"webhook_off": {"page": true, "mail": false, "webhook": false}}',
       'https://hooks.example/', '\\x00', now() - interval '5 days', now(),
       date_trunc('milliseconds', now())
     from generate_series(1, 1200) as n`,
  );
  const node = stage.node();
  await node.notice();
  expect(await stage.run("select from alerts where kind = 'webhook_off'")).toHaveLength(1_200);
  expect(node.ran.filter((name) => name === "alerts/list-switched-off")).toHaveLength(3);
});

test("Slack and Discord get one text without a signature, which mentions nobody", async () => {
  const { got, post } = receiver();
  const node = stage.node({ post });
  const slack = { ...settings, form: WebhookForm.SLACK };
  for (const webhookUrl of [hook, "https://discord.com/api/webhooks/1/x", "https://slack.com/"])
    expect(
      await errorOf(
        node.as(owner).updateAlertSettings({
          accountId,
          settings: { ...slack, webhookUrl },
          updateMask: allSettings,
        }),
      ),
    ).toBe("invalid_request settings.webhook_url");
  const addresses = [
    "https://hooks.slack.com/services/T/B/x",
    "https://discord.com/api/webhooks/1/x/slack",
  ];
  for (const webhookUrl of addresses) {
    const set = { accountId, settings: { ...slack, webhookUrl }, updateMask: allSettings };
    const answer = await node.as(owner).updateAlertSettings(set);
    expect([answer.webhookSecret, answer.settings?.form]).toEqual(["", WebhookForm.SLACK]);
  }
  await stage
    .run(`update payment_orders set asset = asset; insert into payment_accounts values ('x')`)
    .catch(() => undefined);
  await happens(node);
  await stage.run(
    `update alerts set facts = facts || '{"asset": "<!channel> & @everyone"}'::jsonb`,
  );
  node.alerts.start();
  await expect.poll(() => got.length).toBe(1);
  expect(got[0]?.webhook.form).toBe("slack");
  expect(JSON.parse(got[0]?.body ?? "")).toEqual({
    text: "A payment of 2 channel &amp; everyone was seen.",
  });
  // A signed one gets a secret that nobody has seen before.
  const signed = await node
    .as(owner)
    .updateAlertSettings({ accountId, settings, updateMask: allSettings });
  expect(signed.webhookSecret).toMatch(/^whsec_/);
});

test("signing secrets are sealed, each for its account, and sealed anew after a change of the key", async () => {
  const { got, post } = receiver();
  const [older, newer] = [Buffer.alloc(32, "o"), Buffer.alloc(32, "n")];
  const first = stage.node({ post, contentKeys: [older] });
  const { webhookSecret } = await first
    .as(owner)
    .updateAlertSettings({ accountId, settings, updateMask: allSettings });
  const secret = Buffer.from(webhookSecret.replace("whsec_", ""), "base64");
  const stored = async () => {
    const [row] = await stage.run<{ webhook_secret: Buffer }>(
      "select webhook_secret from alert_settings",
    );
    return row?.webhook_secret ?? Buffer.alloc(0);
  };
  const sealed = await stored();
  expect(sealed.includes(secret)).toBe(false);
  expect(new WebhookSecrets([older]).open(sealed, accountId)?.secret).toEqual(secret);
  expect(new WebhookSecrets([older]).open(sealed, "acc_b")).toBeUndefined();
  expect(new WebhookSecrets([newer]).open(sealed, accountId)).toBeUndefined();

  const second = stage.node({ post, contentKeys: [newer, older] });
  second.alerts.start();
  await expect
    .poll(async () => new WebhookSecrets([newer]).open(await stored(), accountId)?.secret)
    .toEqual(secret);
  await second.alerts.stop();
  // As it was before secrets were sealed.
  await stage.run("update alert_settings set webhook_secret = $1", [secret]);
  const third = stage.node({ post, contentKeys: [newer] });
  await happens(third);
  third.alerts.start();
  await expect.poll(() => got.length).toBe(1);
  expect(got[0]?.webhook.secret).toEqual(secret);
  await expect.poll(async () => (await stored()).length).toBeGreaterThan(32);
  await third.alerts.stop();

  // Without its key it signs nothing, and the owner makes another.
  const lost = stage.node({ post, contentKeys: [Buffer.alloc(32, "x")] });
  const other = await lost
    .as(owner)
    .updateAlertSettings({ accountId, settings, updateMask: allSettings });
  expect(other.webhookSecret).toMatch(/^whsec_/);
});
