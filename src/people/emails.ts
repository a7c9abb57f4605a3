// The e-mail address of a person. It changes when a link that is mailed to the new address is used,
// so that nobody has the address of another. The old address is told: whoever has stolen a session
// could otherwise redirect the notices in silence.

import { create } from "@bufbuild/protobuf";
import type { Person } from "../../gen/gateway/people/v1/person_pb.ts";
import {
  type SetEmailRequest,
  SetEmailResponseSchema,
} from "../../gen/gateway/people/v1/profile_pb.ts";
import {
  type ConfirmEmailRequest,
  ConfirmEmailResponseSchema,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { clientOf } from "../contract/callers.ts";
import type { AuthenticatedCall } from "../contract/contract.ts";
import { digestOf } from "./guessing.ts";
import {
  dayMs,
  type GivenLink,
  mailLink,
  makeLink,
  noSuchLink,
  recordAct,
  useLink,
} from "./links.ts";
import { checkEmail, type Parts, personOf } from "./parts.ts";
import type { MailKind, PeopleTables } from "./store.ts";
import { lockToChange } from "./ways-in.ts";

/** Mails of one kind that an address gets a day. */
export const mailsPerDayMax = 3;

/** Throws `limit_reached` if an address got as many mails of a kind as it may in a day. */
export async function checkMails(
  tables: PeopleTables,
  address: string,
  kind: MailKind,
): Promise<void> {
  // Locks the address, so that requests at the same time are counted one by one.
  await tables.countAttempts([{ kind: "login", digest: digestOf(kind, address) }]);
  const { made } = await tables.run(sql.countMails, { address, kind });
  if (made < mailsPerDayMax) return;
  throw new ApiError("limit_reached", {
    message: `An address gets ${mailsPerDayMax} such mails a day at most.`,
    field: "email",
    limit: { name: "mails_per_address", limit: BigInt(mailsPerDayMax), used: BigInt(made) },
  });
}

export async function setEmail(parts: Parts, { email }: SetEmailRequest, call: AuthenticatedCall) {
  const { store, guessing, outbox, publicUrl } = parts;
  const { personId } = personOf(call);
  const address = email === "" ? undefined : checkEmail("email", email);
  if (address !== undefined) {
    if (!outbox) throw invalidField("email", "needs a mail server, and SMTP_URL is not set");
    await guessing.count("email", clientOf(call).address);
  }
  await store.transaction(async (tables) => {
    const person = await lockToChange(parts, tables, call);
    await tables.run(sql.endLinks, { purpose: "email", personId });
    if (address === undefined) return changeEmail(parts, tables, person, null);
    // Locks the address, so that requests at the same time are counted one by one.
    await tables.countAttempts([{ kind: "login", digest: digestOf("email", address) }]);
    // The answer is the same: it tells nothing about the address.
    const { made } = await tables.run(sql.countMails, { address, kind: "email" });
    if (made >= mailsPerDayMax) return;
    const { link } = await makeLink(tables, publicUrl(), {
      purpose: "email",
      personId,
      login: address,
      email: address,
      madeBy: `person:${personId}`,
    });
    await mailLink(tables, "email", link, address, {});
  });
  outbox?.notify();
  return create(SetEmailResponseSchema, { person: await store.findPerson(personId) });
}

/** Uses the link of a new address, which says who its person is. */
export async function confirmNewEmail(
  parts: Parts,
  { digest, personId, linkId }: GivenLink,
  { password, passkeyAnswerJson, name }: ConfirmEmailRequest,
  call: AuthenticatedCall,
) {
  if (password !== "" || passkeyAnswerJson !== "" || name !== "")
    throw invalidField("password", "must be empty: this link only confirms an address");
  const { store, outbox } = parts;
  await store.transaction(async (tables) => {
    const { email } = await useLink(tables, digest);
    const person = await tables.lockPerson(personId);
    if (!person || person.disabledAt || email === undefined) throw noSuchLink();
    await changeEmail(parts, tables, person, email);
    const facts = { purpose: "email", linkId };
    await recordAct(tables, { personId, accountId: "", method: "ConfirmEmail", facts }, call);
  });
  outbox?.notify();
  return create(ConfirmEmailResponseSchema, { person: await store.findPerson(personId) });
}

/** The person is locked. */
async function changeEmail(
  { outbox }: Parts,
  tables: PeopleTables,
  { personId, email: before }: Person,
  email: string | null,
): Promise<void> {
  if (before === (email ?? "")) return;
  await tables.run(sql.setEmail, { personId, email });
  if (outbox && before !== "")
    await tables.insertMail({
      kind: "email_changed",
      address: before,
      // The person, so that the mail goes with him.
      facts: { at: new Date().toISOString().slice(0, 16), person: personId },
      lifetimeMs: 7 * dayMs,
    });
}
