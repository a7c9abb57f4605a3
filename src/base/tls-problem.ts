// Why a server cannot be reached over TLS, in words instead of codes.

import type { Log } from "./log.ts";

export type TlsProblem = {
  readonly kind: "authority" | "ended" | "not yet" | "names" | "refused" | "none";
  /** Continues a sentence that begins with the server. */
  readonly text: string;
};

// Codes and messages of OpenSSL and Node. grpc-js hands on the messages alone, and pg its own.
const problems: readonly (TlsProblem & { readonly pattern: RegExp })[] = [
  {
    kind: "authority",
    text: "has a certificate of an authority that is not known here",
    pattern:
      /SELF_SIGNED_CERT|UNABLE_TO_(VERIFY|GET)|CERT_SIGNATURE_FAILURE|self-signed certificate|unable to (verify|get)|certificate signature failure/,
  },
  {
    kind: "ended",
    text: "has a certificate that has ended",
    pattern: /CERT_HAS_EXPIRED|certificate has expired/,
  },
  {
    kind: "not yet",
    text: "has a certificate that is not good yet",
    pattern: /CERT_NOT_YET_VALID|certificate is not yet valid/,
  },
  {
    kind: "names",
    text: "has a certificate for other names",
    pattern: /ERR_TLS_CERT_ALTNAME_INVALID|does not match certificate's altnames/,
  },
  {
    kind: "refused",
    text: "refuses our certificate, or wants one",
    pattern:
      /ALERT_(CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA)|alert (certificate required|bad certificate|unknown ca)/,
  },
  {
    kind: "none",
    text: "takes no TLS",
    pattern:
      /does not support SSL connections|ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)|wrong version number|packet length too long/,
  },
];

/** Undefined: it is about something else. Looks into causes, too. */
export function tlsProblemOf(error: unknown): TlsProblem | undefined {
  if (!(error instanceof Error)) return undefined;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  const words = `${code} ${error.message}`;
  return problems.find(({ pattern }) => pattern.test(words)) ?? tlsProblemOf(error.cause);
}

/** Logs a problem of TLS with a server once, until it is another one or `passed`. */
export class TlsReport {
  readonly #log: Log | undefined;
  #reported = "";

  constructor(log: Log | undefined) {
    this.#log = log;
  }

  /** `server`: as people call it. */
  failed(server: string, error: unknown): void {
    const problem = tlsProblemOf(error);
    if (problem === undefined || problem.text === this.#reported) return;
    this.#reported = problem.text;
    this.#log?.error(
      { code: "certificate_refused", server, reason: problem.text },
      "cannot connect over TLS",
    );
  }

  passed(): void {
    this.#reported = "";
  }
}

declare module "./log.ts" {
  interface LogCodes {
    /**
     * the database or a core is not reached over TLS, for the reason in the line: its certificate
     * has ended, is for other names or of an authority that is not known here, or it takes no TLS;
     * correct it there, or the parameters of `DATABASE_URL` or `CORE_TLS_CA`
     */
    certificate_refused: true;
  }
}
