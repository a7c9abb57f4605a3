// What is charged at each ending of a request. Pure. `docs/customers/credits.md` and
// `src/billing/README.md` have the same table in words, and tests hold them against this one.

import { create } from "@bufbuild/protobuf";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Counted } from "./counted.ts";
import type { Output, Reported } from "./reported.ts";

/** `usage`: the input, and the final output, or else the output that was handed on. */
type Share = "nothing" | "input" | "usage";

/** The shares of a plain answer, and of a stream before and after content of it was handed on. */
type Row = {
  readonly outcome: Outcome;
  readonly plain: Share;
  readonly unseen: Share;
  readonly seen: Share;
};

const free = { plain: "nothing", unseen: "nothing", seen: "nothing" } as const;
/** Its client gets an error status, unless a part of the answer is on its way. */
const failed = { plain: "nothing", unseen: "nothing", seen: "usage" } as const;
const whole = { plain: "usage", unseen: "usage", seen: "usage" } as const;
const inputOnly = { plain: "input", unseen: "input", seen: "input" } as const;

export const endings = {
  complete: { outcome: Outcome.COMPLETED, ...whole },
  /** The ledger was away for too long: a plain answer was not delivered. */
  undelivered: { outcome: Outcome.GATEWAY_FAILED, ...free },
  providerFailed: { outcome: Outcome.PROVIDER_FAILED, ...free },
  providerBroke: { outcome: Outcome.PROVIDER_BROKE, ...failed },
  providerLate: { outcome: Outcome.TIME_LIMIT, ...failed },
  /** The total time limit, or the drain limit. */
  timeLimit: { outcome: Outcome.TIME_LIMIT, ...failed },
  gatewayFailed: { outcome: Outcome.GATEWAY_FAILED, ...failed },
  /** This process lost the ledger for so long that others declared it dead. */
  declaredDead: { outcome: Outcome.REAPED, ...failed },
  leftBeforeAcceptance: { outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, ...free },
  leftBeforeContent: { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, ...inputOnly },
  left: { outcome: Outcome.CLIENT_LEFT, ...whole },
  revokedBeforeAcceptance: { outcome: Outcome.REVOKED, ...free },
  revokedBeforeContent: { outcome: Outcome.REVOKED, ...inputOnly },
  revoked: { outcome: Outcome.REVOKED, ...whole },
} as const satisfies Readonly<Record<string, Row>>;

export type EndingName = keyof typeof endings;

/** What is billed, before the grant and the hold limit it. */
export type Billed = { readonly usage: Usage; readonly basis: Basis; readonly outcome: Outcome };

const nothing = { usage: create(UsageSchema), basis: Basis.NONE } as const;

/** What is billed at an ending. `isPlain`: the client asked for an answer in one piece. */
export function chargeAt(
  ending: EndingName,
  answer: { readonly isPlain: boolean; readonly reported: Reported; readonly counted: Counted },
): Billed {
  const row: Row = endings[ending];
  const { outcome } = row;
  const { isPlain, reported, counted } = answer;
  const share = isPlain ? row.plain : counted.began ? row.seen : row.unseen;
  const { hasInput } = reported;
  switch (share) {
    case "nothing":
      return { ...nothing, outcome };
    case "input":
      return {
        usage: reported.usage({ output: 0, thinking: 0 }),
        basis: hasInput ? Basis.REPORTED : Basis.COUNTED,
        outcome,
      };
    case "usage": {
      const isFinal = hasFinalOutput(reported, counted);
      const output = isFinal ? splitOutput(reported, counted) : seenOutput(reported, counted);
      const usage = reported.usage(output, counted.searches);
      return { usage, basis: basisOf(hasInput, isFinal), outcome };
    }
  }
}

function basisOf(hasInput: boolean, hasOutput: boolean): Basis {
  if (hasInput && hasOutput) return Basis.REPORTED;
  return hasInput || hasOutput ? Basis.PARTLY_COUNTED : Basis.COUNTED;
}

/** The usage to store while an answer runs: what its reader was handed. Undefined: nothing. */
export function seenUsage(reported: Reported, counted: Counted): Usage | undefined {
  if (!counted.began) return undefined;
  return reported.usage(seenOutput(reported, counted), counted.searches);
}

/** True when the output is billed as reported. A 0 beside content may be no report. */
function hasFinalOutput(reported: Reported, { began }: Counted): boolean {
  const { output = 0, outputIsFinal, isTotal } = reported;
  return outputIsFinal && (output > 0 || !began || isTotal);
}

/** The output that was handed on, by our count, or by the provider's running report if higher. */
function seenOutput(reported: Reported, counted: Counted): Output {
  if (!counted.began) return { output: 0, thinking: 0 };
  const own = counted.output();
  const { output = 0 } = reported;
  return output <= own.output + own.thinking ? own : splitOutput(reported, counted);
}

// A provider that does not split its output is billed by the counted shares.
function splitOutput({ output = 0, thinking }: Reported, counted: Counted): Output {
  if (thinking === undefined) return counted.split(output);
  const of = Math.min(thinking, output);
  return { output: output - of, thinking: of };
}
