/** What an operator asked for, or a task wants, and cannot have now. The message says why. */
export class HistoryError extends Error {}
