// Tags of charges: what reports by a tag show, whichever part of them comes from the roll-up, and
// how the roll-up is written.

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  Bucket,
  ExportChargesRequestSchema,
  ListChargesRequestSchema,
  UsageGroup,
  type UsageRow,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { noTags, type Tags } from "../../src/base/tags.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { chosenCharges, isChosen, listCharges } from "../../src/billing/charges.ts";
import { exportCharges } from "../../src/billing/export-charges.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { errorOf } from "../support/billing.ts";
import { writeCharges } from "../support/charges.ts";
import { endingWith, holdRequest } from "../support/ledger.ts";
import { addUp, freshUsage, type Question, stamp, startOf } from "../support/usage.ts";

const credits = 1_000_000_000_000n;
const hourMs = 3_600_000;
const never = new AbortController().signal;

let world: Awaited<ReturnType<typeof freshUsage>>;
beforeAll(async () => {
  world = await freshUsage();
});
afterAll(() => world.close());

const all = (payer: Payer) => ({ accountId: payer.accountId, onlyKey: undefined });
const violations = async () =>
  (await world.store.verifyLedger()).filter(({ invariant }) => invariant.startsWith("tags"));

describe("reports by a tag", () => {
  type Charged = {
    readonly payer: Payer;
    readonly at: Date;
    readonly model: string;
    readonly tags: Tags;
    readonly amount: bigint;
  };
  const charged: Charged[] = [];
  let payer: Payer;
  let second: Payer;

  beforeAll(async () => {
    payer = await world.payer(credits);
    second = await world.payer(0n, { accountId: payer.accountId });
    const teams = ["a", "b", "ü=c", undefined];
    // Open days and closed ones, requests with no tag, with one and with two.
    for (let n = 0; n < 96; n++) {
      const who = n % 3 === 0 ? second : payer;
      const at = world.daysAgo(n % 8, (n % 5) * hourMs + n * 1_000);
      const model = n % 2 === 0 ? "model-test" : "model-b";
      const team = teams[n % 4];
      const tags: Tags = { ...(team && { team }), ...(n % 7 < 4 && { env: `e${n % 7}` }) };
      const tokens = { input: n, output: 2 * n + 1, thinking: n % 4, cacheRead: n % 11 };
      const ending = endingWith(tokens);
      const charge = await world.chargeAt(who, at, ending, { model, tags });
      expect(charge.tags).toEqual(tags);
      charged.push({ payer: who, at, model, tags, amount: charge.chargedMicrocredits });
    }
    await world.days.run();
  });

  /** Amounts by the name that `nameOf` gives a charge. */
  function expected(nameOf: (charge: Charged) => string | undefined): Record<string, bigint> {
    const sums: Record<string, bigint> = {};
    for (const charge of charged) {
      const name = nameOf(charge);
      if (name !== undefined) sums[name] = (sums[name] ?? 0n) + charge.amount;
    }
    return sums;
  }
  const found = (rows: readonly UsageRow[], nameOf: (row: UsageRow) => string) =>
    Object.fromEntries(rows.map((row) => [nameOf(row), row.sums?.chargedMicrocredits]));
  const since = (question: Question = {}) => ({ startAt: stamp(world.daysAgo(20)), ...question });

  test("some of the days are written, and some are not", async () => {
    const days = await world.run<{ day: string }>(
      "select distinct day from tags_daily where account_id = $1 order by day",
      [payer.accountId],
    );
    expect(days).toHaveLength(5);
    expect(await world.store.verifyLedger()).toEqual([]);
  });

  for (const tag of ["team", "env"])
    test(`by ${tag}, values and the requests without it are all requests`, async () => {
      const { rows, totals } = await world.query(since({ groupByTag: tag }), all(payer));
      expect(found(rows, ({ tagValue }) => tagValue)).toEqual(
        expected(({ tags }) => tags[tag] ?? ""),
      );
      expect(addUp(rows)).toEqual(addUp([{ sums: totals } as UsageRow]));
      for (const { sums } of rows) {
        const parts = [sums?.inputMicrocredits, sums?.outputMicrocredits];
        const others = [sums?.cacheMicrocredits, sums?.thinkingMicrocredits];
        expect([...parts, ...others].reduce<bigint>((sum, one) => sum + (one ?? 0n), 0n)).toBe(
          sums?.chargedMicrocredits,
        );
        expect(sums?.requests).toBe((sums?.completed ?? 0n) + (sums?.failed ?? 0n));
      }
    });

  const day = (at: Date) => at.toISOString().slice(0, 10);
  test("by tag, time, key, model and family at once, in pages of any size", async () => {
    const groups = { groupBy: [UsageGroup.KEY, UsageGroup.MODEL, UsageGroup.FAMILY] };
    const question = since({ groupByTag: "team", bucket: Bucket.DAY, ...groups });
    const { rows } = await world.query(question, all(payer));
    expect(
      found(rows, (row) => [startOf(row).slice(0, 10), row.keyId, row.model, row.tagValue].join()),
    ).toEqual(
      expected(({ at, payer: { keyId }, model, tags }) =>
        [day(at), keyId, model, tags.team ?? ""].join(),
      ),
    );
    const pages = await world.queryAll({ ...question, pageSize: 7 }, all(payer));
    expect(pages.flatMap((page) => page.rows)).toEqual(rows);
  });

  test("one value alone has the sums of its requests, and a total of them", async () => {
    const tags = { team: "ü=c" };
    for (const groupByTag of ["", "team"]) {
      const { rows, totals } = await world.query(since({ tags, groupByTag }), all(payer));
      expect(found(rows, ({ tagValue }) => tagValue)).toEqual({
        [groupByTag === "" ? "" : "ü=c"]: expected(({ tags: { team } }) => team)["ü=c"],
      });
      expect(addUp(rows)).toEqual(addUp([{ sums: totals } as UsageRow]));
    }
    const none = await world.query(since({ tags: { team: "nobody" } }), all(payer));
    expect(none.rows).toEqual([]);
    expect(none.totals?.requests).toBe(0n);
  });

  test("hours and parts of days come from the charges", async () => {
    const from = world.daysAgo(6, hourMs);
    const to = world.daysAgo(1, 3 * hourMs);
    const within = ({ at }: Charged) => at >= from && at < to;
    for (const bucket of [Bucket.NONE, Bucket.HOUR]) {
      const question = { startAt: stamp(from), endAt: stamp(to), bucket, groupByTag: "env" };
      const { rows } = await world.query(question, all(payer));
      const hourOf = (at: Date) => (bucket === Bucket.HOUR ? at.toISOString().slice(0, 13) : "");
      expect(found(rows, (row) => [hourOf(new Date(startOf(row))), row.tagValue].join())).toEqual(
        expected((charge) =>
          within(charge) ? [hourOf(charge.at), charge.tags.env ?? ""].join() : undefined,
        ),
      );
    }
  });

  test("a key sees the tags of its own requests, and filters by key and model count", async () => {
    const own = { accountId: payer.accountId, onlyKey: second.keyId };
    const { rows } = await world.query(since({ groupByTag: "team" }), own);
    expect(found(rows, ({ tagValue }) => tagValue)).toEqual(
      expected(({ payer: { keyId }, tags }) =>
        keyId === second.keyId ? (tags.team ?? "") : undefined,
      ),
    );
    const filter = { models: ["model-b"], keyIds: [payer.keyId], tags: { env: "e1" } };
    const { totals } = await world.query(since(filter), all(payer));
    const match = expected(({ payer: { keyId }, model, tags }) =>
      keyId === payer.keyId && model === "model-b" ? tags.env : undefined,
    );
    expect(totals?.chargedMicrocredits).toBe(match.e1 ?? 0n);
  });

  test("questions that no sum can answer are refused", async () => {
    const wrong: readonly [Question, string][] = [
      [{ tags: { team: "a" }, groupByTag: "env" }, "tags"],
      [{ tags: { team: "a,b" } }, "tags"],
      [{ tags: { team: "(other)" } }, "tags"],
    ];
    for (const [question, field] of wrong)
      expect(await errorOf(world.query(since(question), all(payer)))).toMatchObject({
        reason: "invalid_request",
        field,
      });
    const { nextPageToken: pageToken } = await world.query(
      since({ groupByTag: "team", pageSize: 1 }),
      all(payer),
    );
    const other = since({ groupByTag: "env", pageSize: 1, pageToken });
    expect(await errorOf(world.query(other, all(payer)))).toMatchObject({
      field: "page_token",
    });
  });

  test("lists find charges by all of the tags that they are asked for", async () => {
    const list = async (tags: Record<string, string>, keyId = "") => {
      const request = create(ListChargesRequestSchema, {
        filter: { tags, keyId },
        pageSize: 1_000,
      });
      return (await listCharges(world.store, request, all(payer))).charges;
    };
    for (const [tags, keyId] of [
      [{ team: "a" }, ""],
      [{ team: "a", env: "e1" }, ""],
      [{ env: "e2" }, second.keyId],
      [{ nothing: "x" }, ""],
    ] as const) {
      const filter = { ...create(ListChargesRequestSchema, { filter: { tags, keyId } }).filter };
      const chosen = chosenCharges(filter as never, all(payer));
      const every = await list({});
      const matching = every.filter((charge) => isChosen(chosen, charge));
      expect(await list(tags, keyId)).toEqual(matching);
      expect(matching.length).toBe(
        charged.filter(
          (one) =>
            (keyId === "" || one.payer.keyId === keyId) &&
            Object.entries(tags).every(([key, value]) => one.tags[key] === value),
        ).length,
      );
    }
  });

  test("an export has the tags of each charge", async () => {
    const lines: string[] = [];
    const parts = { store: createLedgerStore(world.postgres), usage: world.reports };
    const request = create(ExportChargesRequestSchema, { startAt: stamp(world.daysAgo(20)) });
    for await (const { csv } of exportCharges(parts, request, all(payer), never))
      lines.push(...csv.split("\r\n").filter((line) => line !== ""));
    expect(lines[0]).toMatch(/,tags,charge_usd$/);
    expect(lines.filter((line) => line.includes(',"env=e1,team=b",')).length).toBe(
      charged.filter(({ tags }) => tags.team === "b" && tags.env === "e1").length,
    );
  });

  test("a settlement of a closed day writes its tags again, and the verifier sees what is missing", async () => {
    const late = await world.payer(credits);
    const charge = (tags: Tags) =>
      world.chargeAt(late, world.daysAgo(5), endingWith({ output: 1 }), { tags });
    await charge({ team: "z" });
    expect((await violations()).map(({ subject }) => subject)).toEqual([
      expect.stringContaining(`${late.accountId}/team/(other)`),
    ]);
    world.days.noteSettled(world.daysAgo(5));
    await expect.poll(violations).toEqual([]);
    const { rows } = await world.query(since({ groupByTag: "team" }), all(late));
    expect(rows.map(({ tagValue }) => tagValue)).toEqual(["z"]);
  });
});

