// UTC months, as their first day, `YYYY-MM-01`.

/** `YYYY-MM`. */
export function nameOfMonth(month: string): string {
  return month.slice(0, 7);
}

/** The month that `YYYY-MM` names. Undefined: it names none. */
export function parseMonth(name: string): string | undefined {
  return /^\d{4}-(0[1-9]|1[0-2])$/.test(name) && !name.startsWith("0000")
    ? `${name}-01`
    : undefined;
}

/** The day of the month after `month`, `YYYY-MM-DD`. */
export function nextMonth(month: string, day = 0): string {
  return dayOf(new Date(Date.UTC(yearOf(month), monthOf(month), 1 + day)));
}

/** The month that is `count` months before the one of `day`. */
export function monthsBefore(day: string, count: number): string {
  return dayOf(new Date(Date.UTC(yearOf(day), monthOf(day) - 1 - count, 1)));
}

const yearOf = (day: string) => Number(day.slice(0, 4));
const monthOf = (day: string) => Number(day.slice(5, 7));

function dayOf(at: Date): string {
  return at.toISOString().slice(0, 10);
}
