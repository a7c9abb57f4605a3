// The failures of the clouds: their names for what went wrong, which stand in a header or in one of
// several members of the body. A body of the native form keeps its usual meaning.

import type { JsonObject } from "@bufbuild/protobuf";
import { isObject } from "../formats/json.ts";
import { type ErrorAnswer, failed, failureOfAnswer, timedOut, wordsOf } from "./failures.ts";
import type { ProviderFailure } from "./provider.ts";

/** The class of each name, without `Exception` and in small letters. */
const classes: Readonly<Record<string, "quota" | "limit" | "access" | "model" | "time" | "fault">> =
  {
    ...{ throttling: "quota", toomanyrequests: "quota", modelnotready: "quota" },
    ...{ resource_exhausted: "quota", servicequotaexceeded: "limit" },
    ...{ accessdenied: "access", permission_denied: "access", failed_precondition: "access" },
    ...{ expiredtoken: "access", unrecognizedclient: "access", invalidsignature: "access" },
    ...{ incompletesignature: "access", missingauthenticationtoken: "access" },
    ...{ unauthenticated: "access", invalidclienttokenid: "access" },
    ...{ resourcenotfound: "model", not_found: "model", deploymentnotfound: "model" },
    ...{ modeltimeout: "time", deadline_exceeded: "time" },
    ...{ modelerror: "fault", modelstreamerror: "fault" },
  };

/** The meaning of a cloud's error answer. Undefined: as at any provider. */
export function cloudFailure(answer: ErrorAnswer, model: string): ProviderFailure | undefined {
  const { status, body } = answer;
  if (status < 400 || isNative(body)) return undefined;
  const reason = answer.reason === undefined ? {} : { reason: answer.reason };
  const words = body ? wordsOf(body) : (answer.reason ?? `status ${status}`);
  const name = cloudErrorOf(answer);
  switch (Object.hasOwn(classes, name) ? classes[name] : undefined) {
    case "quota":
      return failureOfAnswer({ ...answer, status: 429, ...retryDelayOf(body) }, model);
    case "limit":
      return {
        ...failed(status, { alarm: `a quota of our account at the provider is used up: ${words}` }),
        ...{ isQuota: true, retryAfterMs: 60_000, ...reason },
      };
    case "access":
      return {
        ...failed(status, { alarm: `the provider refuses our account: ${words}` }),
        ...reason,
      };
    case "model":
      return { ...failed(status, { alarm: `the provider has no model ${model}` }), ...reason };
    case "time":
      return { ...timedOut(status), ...reason };
    case "fault":
      return { ...failed(status), ...reason };
    default:
      return undefined;
  }
}

/** A cloud's name of an error, without `Exception` and in small letters; empty if it has none. */
export function cloudErrorOf({ headers, body = {} }: ErrorAnswer): string {
  const { error, code, Output: output } = body;
  const inner = isObject(error) ? error : {};
  const type = body.__type ?? (isObject(output) ? output.__type : undefined);
  const names = [headers?.["x-amzn-errortype"], type, inner.status, inner.code, code];
  const name = names.find((one) => typeof one === "string" && one !== "");
  return String(name ?? "")
    .replace(/:.*$/, "")
    .replace(/^.*#/, "")
    .replace(/Exception$/i, "")
    .toLowerCase();
}

function isNative(body: JsonObject | undefined): boolean {
  return body?.type === "error" && isObject(body.error) && typeof body.error.type === "string";
}

/** Google's wish for a pause, such as `34.4s`. */
function retryDelayOf(body: JsonObject | undefined): { retryAfterMs?: number } {
  const details = isObject(body?.error) ? body.error.details : undefined;
  for (const detail of Array.isArray(details) ? details : []) {
    const delay = isObject(detail) ? detail.retryDelay : undefined;
    const seconds =
      typeof delay === "string" ? /^(\d{1,7}(?:\.\d{1,9})?)s$/.exec(delay) : undefined;
    if (seconds) return { retryAfterMs: Math.ceil(Number(seconds[1]) * 1000) };
  }
  return {};
}
