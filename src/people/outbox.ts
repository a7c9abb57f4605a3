// Sends the mails that wait in the database. A method hands a mail in with the change that causes
// it, in one transaction, and waits for no mail server: what is committed is sent, also after a
// crash, by whichever process comes first (decisions/0036-mail-from-an-outbox.md).
//
// The token of a link is made when its mail is sent, and each attempt makes a new one. So the
// database never holds a secret, and the newest mail is the one whose link works.

import * as sql from "../../gen/sql/people.ts";
import { cellToken } from "../base/cells.ts";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import { MailError, type Mailer } from "../mail/mail.ts";
import type { Runner } from "../postgres/statement.ts";
import { linkAddress } from "./links.ts";
import { renderMail } from "./mail-texts.ts";
import { digestToken } from "./sessions.ts";
import { type PeopleTables, readFacts } from "./store.ts";

const pollMs = 5_000;
const atOnceMax = 5;
const minuteMs = 60_000;
const waitMsMax = 30 * minuteMs;

export type Outbox = {
  /** Call after the commit of a mail: it is sent at once, not within five seconds. */
  notify(): void;
  start(): void;
  /** Resolves when no attempt runs any more. What was not sent waits for another process. */
  stop(): Promise<void>;
};

export function createOutbox(parts: {
  store: Runner & Pick<PeopleTables, "cell">;
  mailer: Mailer;
  publicUrl: () => URL;
  clock?: Clock | undefined;
  log: Log;
}): Outbox {
  const { store, mailer, publicUrl, clock, log } = parts;
  const sending = new Task({
    run: sendDue,
    everyMs: pollMs,
    report: warnOnce(log, {
      code: "mails_unread",
      failed: "the mails that wait could not be read",
    }),
    clock,
  });

  /** True if more mails may be due. */
  async function sendDue(stopping: AbortSignal): Promise<boolean> {
    const due = await store.run(sql.claimMails, { rows: atOnceMax });
    await Promise.all(due.map((mail) => attempt(mail, stopping)));
    return due.length === atOnceMax;
  }

  async function attempt(mail: sql.ClaimMailsRow, stopping: AbortSignal): Promise<void> {
    const { mailId, kind, address, attempts } = mail;
    const settle = (state: "sent" | "waiting" | "failed", problem = "", waitMs = 0) =>
      store.run(sql.settleMail, { mailId, state, problem, waitMs });
    try {
      // Decided here: the answer to a sign-up takes equally long for known and unknown addresses.
      const isKnown = kind === "sign_up" && (await store.run(sql.findAddress, { address }));
      const linkId = isKnown ? null : mail.linkId;
      const link = linkId === null ? undefined : await renewLink(linkId);
      if (link === null) {
        await settle("failed", "The link has ended.");
        return;
      }
      const facts = readFacts(mail.facts);
      const content = renderMail(isKnown ? "known" : kind, facts, publicUrl(), link);
      await mailer.send({ to: address, ...content }, stopping);
      await settle("sent");
    } catch (error) {
      const { isPermanent, problem, reason } = faultOf(error);
      const waitMs = Math.min(waitMsMax, minuteMs * 2 ** (attempts - 1));
      log.warn(
        { code: "mail_not_sent", mail: mailId, kind, attempts, problem, reason },
        "a mail was not sent",
      );
      // Without a database the mail stays claimed, and is due again after two minutes.
      await settle(isPermanent ? "failed" : "waiting", problem, waitMs).catch((err: unknown) =>
        log.warn(
          { code: "mail_outcome_not_stored", err, mail: mailId },
          "the outcome was not stored",
        ),
      );
    }
  }

  /** The address to open. Null: the link has ended. */
  async function renewLink(linkId: string): Promise<string | null> {
    const token = cellToken(store.cell);
    const renewed = await store.run(sql.renewLink, { linkId, digest: digestToken(token) });
    return renewed > 0 ? linkAddress(publicUrl(), token) : null;
  }

  return {
    notify: () => sending.wake(),
    start: () => sending.start(),
    stop: () => sending.stop(),
  };
}

/** Why a mail was not sent: for its row, and for the log. */
function faultOf(error: unknown) {
  if (error instanceof MailError)
    return { isPermanent: error.isPermanent, problem: error.message, reason: error.reason };
  const reason = Object(error).message;
  return { isPermanent: false, problem: "The mail could not be sent.", reason };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a mail failed; the line says whether it is tried again. Look at the mail server */
    mail_not_sent: true;
    /** a mail may be sent twice; look at the database */
    mail_outcome_not_stored: true;
    /** mails wait; look at the database */
    mails_unread: true;
  }
}
