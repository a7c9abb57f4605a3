// What the operator did, in the log: one line for each call of a method that the protos call
// administration, whatever became of it.

import {
  type DescField,
  type DescMessage,
  type DescMethodUnary,
  isFieldSet,
  isMessage,
  type Message,
} from "@bufbuild/protobuf";
import { toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Call } from "./contract.ts";

type Run = (request: Message, call: Call) => Promise<Message>;

/**
 * The same method, with its line. It tells how the work ended: a caller that has hung up meanwhile
 * hears less.
 */
export function withAuditLog(desc: DescMethodUnary, run: Run, log: Log): Run {
  return async (request, call) => {
    const tell = (outcome: string, answered?: Message) => {
      const facts = {
        ...factsOf(desc.input, request),
        ...(answered && factsOf(desc.output, answered)),
      };
      log.info({ method: desc.name, outcome, ...facts }, "audit");
    };
    const answer = await run(request, call).catch((error: unknown) => {
      tell(toApiError(error).reason);
      throw error;
    });
    tell("ok", answer);
    return answer;
  };
}

// Named one by one: beside them stand secrets, and texts that may hold anything.
const loggedFields = new Set([
  "account_id",
  "family",
  "key_id",
  "secret_id",
  "transfer_id",
  "kind",
  "amount_microcredits",
]);
// A secret that was sent in the place of an id has another form.
const idForm = /^[a-z]{3}_[0-9A-Za-z]{1,64}$/;

/** The told fields of a message and of the messages in it. */
function factsOf(type: DescMessage, message: Message): Record<string, string> {
  const facts: Record<string, string> = {};
  for (const field of type.fields) {
    if (!isFieldSet(message, field)) continue;
    const value: unknown = Reflect.get(message, field.localName);
    if (field.message && isMessage(value)) Object.assign(facts, factsOf(field.message, value));
    const text = loggedFields.has(field.name) ? textOf(field, value) : undefined;
    if (text !== undefined) facts[field.localName] = text;
  }
  return facts;
}

function textOf(field: DescField, value: unknown): string | undefined {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return field.enum?.value[value]?.localName;
  return typeof value === "string" && idForm.test(value) ? value : undefined;
}