test("a request keeps its tags from its hold to its charge", async () => {
  const payer = await world.payer(credits);
  const tags = { team: "a", note: 'quotes " and \\ and {}' };
  const hold = await world.holds.place({ ...holdRequest(payer, 10), tags }, never);
  const request = { accountId: payer.accountId, requestId: hold.requestId };
  // As a reaper would find it.
  expect((await world.store.findHold(request))?.hold.tags).toEqual(tags);
  const made = await world.holds.settle(hold, endingWith({ output: 1 }));
  expect(made.tags).toEqual(tags);
  expect((await world.store.findCharge(request))?.tags).toEqual(tags);
});

test("a request without tags stores none", async () => {
  const payer = await world.payer(credits);
  const hold = await world.holds.place({ ...holdRequest(payer, 10), tags: noTags }, never);
  await world.holds.settle(hold, endingWith({ output: 1 }));
  expect(
    await world.run("select tags is null as none from charges where account_id = $1", [
      payer.accountId,
    ]),
  ).toEqual([{ none: true }]);
});

describe("more values than a day keeps", () => {
  test("the cheapest are one value in the roll-up, and every sum stays right", async () => {
    const fresh = await freshUsage();
    const payer = await fresh.payer(credits);
    // A small tag beside one of 2,500 values, of which later ones cost more.
    await writeCharges(fresh.run, {
      payer,
      count: 2_500,
      from: fresh.daysAgo(5),
      stepMs: 1_000,
      tags: `jsonb_build_object('user', 'u' || n, 'env', 'e' || n % 2)`,
      outcome: "client_left",
    });
    await fresh.run(
      `insert into usage_hourly (account_id, key_id, model, hour, amount, requests)
       select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(amount),
         count(*)
       from charges group by 1, 2, 3, 4`,
    );
    await fresh.days.run();
    const values = await fresh.run<{ tag: string; count: bigint; has_others: boolean }>(
      `select tag, count(*) as count, bool_or(value = '(other)') as has_others
       from tags_daily group by tag order by tag`,
    );
    // The two of `env` cost most; of `user` 998 remain.
    expect(values).toEqual([
      { tag: "env", count: 2n, has_others: false },
      { tag: "user", count: 999n, has_others: true },
    ]);
    const found = await fresh.store.verifyLedger();
    expect(found.filter(({ invariant }) => invariant.startsWith("tags"))).toEqual([]);
    const question = { startAt: stamp(fresh.daysAgo(6)), groupByTag: "user" };
    const { rows, totals } = await fresh.query(question, all(payer));
    expect(rows).toHaveLength(999);
    expect(rows.map(({ tagValue }) => tagValue)).toContain("u2499");
    expect(addUp(rows).amount).toBe(totals?.chargedMicrocredits);
    expect(addUp(rows).requests).toBe(2_500n);
    // Sums lack a value that is among the others. Its failures are counted from the charges.
    const ofOne = { startAt: question.startAt, tags: { user: "u1" }, includeOutcomes: true };
    const one = await fresh.query(ofOne, all(payer));
    expect(rows.map(({ tagValue }) => tagValue)).not.toContain("u1");
    expect(one.totals?.requests).toBe(0n);
    expect(one.outcomes.map(({ outcome, requests }) => [outcome, requests])).toEqual([
      [Outcome.CLIENT_LEFT, 1n],
    ]);
    await fresh.close();
  });
});
