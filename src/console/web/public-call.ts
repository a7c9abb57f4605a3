// One message through the public path, as any program sends it: `POST /v1/messages` of this origin,
// with a key in place of the session.

/** The body of the call. */
export type Message = {
  readonly model: string;
  readonly max_tokens: number;
  readonly stream: boolean;
  readonly system?: string;
  readonly messages: readonly [{ readonly role: "user"; readonly content: string }];
};

/** How an answer ended. `cut`: before its end, without the will of the person. */
export type Ending = "whole" | "limit" | "cut";

type Facts = {
  readonly message?: string;
  readonly retryAfterSeconds?: number | undefined;
  /** Of HTTP. Absent: there was none, or it said that an answer comes. */
  readonly status?: number;
};

/** Reasons that also end a request that runs. What it came to until then is charged. */
const endsRequests: readonly string[] = [
  ...["invalid_key", "revoked_key", "key_expired", "key_paused", "account_suspended", "cancelled"],
];

/** Why no answer came, or no more of it. Its message is the gateway's sentence, or empty. */
export class PublicError extends Error {
  /** A reason of the gateway. `offline`: no answer at all. `other`: something else answered. */
  readonly reason: string;
  readonly retryAfterSeconds: number | undefined;
  /** True: refused before its admission, unless there is a receipt. */
  readonly isRefusal: boolean;

  constructor(reason: string, { message = "", retryAfterSeconds, status }: Facts = {}) {
    super(message);
    this.reason = reason;
    this.retryAfterSeconds = retryAfterSeconds;
    this.isRefusal = status !== undefined && status < 500 && !endsRequests.includes(reason);
  }
}

export type Sending = {
  readonly secret: string;
  /** Under which its receipt is found, also where no head of an answer came. */
  readonly requestId: string;
  /** Hangs up. */
  readonly signal: AbortSignal;
  /** Takes the next piece of the answer's text. */
  readonly onText: (text: string) => void;
};

/** Sends a message and reads its answer. Throws a PublicError, also in the middle of an answer. */
export async function sendMessage(body: Message, sending: Sending): Promise<Ending> {
  const { secret, requestId, signal, onText } = sending;
  const response = await fetch("/v1/messages", {
    method: "POST",
    headers: {
      ...{ "content-type": "application/json", "anthropic-version": "2023-06-01" },
      ...{ "x-api-key": secret, "x-request-id": requestId },
    },
    body: JSON.stringify(body),
    // The key is the credential, as for any program.
    credentials: "omit",
    signal,
  }).catch(() => {
    throw new PublicError("offline");
  });
  if (!response.ok) throw await errorOf(response);
  if (body.stream) return readStream(response, onText);
  const answer: unknown = await response.json().catch(() => undefined);
  const { content, stop_reason: reason } = Object(answer);
  if (!Array.isArray(content)) throw new PublicError(isOurs(response) ? "offline" : "other");
  for (const block of content) onText(textOf(block));
  return endingOf(reason);
}

async function readStream(response: Response, onText: (text: string) => void): Promise<Ending> {
  let ending: Ending = "cut";
  for await (const event of eventsOf(response)) {
    const { type, delta, error } = Object(event);
    if (type === "error") throw toError(error);
    if (type === "content_block_delta") onText(textOf(delta));
    if (type === "message_delta") ending = endingOf(Object(delta).stop_reason);
    if (type === "message_stop") return ending;
  }
  return "cut";
}

/** The JSON of each event of a stream, until it ends or breaks. */
async function* eventsOf({ body }: Response): AsyncGenerator<unknown> {
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let left = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: "" }));
      if (done) return;
      const events = `${left}${value}`.split("\n\n");
      left = events.pop() ?? "";
      for (const event of events)
        for (const line of event.split("\n"))
          if (line.startsWith("data:")) yield parse(line.slice(5));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** Undefined: it is no JSON. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function textOf(part: unknown): string {
  const { text } = Object(part);
  return typeof text === "string" ? text : "";
}

function endingOf(reason: unknown): Ending {
  return reason === "max_tokens" ? "limit" : "whole";
}

/** Every answer of the gateway has the id of its request. */
function isOurs({ headers }: Response): boolean {
  return headers.get("request-id") !== null;
}

async function errorOf(response: Response): Promise<PublicError> {
  const { status, headers } = response;
  const { error } = Object(await response.json().catch(() => undefined));
  // A proxy in front that does not reach the gateway, or waited too long for it.
  if (!isOurs(response)) return new PublicError(status >= 500 ? "offline" : "other", { status });
  const retryAfterSeconds = Number(headers.get("retry-after")) || undefined;
  const known = toError(error, { status, retryAfterSeconds });
  // Browsers repeat a request by themselves where its connection broke. Its id made it one.
  return known.reason === "request_id_used" ? new PublicError("offline") : known;
}

function toError(error: unknown, of: Pick<Facts, "status" | "retryAfterSeconds"> = {}) {
  const { type, message, details } = Object(error);
  const { error_code: code } = Object(details);
  // Some reasons have no code of their own: their type says enough.
  const reason = [code, type].find((one) => typeof one === "string") ?? "other";
  return new PublicError(reason, { ...of, message: typeof message === "string" ? message : "" });
}
