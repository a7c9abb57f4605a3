// Mails that operators send again: a receipt or credit note, and an alert.

import { create } from "@bufbuild/protobuf";
import {
  DocumentReceiver,
  type ResendDocumentRequest,
  ResendDocumentResponseSchema,
  type ResendNoticeRequest,
  ResendNoticeResponseSchema,
  SupportService,
} from "../../gen/gateway/operations/v1/support_pb.ts";
import { ApiError } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { readReason } from "../contract/reason.ts";
import { type CreateOnce, onceFor } from "../contract/replays.ts";
import type { Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";

/** A mail that is still to be written, and what to do after the commit. */
type Resending = { write(tx: Runner): Promise<void>; written(): void };

export type ResendParts = {
  readonly postgres: Pick<Postgres, "run" | "transaction">;
  /** As alerts document them. */
  readonly mails: {
    resendNotice(of: { accountId: string; alertId: string }): Promise<Resending>;
    resendDocument(of: {
      id: string;
      accountId: string;
      orderId: string;
      number: string;
      personId: string | undefined;
    }): Promise<Resending>;
  };
  /** As payments document it. */
  readonly findDocument: (
    accountId: string,
    number: string,
  ) => Promise<{ readonly orderId: string; readonly createdBy: string } | undefined>;
};

export async function resendDocument(
  parts: ResendParts,
  request: ResendDocumentRequest,
  call: AuthenticatedCall,
) {
  const { accountId, number, receiver: to } = request;
  readReason(request.reason, call);
  call.note?.({ number });
  const document = await parts.findDocument(accountId, number);
  if (!document) throw new ApiError("not_found", { message: "No such document.", field: "number" });
  const { orderId, createdBy } = document;
  const buyer = createdBy.startsWith("person:") ? createdBy.slice("person:".length) : undefined;
  if (to === DocumentReceiver.BUYER && buyer === undefined)
    throw new ApiError("wrong_state", { message: "No member ordered it: a program did." });
  const id = timeOrderedId("snd_");
  const personId = to === DocumentReceiver.BUYER ? buyer : undefined;
  const mail = await parts.mails.resendDocument({ id, accountId, orderId, number, personId });
  const once = onceFor(SupportService.method.resendDocument, request, { ...call, accountId });
  await write(parts, { once, id, mail });
  return create(ResendDocumentResponseSchema);
}

export async function resendNotice(
  parts: ResendParts,
  request: ResendNoticeRequest,
  call: AuthenticatedCall,
) {
  const { accountId, alertId } = request;
  readReason(request.reason, call);
  call.note?.({ alertId });
  const mail = await parts.mails.resendNotice({ accountId, alertId });
  const once = onceFor(SupportService.method.resendNotice, request, { ...call, accountId });
  await write(parts, { once, id: timeOrderedId("snd_"), mail });
  return create(ResendNoticeResponseSchema);
}

async function write(
  { postgres }: ResendParts,
  { once, id, mail }: { once: CreateOnce; id: string; mail: Resending },
): Promise<void> {
  await postgres.transaction((tx) => once(tx, { id, secret: "" }, () => mail.write(tx)));
  mail.written();
}
