// An upgrade: both of two processes are replaced twice under load, behind a balancer that only
// follows GET /health. No request fails.

import { expect, test } from "vitest";
import { startBalancer } from "../support/balancer.ts";
import { freshDatabase } from "../support/database.ts";
import { query } from "../support/query.ts";
import { loadDuring, startRollingPair } from "../support/rolling.ts";

test("no request fails while both processes are replaced twice at 200 requests a second", {
  timeout: 900_000,
}, async () => {
  const database = await freshDatabase();
  const settings = { DATABASE_URL: database.url, DRAIN_DELAY_SECONDS: "2" };
  const pair = await startRollingPair(settings);
  const balancer = await startBalancer(pair.ports, 250);
  for (const port of pair.ports) await balancer.until(port, true);
  const replaced = pair.replace(2, (port) => balancer.until(port, true));
  const { sent, failures } = await loadDuring(
    `http://127.0.0.1:${balancer.port}`,
    pair.secret,
    { perSecond: 200, streams: 5 },
    replaced,
  );
  expect(failures).toEqual([]);
  expect(await replaced).toEqual([]);
  const counted = {
    name: "test/count-charges",
    text: "select outcome, count(*)::int as requests from charges group by outcome",
  };
  expect(await query(database.postgres, counted, [])).toEqual([
    { outcome: "completed", requests: sent },
  ]);
  // Each replacement takes two seconds of delay alone.
  expect(sent).toBeGreaterThan(4 * 2 * 200);
  await balancer.stop();
  await pair.stop();
  await database.drop();
});
