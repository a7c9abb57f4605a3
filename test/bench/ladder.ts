// The steps of the ladder, from a bare forwarder to everything that a paid request needs. Each does
// what its name says and everything of the steps before it. `ladder-step.ts` is the program.

export const ladderSteps = [
  "dispatch",
  "json",
  "checks",
  "fastify",
  "ledger",
  "codecs",
  "cross",
] as const;

export type LadderStep = (typeof ladderSteps)[number];

/** What a step adds, for the reader of the table. */
export const stepNames: Readonly<Record<LadderStep, string>> = {
  dispatch: "body collected, undici.dispatch",
  json: "JSON parsed and written on both sides",
  checks: "key, id, limit, meter, headers, log line",
  fastify: "behind Fastify",
  ledger: "hold and settlement",
  codecs: "the gateway's codecs, checks and meter, time limits, hang-ups",
  cross: "every event parsed, chat to native",
};
