// What tags cost: settlements of requests with ten tags beside those of requests without, in turns.

import { migrate } from "../../../src/postgres/migrate.ts";
import { addAccounts, addKeys, connectLedger, findViolations, sumCharges } from "../books.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import { chargeMicroOfPair, type PairKey, startPairs } from "../pairs.ts";
import type { Result } from "../report.ts";

const accounts = 10_000;
const count = 8_000;
const width = 1_000;
const rounds = 9;

/** Of the length that teams, projects and environments have. */
const tenTags = Object.fromEntries(
  Array.from({ length: 10 }, (_, n) => [`label-${n}`, `some-value-${n}`]),
);

export async function tags(): Promise<Result> {
  await using lab = new Lab();
  const { url, pid } = await lab.database();
  await migrate(url);
  const postgres = connectLedger(url);
  await addAccounts(postgres, accounts);
  await addKeys(postgres, accounts, accounts);
  const keyOf = (pair: number): PairKey => {
    const n = ((pair * 7919) % accounts) + 1;
    return { accountId: `acc_${n}`, keyId: `key_${n}` };
  };
  const { runApart, stop } = await startPairs(postgres);
  const parts = { count, width, keyOf, databasePid: pid };
  await runApart(parts);
  await runApart({ ...parts, tags: tenTags });
  const ratios = { settle: [] as number[], settleCpu: [] as number[], place: [] as number[] };
  const without: number[] = [];
  for (let round = 0; round < rounds; round++) {
    // The first of a round meets another state of the log than the second.
    const isSwapped = round % 2 === 1;
    const first = await runApart({ ...parts, ...(isSwapped && { tags: tenTags }) });
    const second = await runApart({ ...parts, ...(!isSwapped && { tags: tenTags }) });
    const [plain, tagged] = isSwapped ? [second, first] : [first, second];
    ratios.settle.push(tagged.settle.seconds / plain.settle.seconds);
    ratios.settleCpu.push(tagged.settle.cpuSeconds / plain.settle.cpuSeconds);
    ratios.place.push(tagged.place.seconds / plain.place.seconds);
    without.push((plain.settle.seconds * 1e6) / count);
  }
  await stop();
  const faults = await findViolations(postgres);
  const expected = BigInt(count * 2 * (rounds + 1)) * chargeMicroOfPair;
  const charged = await sumCharges(postgres);
  if (charged !== expected) faults.push(`charged ${charged} micro-credits instead of ${expected}`);
  await postgres.close();
  return {
    rows: [
      {
        measure: "settlement with ten tags ÷ without",
        value: spreadOf(ratios.settle),
        must: "≤ 1.10",
      },
      {
        measure: "the same: CPU of gateway and PostgreSQL",
        value: spreadOf(ratios.settleCpu),
        must: "≤ 1.10",
      },
      { measure: "hold with ten tags ÷ without", value: spreadOf(ratios.place) },
      {
        measure: "settlement without tags, of 1,000 at once",
        value: spreadOf(without),
        unit: "µs",
      },
    ],
    faults,
  };
}
