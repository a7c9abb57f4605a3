// Posts alerts to webhooks, signed as https://www.standardwebhooks.com says. The address comes from
// a customer, so a post resolves its host once, checks every address that it found, and connects to
// one of these. It follows no redirect and uses no proxy of the environment: that would look again.
// The proxy of the section `alerts` gets the address that was checked.

import { createHmac } from "node:crypto";
import { lookup, Resolver } from "node:dns/promises";
import { Agent, request } from "node:https";
import { isIP, type Socket } from "node:net";
import { connect } from "node:tls";
import { invalidField } from "../base/errors.ts";
import { closed, described, oneOf, text, time } from "../base/json-schema.ts";
import { type HttpProxy, openTunnel } from "../base/outbound.ts";
import { accountKinds } from "./kinds.ts";
import { isPublicAddress } from "./public-address.ts";

/** `slack`: one text, as Slack and Discord take it, not signed. */
export type Form = "standard" | "slack";

/** Where the alerts of an account are posted. */
export type Webhook = {
  readonly url: string;
  readonly form: Form;
  /** Signs what is posted. Undefined: the key that it was sealed with is gone. */
  readonly secret: Buffer | undefined;
};

/** What is posted. */
export type Post = {
  /** The same in every repeat. */
  readonly id: string;
  /** JSON. */
  readonly body: string;
};

/** What the public description says of posts. */
export const describedPosts = {
  alert: {
    summary: "An alert of an account",
    description:
      "Signed as https://www.standardwebhooks.com says. Alerts arrive at least once: drop repeats " +
      "by their id. What is not answered with 2xx within five seconds is repeated five times. A " +
      "webhook whose posts all fail for five days, or that answers 410, is switched off.",
    headers: {
      "webhook-id": described("The id of the alert, the same in every repeat.", text),
      "webhook-timestamp": described("Seconds since 1970.", { type: "string", pattern: "^\\d+$" }),
      "webhook-signature": described(
        "`v1,` and the HMAC-SHA256 of id, timestamp and body, with points between them, in base64.",
        { type: "string", pattern: "^v1,[0-9A-Za-z+/]{43}=$" },
      ),
    },
    body: closed({
      type: oneOf(...[...accountKinds, "test"].map((kind) => `alert.${kind}`)),
      timestamp: time,
      data: closed({
        alert_id: text,
        account_id: text,
        title: described("A sentence for people.", text),
        facts: described(
          "What it is about, by name. Amounts in `microcredits`, `usd_micro` and names that end in " +
            "these are whole numbers as text.",
          { type: "object", additionalProperties: text },
        ),
      }),
    }),
  },
};

/** Posts once. Throws `WebhookError`. */
export type PostWebhook = (webhook: Webhook, post: Post, signal: AbortSignal) => Promise<void>;

/** Why a post failed, for those who set the webhook. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
  /** True: the receiver wants no post any more. */
  readonly isGone: boolean;

  constructor(
    message: string,
    { isGone = false, cause }: { isGone?: boolean; cause?: unknown } = {},
  ) {
    super(message, { cause });
    this.isGone = isGone;
  }
}

/** The addresses of a host name, of both families. Empty: it has none. */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

const answerBytesMax = 64 * 1024;
const postMsMax = 5_000;
/** By which a receiver of Standard Webhooks ends its subscription. */
const goneStatus = 410;

/** Throws `invalid_request` unless `text` can be the address of a webhook. */
export function checkWebhookUrl(field: string, text: string): URL {
  const url = URL.parse(text);
  if (url?.protocol !== "https:" || url.username + url.password + url.hash !== "")
    throw invalidField(field, "is an https address, without credentials and fragment");
  return url;
}

/** A secret as its owner gets it: the form that libraries for these signatures take. */
export function showSecret(secret: Buffer): string {
  return `whsec_${secret.toString("base64")}`;
}

