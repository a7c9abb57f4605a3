// Mail over SMTP: what is sent, and servers that refuse, hang or are away.

import { inspect } from "node:util";
import { afterEach, expect, test } from "vitest";
import { readMailAddress } from "../../src/base/mail-address.ts";
import { createMailer, type Mail, MailError, type Mailer } from "../../src/mail/mail.ts";
import {
  type SmtpServerOptions,
  startSilentServer,
  startSmtpServer,
  type TestSmtpServer,
} from "../support/smtp.ts";

const started: { stop(): Promise<void> }[] = [];
const mailers: Mailer[] = [];
afterEach(async () => {
  for (const one of mailers.splice(0)) one.close();
  for (const one of started.splice(0)) await one.stop();
});

async function serverWith(options?: SmtpServerOptions): Promise<TestSmtpServer> {
  const server = await startSmtpServer(options);
  started.push(server);
  return server;
}

function mailerTo(url: string, limitMs?: number): Mailer {
  const mailer = createMailer({ url: new URL(url), from: "gateway@example.com" }, limitMs);
  mailers.push(mailer);
  return mailer;
}

const mail: Mail = { to: "ada@example.com", subject: "Hello", text: "A line\n\nand another" };
const signal = new AbortController().signal;

/** The error of a send, as `<message>` and `permanent` or `temporary`. */
async function failureOf(mailer: Mailer, one = mail): Promise<[string, string]> {
  const error: unknown = await mailer.send(one, signal).catch((thrown: unknown) => thrown);
  if (!(error instanceof MailError)) throw new Error("the mail was sent");
  return [error.message, error.isPermanent ? "permanent" : "temporary"];
}

test("a mail arrives as it was written, marked as automatic", async () => {
  const server = await serverWith();
  await mailerTo(server.url).send({ ...mail, subject: "Grüße – 你好" }, signal);
  expect(server.mails).toHaveLength(1);
  expect(server.mails[0]).toMatchObject({ from: "gateway@example.com", to: ["ada@example.com"] });
  const { headers, text } = server.mails[0] ?? { headers: new Map(), text: "" };
  expect(text.trim()).toBe(mail.text);
  expect(headers.get("from")).toBe("Model Gateway <gateway@example.com>");
  expect(headers.get("to")).toBe("ada@example.com");
  expect(headers.get("auto-submitted")).toBe("auto-generated");
  expect(headers.get("subject")).toMatch(/^=\?UTF-8\?/);
});

test("no subject adds a header or a recipient", async () => {
  const server = await serverWith();
  const subject = "Hello\r\nBcc: eve@example.com\r\n\r\nand a body\u2028X-Evil: 1";
  await mailerTo(server.url).send({ ...mail, subject }, signal);
  const [one] = server.mails;
  expect(one?.to).toEqual(["ada@example.com"]);
  expect([...(one?.headers.keys() ?? [])]).not.toContain("bcc");
  expect([...(one?.headers.keys() ?? [])]).not.toContain("x-evil");
  expect(one?.text.trim()).toBe(mail.text);
});

test("the server gets the user and password of its URL", async () => {
  const user = { name: "gate way@x", password: "secret" };
  const server = await serverWith({ user });
  await mailerTo(server.url).send(mail, signal);
  expect(server.mails).toHaveLength(1);
  const wrong = server.url.replace(":secret@", ":wrong@");
  expect(await failureOf(mailerTo(wrong))).toEqual([
    "The mail server refused the user of SMTP_URL",
    "temporary",
  ]);
});

test.for([
  [550, "permanent"],
  [553, "permanent"],
  [421, "temporary"],
  [451, "temporary"],
] as const)("a refusal with %i is %s, and its words are told", async ([code, kind]) => {
  const server = await serverWith({ refuse: () => ({ code, message: "user unknown" }) });
  expect(await failureOf(mailerTo(server.url))).toEqual([
    `The mail server refused the mail: ${code} user unknown`,
    kind,
  ]);
  expect(server.mails).toEqual([]);
});

