// The audit log: one line for each call of a method with the proto option `audited`, whether the
// call succeeded or failed.

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
 * The same method, with a log line for each call. The line has the outcome of the work itself, even
 * if the caller disconnected before it ended.
 */
export function withAuditLog(desc: DescMethodUnary, run: Run, log: Log): Run {
  return async (request, call) => {
    const write = (outcome: string, response?: Message) => {
      const fields = {
        ...fieldsOf(desc.input, request),
        ...(response && fieldsOf(desc.output, response)),
      };
      log.info({ method: desc.name, outcome, ...fields }, "audit");
    };
    const response = await run(request, call).catch((error: unknown) => {
      write(toApiError(error).reason);
      throw error;
    });
    write("ok", response);
    return response;
  };
}

// An explicit list, because other fields hold secrets and free text.
const loggedFields = new Set([
  "account_id",
  "family",
  "key_id",
  "secret_id",
  "transfer_id",
  "kind",
  "amount_microcredits",
]);
// Keeps a secret out of the log that was sent in place of an id.
const idForm = /^[a-z]{3}_[0-9A-Za-z]{1,64}$/;

/** The logged fields of a message and of the messages in it. */
function fieldsOf(type: DescMessage, message: Message): Record<string, string> {
  const fields: Record<string, string> = {};
  for (const field of type.fields) {
    if (!isFieldSet(message, field)) continue;
    const value: unknown = Reflect.get(message, field.localName);
    if (field.message && isMessage(value)) Object.assign(fields, fieldsOf(field.message, value));
    const text = loggedFields.has(field.name) ? textOf(field, value) : undefined;
    if (text !== undefined) fields[field.localName] = text;
  }
  return fields;
}

function textOf(field: DescField, value: unknown): string | undefined {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") return field.enum?.value[value]?.localName;
  return typeof value === "string" && idForm.test(value) ? value : undefined;
}