export function createPostWebhook({
  allowHosts,
  proxy = () => undefined,
  resolve,
  ca,
  timeoutMs = postMsMax,
}: {
  /** Host names of the operator's own network, in small letters. They may have any address. */
  readonly allowHosts: () => readonly string[];
  /** Connects to the addresses that were found. Default: posts connect directly. */
  readonly proxy?: () => HttpProxy | undefined;
  /** Default: the name servers of this machine, and for allowed hosts what the system knows. */
  readonly resolve?: Resolve;
  /** Certificates of authorities. Default: those of Node. */
  readonly ca?: Buffer;
  /** Longest duration of a post. */
  readonly timeoutMs?: number;
}): PostWebhook {
  // An agent of its own: the global one may have a proxy from the environment.
  const agent = new Agent({ keepAlive: false, maxCachedSessions: 0 });

  async function findAddress(host: string, signal: AbortSignal): Promise<string> {
    const isAllowed = allowHosts().includes(host);
    const look = resolve ?? (isAllowed ? resolveAny : resolvePublic);
    const addresses = isIP(host) ? [host] : await look(host, signal);
    const [first] = addresses;
    if (first === undefined) throw new WebhookError("The host has no address");
    // One that is not public is enough: the next look could choose it.
    if (!isAllowed && !addresses.every(isPublicAddress))
      throw new WebhookError("The address of the host is not a public one");
    return first;
  }

  return async ({ url: address, secret, form }, { id, body }, stop) => {
    if (form === "standard" && !secret)
      throw new WebhookError("The signing secret cannot be opened: make a new one");
    const url = checkWebhookUrl("webhook_url", address);
    const host = url.hostname.replace(/^\[|\]$/g, "").toLowerCase();
    const limit = AbortSignal.timeout(timeoutMs);
    const signal = AbortSignal.any([stop, limit]);
    try {
      const found = await untilAborted(findAddress(host, signal), signal);
      const through = proxy();
      const tunnel = through && (await connectBy(through, { url, address: found, signal }));
      const way = tunnel ? { tunnel } : { agent };
      const signed = form === "standard" ? secret : undefined;
      const sent = { url, host, address: found, way, ca, id, body, secret: signed };
      checkStatus(await send(sent, signal));
    } catch (error) {
      if (error instanceof WebhookError) throw error;
      throw new WebhookError(
        limit.aborted ? `No answer within ${timeoutMs / 1000} s` : messageOf(error),
        { cause: error },
      );
    }
  };
}

/** Throws a `WebhookError` unless the receiver has taken the post. */
function checkStatus(status: number): void {
  if (status >= 200 && status < 300) return;
  if (status >= 300 && status < 400)
    throw new WebhookError("The receiver redirects, which is not followed");
  const isGone = status === goneStatus;
  throw new WebhookError(`The receiver answered with status ${status}`, { isGone });
}

type Sent = Post & {
  readonly url: URL;
  readonly host: string;
  readonly address: string;
  readonly way: { readonly agent: Agent } | { readonly tunnel: Socket };
  readonly ca: Buffer | undefined;
  /** Undefined: it is not signed. */
  readonly secret: Buffer | undefined;
};

/** A connection to the address that was checked, by a proxy that never hears the name. */
function connectBy(
  proxy: HttpProxy,
  { url, address, signal }: { url: URL; address: string; signal: AbortSignal },
): Promise<Socket> {
  const authority = `${isIP(address) === 6 ? `[${address}]` : address}:${url.port || 443}`;
  return openTunnel({ proxy, host: authority, authority, signal });
}

/** The status of the answer. */
function send(sent: Sent, signal: AbortSignal): Promise<number> {
  const { url, host, address, way, ca, id, body, secret } = sent;
  const timestamp = String(Math.floor(Date.now() / 1000));
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const servername = isIP(host) ? "" : host;
  const posting = request({
    ...("tunnel" in way
      ? {
          createConnection: () =>
            connect({ socket: way.tunnel, host: address, servername, ...(ca && { ca }) }),
        }
      : { agent: way.agent }),
    signal,
    method: "POST",
    // The address that was checked, not the name: no second look can find another one.
    host: address,
    port: url.port || 443,
    path: url.pathname + url.search,
    servername,
    ...(ca && { ca }),
    headers: {
      host: url.host,
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      "user-agent": "model-gateway",
      ...(secret && {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": sign(secret, `${id}.${timestamp}.${body}`),
      }),
    },
  });
  posting.on("error", reject);
  posting.on("response", (answer) => {
    let bytes = 0;
    const finish = () => resolve(answer.statusCode ?? 0);
    answer.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= answerBytesMax) return;
      // The status says what became of the post. Nobody reads the rest.
      finish();
      posting.destroy();
    });
    answer.on("end", finish);
    answer.on("error", reject);
  });
  posting.end(body);
  return promise;
}

/** `v1,` and the HMAC of id, timestamp and body in base64. */
function sign(secret: Buffer, content: string): string {
  return `v1,${createHmac("sha256", secret).update(content).digest("base64")}`;
}

/**
 * Asks the name servers by itself: the system's own look waits in threads that other work needs,
 * for as long as a name server of a customer likes.
 */
async function resolvePublic(host: string, signal: AbortSignal): Promise<readonly string[]> {
  const resolver = new Resolver({ timeout: 1_500, tries: 2 });
  const cancel = () => resolver.cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    const found = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    return found.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** As every program of this machine does, for hosts that the operator names. */
async function resolveAny(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}

function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const abort = () => reject(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort, { once: true });
  work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  return promise;
}

/** Says no more of an error than what the sender of a post can see from outside. */
function messageOf(error: unknown): string {
  const { code = "" } = Object(error);
  if (code === "ENOTFOUND" || code === "ENODATA") return "The host has no address";
  if (/CERT|SSL|TLS|SIGN|ALTNAME/.test(String(code)))
    return "The certificate of the receiver is not valid";
  return "The receiver cannot be reached";
}
