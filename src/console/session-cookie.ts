// The session of a browser: a cookie that no script can read, and that no page of another origin
// can use. The listener turns it into the credential of a call.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { SessionGrant } from "../../gen/gateway/people/v1/people_pb.ts";
import { ApiError } from "../base/errors.ts";

const jsonTypes = /^application\/(connect\+)?json\s*(;|$)/i;

/** `publicUrl`: the address of the console. */
export function createSessionCookie(publicUrl: () => URL) {
  // Cookies do not know ports: two gateways at localhost must not overwrite each other's.
  const isSecure = () => publicUrl().protocol === "https:";
  const name = () =>
    isSecure() ? "__Host-session" : `gateway-session-${publicUrl().port || "80"}`;
  const render = (value: string, maxAgeSeconds: number) =>
    [
      `${name()}=${value}`,
      "Path=/",
      "HttpOnly",
      "SameSite=Lax",
      `Max-Age=${maxAgeSeconds}`,
      ...(isSecure() ? ["Secure"] : []),
    ].join("; ");

  return {
    /**
     * The session of a call that brings the cookie. Undefined: it brings none. Throws
     * `not_permitted` unless our own page made the call: browsers add a cookie to the calls of all
     * pages.
     */
    tokenOf(headers: Headers): string | undefined {
      const token = readCookie(headers.get("cookie") ?? "", name());
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
    /** The header `set-cookie` that begins a session. */
    begin({ token, endsAt }: SessionGrant): string {
      const endsAtMs = endsAt ? timestampDate(endsAt).getTime() : Date.now();
      return render(token, Math.max(0, Math.floor((endsAtMs - Date.now()) / 1000)));
    },
    /** The header `set-cookie` that ends the session. */
    end: () => render("", 0),
  };
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
