// A mail server on loopback that keeps what it takes, refuses, or says nothing.

import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { SMTPServer } from "smtp-server";

export type ReceivedMail = {
  readonly from: string;
  readonly to: readonly string[];
  /** The names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
  /** The links in the text. */
  readonly links: readonly string[];
};

/** An answer of SMTP, such as `{ code: 550, message: "user unknown" }`. */
export type Refusal = { readonly code: number; readonly message: string };

export type SmtpServerOptions = {
  /** Refuses a recipient. Undefined: it is accepted. */
  readonly refuse?: (address: string) => Refusal | undefined;
  /** The only valid user. */
  readonly user?: { readonly name: string; readonly password: string };
};

export type TestSmtpServer = {
  readonly url: string;
  readonly mails: readonly ReceivedMail[];
  stop(): Promise<void>;
};

export async function startSmtpServer(options: SmtpServerOptions = {}): Promise<TestSmtpServer> {
  const mails: ReceivedMail[] = [];
  const { refuse, user } = options;
  const server = new SMTPServer({
    authOptional: user === undefined,
    allowInsecureAuth: true,
    hideSTARTTLS: true,
    disabledCommands: ["STARTTLS"],
    logger: false,
    onAuth(auth, _, callback) {
      const isRight = auth.username === user?.name && auth.password === user?.password;
      if (isRight) callback(null, { user: auth.username });
      else callback(new Error("no such user"));
    },
    onRcptTo({ address }, _, callback) {
      const refusal = refuse?.(address);
      if (!refusal) return callback();
      const { code: responseCode, message } = refusal;
      callback(Object.assign(new Error(message), { responseCode }));
    },
    onData(stream, { envelope }, callback) {
      const from = envelope.mailFrom ? envelope.mailFrom.address : "";
      const to = envelope.rcptTo.map(({ address }) => address);
      text(stream).then((raw) => {
        mails.push({ from, to, ...parseMail(raw) });
        callback();
      }, callback);
    },
  });
  server.on("error", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  const credentials = user ? `${encodeURIComponent(user.name)}:${user.password}@` : "";
  return {
    url: `smtp://${credentials}127.0.0.1:${port}`,
    mails,
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** A server that takes connections and never says a word. */
export async function startSilentServer() {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  return {
    port,
    url: `smtp://127.0.0.1:${port}`,
    /** Connections that clients opened. */
    opened: () => sockets.size,
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

function parseMail(raw: string): Pick<ReceivedMail, "headers" | "text" | "links"> {
  const [head = "", ...rest] = raw.split("\r\n\r\n");
  const headers = new Map<string, string>();
  for (const line of head.replace(/\r\n[ \t]+/g, " ").split("\r\n")) {
    const [name = "", ...value] = line.split(":");
    headers.set(name.toLowerCase(), value.join(":").trim());
  }
  const body = rest.join("\r\n\r\n");
  const decoded = decode(body, headers.get("content-transfer-encoding") ?? "7bit");
  const text = decoded.replaceAll("\r\n", "\n");
  return { headers, text, links: text.match(/https?:\/\/\S+#[\w-]+/g) ?? [] };
}

function decode(body: string, encoding: string): string {
  if (encoding === "base64") return Buffer.from(body, "base64").toString();
  if (encoding !== "quoted-printable") return body;
  const bytes = body
    .replace(/=\r\n/g, "")
    .replace(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1").toString();
}