test.for([
  ["<Ada@Example.com>: no such user", "<A…@Example.com>: no such user"],
  ["ada.old@example.org is unknown", "a…@example.org is unknown"],
  ["moved: 'x+y@a.example', b@b.example", "moved: 'x…@a.example', b…@b.example"],
  ["<o'brien@example.com> and 'ada@example.com'", "<o…@example.com> and 'a…@example.com'"],
  ['"ada b"@example.com', '"…@example.com'],
  ["see https://a.example/?to=ada%40b.example", "see https:/…@b.example"],
  ["@ nobody", "@ nobody"],
  [`${"a ".repeat(91)}ada.long@example.com`, `${"a ".repeat(91)}a…@example.com`],
  // The cut leaves no name without its sign.
  [`${"a ".repeat(94)}ada.long@example.com`, `${"a ".repeat(94)}a…@examp`],
] as const)("an address in the answer of a server is masked: %s", async ([message, shown]) => {
  const server = await serverWith({ refuse: () => ({ code: 550, message }) });
  const error: unknown = await mailerTo(server.url)
    .send(mail, signal)
    .catch((thrown: unknown) => thrown);
  if (!(error instanceof MailError)) throw new Error("the mail was sent");
  expect(error.message).toBe(`The mail server refused the mail: 550 ${shown}`);
  expect(error.reason).toContain(shown.slice(0, 180));
  expect(inspect(error, { showHidden: true, depth: 9 })).not.toMatch(/ada[. ]|ada@|ada%40/i);
});

test("a server that says nothing is given up", async () => {
  const silent = await startSilentServer();
  started.push(silent);
  expect(await failureOf(mailerTo(silent.url, 100))).toEqual([
    "The mail server did not answer in time",
    "temporary",
  ]);
  expect(silent.opened()).toBe(1);
});

test("a server that is away is told", async () => {
  const server = await startSmtpServer();
  await server.stop();
  expect(await failureOf(mailerTo(server.url))).toEqual([
    "The mail server cannot be reached",
    "temporary",
  ]);
});

test("a stop ends the sending", async () => {
  const silent = await startSilentServer();
  started.push(silent);
  const stop = new AbortController();
  const sending = mailerTo(silent.url).send(mail, stop.signal);
  await expect.poll(silent.opened).toBe(1);
  stop.abort();
  await expect(sending).rejects.toBeInstanceOf(MailError);
});

test("a password is not sent where the server offers no TLS", async () => {
  // A name that is not localhost, though it leads here.
  const server = await serverWith({ user: { name: "gateway", password: "secret" } });
  const { port } = new URL(server.url);
  const [message] = await failureOf(mailerTo(`smtp://gateway:secret@0.0.0.0:${port}`));
  expect(message).toBe("The mail server offers no secure connection");
});

test.for([
  ["ada@example.com", "ada@example.com"],
  [" Ada.Love+x@Example.COM ", "ada.love+x@example.com"],
  ["ada@bücher.example", "ada@xn--bcher-kva.example"],
  ["ada@localhost", "ada@localhost"],
  ["", undefined],
  ["ada", undefined],
  ["@example.com", undefined],
  ["ada@", undefined],
  ["ada@@example.com", undefined],
  ["a b@example.com", undefined],
  ["ada@example.com,eve@example.com", undefined],
  ["ada@example.com\r\nBcc: eve@example.com", undefined],
  ["Ada <ada@example.com>", undefined],
  ['"a b"@example.com', undefined],
  ["ada@exa mple.com", undefined],
  ["ada@-example.com", undefined],
  ["ada@example..com", undefined],
  [".ada@example.com", undefined],
  ["ada\u0000@example.com", undefined],
  [`${"a".repeat(65)}@example.com`, undefined],
  [`ada@${"a.".repeat(130)}com`, undefined],
] as const)("the address %j is read as %j", ([text, address]) => {
  expect(readMailAddress(text)).toBe(address);
});
