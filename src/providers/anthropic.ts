// Providers with the native messages API.

import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { HttpProviderSettings } from "../config/catalog.ts";
import { Fit } from "../formats/fit.ts";
import { isObject, parseJson } from "../formats/json.ts";
import * as native from "../formats/native/native.ts";
import type { OpenConnections } from "./connections.ts";
import { addToolStubs, type Endpoint, openEndpoint, wantsStream } from "./endpoint.ts";
import { failureOfAnswer, readRetryAfterMs } from "./failures.ts";
import { HttpCall } from "./http-call.ts";
import type { CountCarried, Provider, ProviderTokenCount } from "./provider.ts";
import { redactSecrets } from "./redact.ts";

/** Connects a provider with the native API. `credential` undefined: none is sent. */
export function createAnthropic(
  settings: HttpProviderSettings,
  credential: string | undefined,
  connect: OpenConnections,
  clock: Clock,
  countCarried: CountCarried = () => {},
): Provider {
  const endpoint = openEndpoint(settings, credential, connect);
  const { dispatcher, basePath, secrets } = endpoint;
  const withToolStubs = (request: GenerateRequest) =>
    settings.toolStubs ? addToolStubs(request) : request;
  return {
    generate(call, reader) {
      const { route } = call;
      const request = withToolStubs(call.request);
      const stream = wantsStream(request);
      const { dialect } = settings;
      const fit = new Fit();
      const target = { model: route.model, dialect, foldSystem: route.systemEntries === "fold" };
      const body = native.encodeRequest(request, { ...target, stream }, fit);
      countCarried(fit, request);
      const origin = { format: Format.NATIVE, dialect, model: route.model };
      return new HttpCall(
        {
          clock,
          dispatcher,
          path: `${basePath}/v1/messages`,
          headers: headersOf(endpoint, request),
          stream,
          codec: native,
          source: { origin, leftOut: fit.leftOut },
          secrets,
        },
        body,
        call,
        reader,
      );
    },
    countTokens({ request, route }, signal) {
      const { dialect } = settings;
      const target = { model: route.model, dialect, foldSystem: route.systemEntries === "fold" };
      return countTokens(endpoint, withToolStubs(request), target, signal);
    },
    close: () => dispatcher.close(),
    destroy: () => dispatcher.destroy(),
  };
}

function headersOf(
  { headers }: Endpoint,
  { vendorVersion, vendorBeta }: GenerateRequest,
): string[] {
  // Checked here, because undici's error would count as a failure of the provider.
  if (!/^[\t\x20-\x7e]*$/.test(vendorVersion + vendorBeta)) {
    throw new ApiError("invalid_request", {
      message: "vendor_version and vendor_beta: must be printable ASCII",
    });
  }
  const own = ["anthropic-version", vendorVersion || "2023-06-01"];
  return vendorBeta === ""
    ? [...headers, ...own]
    : [...headers, ...own, "anthropic-beta", vendorBeta];
}

// Servers without the counting endpoint of the native API answer one of these.
const statusesWithoutCounting = new Set([404, 405, 501]);

async function countTokens(
  endpoint: Endpoint,
  request: GenerateRequest,
  target: Parameters<typeof native.encodeCountRequest>[1],
  signal: AbortSignal,
): Promise<ProviderTokenCount | undefined> {
  const { dispatcher, basePath, secrets } = endpoint;
  const body = JSON.stringify(native.encodeCountRequest(request, target));
  const headers = headersOf(endpoint, request);
  try {
    const answer = await dispatcher.request({
      method: "POST",
      path: `${basePath}/v1/messages/count_tokens`,
      headers,
      body,
      signal,
    });
    if (statusesWithoutCounting.has(answer.statusCode)) {
      await answer.body.dump();
      return undefined;
    }
    const counted = parseJson(await answer.body.bytes());
    if (!isObject(counted)) throw new ApiError("upstream_error");
    if (answer.statusCode !== 200) {
      const retryAfterMs = readRetryAfterMs(answer.headers);
      const error = { status: answer.statusCode, body: redactSecrets(counted, secrets) };
      throw failureOfAnswer(
        { ...error, ...(retryAfterMs !== undefined && { retryAfterMs }) },
        target.model,
      ).error;
    }
    return native.decodeCount(counted);
  } catch (error) {
    if (signal.aborted) throw new ApiError("cancelled", { cause: error });
    if (error instanceof ApiError && error.reason !== "invalid_request") throw error;
    throw new ApiError("upstream_error", { cause: toApiError(error) });
  }
}
