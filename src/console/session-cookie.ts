// The cookies of a browser, which no script can read: its session, which no page of another origin
// can use, and for some minutes its way to a provider of OIDC. The listener turns the session into
// the credential of a call.

import type { IncomingHttpHeaders } from "node:http";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { SessionGrant } from "../../gen/gateway/people/v1/person_pb.ts";
import type { OidcFlow } from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { cellAt } from "../base/cells.ts";
import { ApiError } from "../base/errors.ts";
import { isLocalhost } from "../config/environment.ts";

const jsonTypes = /^application\/(connect\+)?json\s*(;|$)/i;

export type ConsoleCookies = ReturnType<typeof createSessionCookie>;

/** `publicUrl`: the address of the console. */
export function createSessionCookie(publicUrl: () => URL) {
  // Cookies do not know ports: two gateways at localhost must not overwrite each other's.
  const isSecure = () => publicUrl().protocol === "https:";
  const nameOf = (what: "session" | "oidc") =>
    isSecure() ? `__Host-${what}` : `gateway-${what}-${publicUrl().port || "80"}`;
  const render = (what: "session" | "oidc", value: string, endsAt?: Timestamp) =>
    [
      `${nameOf(what)}=${value}`,
      "Path=/",
      "HttpOnly",
      "SameSite=Lax",
      `Max-Age=${endsAt ? secondsUntil(timestampDate(endsAt)) : 0}`,
      ...(isSecure() ? ["Secure"] : []),
    ].join("; ");

  /** The sessions of a header `cookie`: the one in use, then those of other cells. */
  const tokensFrom = (header: string | null) =>
    readCookie(header ?? "", nameOf("session"))?.split(".") ?? [];
  const tokenFrom = (header: string | null): string | undefined => tokensFrom(header)[0];

  return {
    /**
     * The session of a file that our own page links to, or that somebody opens from a bookmark.
     * Undefined: the request brings no cookie. Throws `not_permitted` for a link on another page.
     */
    tokenOfDownload(headers: IncomingHttpHeaders): string | undefined {
      const token = tokenFrom(headers.cookie ?? null);
      const site = headers["sec-fetch-site"];
      if (token !== undefined && site !== "same-origin" && site !== "none")
        throw new ApiError("not_permitted", {
          message: "Only the pages of this gateway can link to this file.",
        });
      return token;
    },
    /**
     * The session of a call that brings the cookie. Undefined: it brings none. Throws
     * `not_permitted` unless our own page made the call: browsers add a cookie to the calls of all
     * pages.
     */
    tokenOf(headers: Headers): string | undefined {
      const token = tokenFrom(headers.get("cookie"));
      if (token === undefined) return undefined;
      const site = headers.get("sec-fetch-site");
      const isOurs =
        site === null ? headers.get("origin") === publicUrl().origin : site === "same-origin";
      if (!isOurs || !jsonTypes.test(headers.get("content-type") ?? ""))
        throw new ApiError("not_permitted", {
          message: "Only the pages of this gateway can use its cookie, with JSON.",
        });
      return token;
    },
    /**
     * For a call with which a person comes in. Throws `not_permitted` if a page at another address
     * than that of the console makes it: its browser would keep no session, so nothing may be used
     * up. The message has the settings that make that address the right one. `peer`: the IP
     * address that connects.
     */
    checkOrigin(headers: Headers, peer: string): void {
      const origin = headers.get("origin");
      if (origin === null || origin === publicUrl().origin) return;
      throw new ApiError("not_permitted", {
        message: explainOrigin(origin, publicUrl(), peer),
        allowed: [publicUrl().origin],
      });
    },
    /**
     * The header `set-cookie` that begins a session. Those of other cells in the header `cookie`
     * stay.
     */
    begin({ token, expiresAt: endsAt }: SessionGrant, cookie: string | null) {
      const cell = cellAt(token);
      const others = tokensFrom(cookie).filter((one) => cellAt(one) !== cell);
      return render("session", [token, ...others.slice(0, othersMax)].join("."), endsAt);
    },
    /**
     * The header `set-cookie` that goes over to the session of another cell. Undefined: the header
     * `cookie` has none.
     */
    goTo(cell: string, cookie: string): string | undefined {
      const tokens = tokensFrom(cookie);
      const found = tokens.find((one) => cellAt(one) === cell);
      if (found === undefined) return undefined;
      const others = tokens.filter((one) => one !== found);
      return render("session", [found, ...others].join("."), inDays(sessionDays));
    },
    /** The sessions of other cells in a header `cookie`. */
    othersOf: (cookie: string | null) => tokensFrom(cookie).slice(1),
    /** The header `set-cookie` that ends the session. */
    end: () => render("session", ""),
    /** The headers `set-cookie` that begin and end the way to a provider of OIDC. */
    beginFlow: ({ token, expiresAt: endsAt }: OidcFlow) => render("oidc", token, endsAt),
    endFlow: () => render("oidc", ""),
    /** The flow in a header `cookie`. */
    readFlow: (header: string) => readCookie(header, nameOf("oidc")),
    /** The session in a header `cookie`, of a request that changes nothing by itself. */
    readSession: tokenFrom,
  };
}

/** Browsers keep cookies of 4 KiB. */
const othersMax = 60;
/** No session is longer: its cell decides. */
const sessionDays = 30;

function inDays(days: number): Timestamp {
  return timestampFromDate(new Date(Date.now() + days * 86_400_000));
}

function explainOrigin(origin: string, publicUrl: URL, peer: string): string {
  const opened = URL.parse(origin);
  const where = opened ? `at ${opened.origin}` : "at an address that hides itself";
  const begin =
    `Nobody can sign in ${where}: this gateway is reached at ${publicUrl.origin}. ` +
    "Nothing was used up.";
  if (!isLocalhost(publicUrl)) return `${begin} Open ${publicUrl.origin}${page} instead.`;
  const isSecure = opened?.protocol === "https:";
  const settings = isSecure
    ? settingsFor(opened.host, peer)
    : settingsFor(opened?.hostname ?? "NAME");
  const proxy = isSecure ? "" : "put a proxy that speaks https in front of it, and ";
  return `${begin} To reach it from elsewhere, ${proxy}start it with ${settings}.`;
}

const page = "/console/";

/**
 * What an operator sets so that people reach the console from other machines. `proxy`: the address
 * of the proxy in front. Absent: one on the machine of the gateway.
 */
export function settingsFor(host: string, proxy = "127.0.0.1"): string {
  return `PUBLIC_URL=https://${host} and TRUSTED_PROXIES=${proxy.replace(/^::ffff:/, "")}`;
}

function secondsUntil(time: Date): number {
  return Math.max(0, Math.floor((time.getTime() - Date.now()) / 1000));
}

/** The value of a cookie. Undefined: it is not there, or there twice, as if somebody added one. */
function readCookie(header: string, name: string): string | undefined {
  const values = header
    .split(";")
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
    .map((pair) => pair.slice(name.length + 1));
  return values.length === 1 && values[0] !== "" ? values[0] : undefined;
}
