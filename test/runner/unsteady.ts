// Tests that are known to fail at times. Such a failure is shown and does not make the run red, for
// two weeks: until then it has to be understood.

export type Unsteady = {
  readonly suite: string;
  /** Full name of the test, its groups before it, joined by " > ". */
  readonly test: string;
  /** Day of the entry: YYYY-MM-DD. */
  readonly since: string;
  readonly reason: string;
  readonly tried: string;
};

const daysMax = 14;
/** What these suites say is never left open. */
const neverUnsteady = /billing|keys|payments|rate-limits|crash|postgres|workers/;

/** What is wrong with the list itself, on this day. */
export function faultsOf(list: readonly Unsteady[], today: Date): string[] {
  return list.flatMap(({ suite, test, since, reason, tried }) => {
    const name = `${suite}: ${test}`;
    const ageDays = (today.getTime() - Date.parse(since)) / 86_400_000;
    const faults = [
      [!suite || !test || !reason || !tried, "needs a suite, a test, a reason and what was tried"],
      [Number.isNaN(ageDays), "needs a day"],
      [ageDays > daysMax, `is older than ${daysMax} days`],
      [neverUnsteady.test(suite), "is of a suite that may not be unsteady"],
    ] as const;
    return faults.flatMap(([isFault, text]) => (isFault ? `${name} ${text}` : []));
  });
}

/** True if each test that failed in this suite is in the list. */
export function isListed(
  list: readonly Unsteady[],
  suite: string,
  failed: readonly string[],
): boolean {
  const known = list.filter((one) => one.suite === suite).map(({ test }) => test);
  return failed.length > 0 && failed.every((test) => known.includes(test));
}
