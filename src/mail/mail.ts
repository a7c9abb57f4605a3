// Mail over SMTP. Every message has a time limit in all, so that a server that hangs holds nothing
// for longer. Nothing is repeated here: who hands a mail in decides that.

import { createTransport } from "nodemailer";
import { maskAddresses } from "../base/mail-address.ts";
import { isLocalhost, type SmtpServer } from "../config/environment.ts";

/** A mail of plain text. `to` is what `readMailAddress` returned. */
export type Mail = { readonly to: string; readonly subject: string; readonly text: string };

export type Mailer = {
  /** Resolves when the server has taken the mail. Throws `MailError`. */
  send(mail: Mail, signal: AbortSignal): Promise<void>;
  close(): void;
};

/**
 * Why a mail was not taken, for operators and for those who asked for it: no address in it is
 * whole, and neither is one in `reason`.
 */
export class MailError extends Error {
  override readonly name = "MailError";
  /** True: a repetition fails as well. */
  readonly isPermanent: boolean;
  /** What failed, for the log. */
  readonly reason: string;

  constructor(message: string, isPermanent: boolean, cause: unknown) {
    // Not as the cause, which the log would write with the address.
    super(message);
    this.isPermanent = isPermanent;
    this.reason = maskAddresses(String(Object(cause).message ?? cause));
  }
}

const limitMs = 30_000;
const stepMs = 10_000;

/** `limit`: milliseconds for one mail in all. */
export function createMailer(server: SmtpServer, limit = limitMs): Mailer {
  const { url, from } = server;
  const isSecure = url.protocol === "smtps:";
  const user = decodeURIComponent(url.username);
  const transport = createTransport({
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? (isSecure ? 465 : 587) : Number(url.port),
    secure: isSecure,
    // TLS wherever the server offers it, and a password crosses no network in the clear.
    requireTLS: user !== "" && !isSecure && !isLocalhost(url),
    ignoreTLS: isLocalhost(url),
    ...(user !== "" && { auth: { user, pass: decodeURIComponent(url.password) } }),
    connectionTimeout: Math.min(stepMs, limit),
    greetingTimeout: Math.min(stepMs, limit),
    dnsTimeout: Math.min(stepMs, limit),
    socketTimeout: Math.min(stepMs, limit),
    socketCloseTimeout: 0,
    maxResponseSize: 64 * 1024,
    // A text is a text: nothing in it names a file or an address to read.
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  return {
    async send({ to, subject, text }, signal) {
      try {
        await transport.sendMail({
          from: { name: "Model Gateway", address: from },
          to: { name: "", address: to },
          subject: oneLine(subject, 150),
          text,
          // Out-of-office programs do not answer such mail (RFC 3834).
          headers: { "auto-submitted": "auto-generated" },
          signal: AbortSignal.any([signal, AbortSignal.timeout(limit)]),
        });
      } catch (error) {
        throw toMailError(error);
      }
    },
    close: () => transport.close(),
  };
}

function toMailError(error: unknown): MailError {
  const { code, responseCode, response } = Object(error);
  const said = typeof response === "string" ? `: ${oneLine(maskAddresses(response), 200)}` : "";
  if (code === "EAUTH")
    return new MailError("The mail server refused the user of SMTP_URL", false, error);
  if (code === "ETLS")
    return new MailError("The mail server offers no secure connection", false, error);
  if (typeof responseCode === "number") {
    // Of the addresses or the text. What a server refuses before, an operator can mend.
    const isOfMail = code === "EENVELOPE" || code === "EMESSAGE";
    const isPermanent = isOfMail && responseCode >= 500;
    return new MailError(`The mail server refused the mail${said}`, isPermanent, error);
  }
  if (code === "ETIMEDOUT" || code === "EABORT")
    return new MailError("The mail server did not answer in time", false, error);
  return new MailError("The mail server cannot be reached", false, error);
}

/** Without line breaks and other control characters, which would begin a header of its own. */
function oneLine(text: string, lengthMax: number): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ").slice(0, lengthMax);
}
