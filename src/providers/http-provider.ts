// A provider over HTTP: a surface and an authenticator behind one pool of connections.

import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { HttpSettings } from "../config/catalog.ts";
import { Fit } from "../formats/fit.ts";
import { isObject, parseJsonText } from "../formats/json.ts";
import { addToolStubs, type EndpointParts, openEndpoint, wantsStream } from "./endpoint.ts";
import { type ErrorAnswer, failureOfAnswer, readRetryAfterMs } from "./failures.ts";
import { HttpCall } from "./http-call.ts";
import type { CountCarried, Provider, ProviderFailure } from "./provider.ts";
import { redactSecrets } from "./redact.ts";
import type { Authenticator, Message, Surface, UnprovenRequest } from "./surface.ts";

/** A request that is changed after a refusal goes out at most so many times more. */
const changesMax = 4;

/** Connects a provider with these two parts. */
export function createHttpProvider(
  settings: HttpSettings,
  { surface, authenticator }: { surface: Surface; authenticator: Authenticator },
  parts: EndpointParts & { readonly countCarried: CountCarried },
): Provider {
  const { clock, countCarried } = parts;
  const { dispatcher, basePath, headers } = openEndpoint(settings, parts, surface.accept);
  // Of the operator: a header may hold a secret. Values below 8 characters are ordinary words.
  const ownSecrets = Object.values(settings.headers).filter(({ length }) => length >= 8);
  let [secrets, proving]: [readonly string[], readonly string[] | undefined] = [[], undefined];
  /** The same list while the authenticator has the same. */
  const allSecrets = () => {
    const proved = authenticator.secrets();
    if (proved !== proving) [secrets, proving] = [[...proved, ...ownSecrets], proved];
    return secrets;
  };
  const addressed = ({ path, headers: more, body }: Message) => ({
    path: basePath + path,
    headers: [...headers, ...more],
    body,
  });
  const withStubs = (request: GenerateRequest) =>
    settings.toolStubs ? addToolStubs(request) : request;

  /** Decides whether one request is sent again after a refusal. */
  const createSecondChance = () => {
    let [isRefreshed, changes] = [false, 0];
    return (answer: ErrorAnswer, learn: Message["learn"]): boolean | Promise<boolean> => {
      const refreshed = isRefreshed ? undefined : authenticator.refresh?.(answer);
      if (refreshed) {
        isRefreshed = true;
        return refreshed;
      }
      return changes++ < changesMax && (learn?.(answer) ?? false);
    };
  };

  const { features = {} } = settings;
  const { supports } = surface;
  const restricts = Object.values(features).includes(false);
  return {
    ...((supports || restricts) && {
      supports: (feature, model) => features[feature] ?? supports?.(feature, model) ?? true,
    }),
    generate(call, reader) {
      const stream = wantsStream(call.request);
      const mayRepeat = createSecondChance();
      let learn: Message["learn"];
      const write = () => {
        const fit = new Fit();
        const request = withStubs(call.request);
        const { source, ...message } = surface.generate({ ...call, request }, stream, fit);
        learn = message.learn;
        return { ...addressed(message), source, fit, request };
      };
      const { fit, request, ...first } = write();
      countCarried(fit, request);
      const how = {
        clock,
        dispatcher,
        authenticator,
        stream,
        codec: surface.codec,
        secrets: allSecrets,
        write,
        mayRepeat: (answer: ErrorAnswer) => mayRepeat(answer, learn),
        failureOf: failureOfRefusal,
        failureInAnswer: surface.failureOf,
      };
      return new HttpCall(how, first, call, reader);
    },
    async countTokens(call, signal) {
      if (!surface.counting) return undefined;
      const { message, read, isMissing } = surface.counting;
      const mayRepeat = createSecondChance();
      const { model } = call.route;
      const request = withStubs(call.request);
      for (;;) {
        const written = message({ ...call, request });
        if (!written) return undefined;
        const answer = await post(addressed(written), signal);
        const counted = answer.status === 200 ? answer.body : undefined;
        if (counted) return read(counted);
        const error = withoutSecrets(answer);
        if (error.status >= 400 && (await mayRepeat(error, written.learn))) continue;
        if (isMissing(error, model)) return undefined;
        throw errorOfCount(error, model);
      }
    },
    close: () => dispatcher.close(),
    destroy: () => dispatcher.destroy(),
    ...(authenticator.credential && { credential: authenticator.credential }),
  };

  async function post(
    { path, headers: sent, body: content }: Omit<Message, "learn">,
    signal: AbortSignal,
  ): Promise<ErrorAnswer> {
    const request: UnprovenRequest = {
      method: "POST",
      path,
      headers: sent,
      body: Buffer.from(JSON.stringify(content)),
    };
    try {
      const proof = await authenticator.headers(request);
      const answer = await dispatcher.request({
        ...request,
        headers: [...request.headers, ...proof],
        signal,
      });
      const body = parseJsonText(await answer.body.text());
      const { statusCode: status, headers: received } = answer;
      const retryAfterMs = readRetryAfterMs(received);
      return {
        status,
        headers: received,
        ...(isObject(body) && { body }),
        ...(retryAfterMs !== undefined && { retryAfterMs }),
      };
    } catch (error) {
      if (signal.aborted) throw new ApiError("cancelled", { cause: error });
      throw new ApiError("upstream_error", { cause: toApiError(error) });
    }
  }

  function errorOfCount(error: ErrorAnswer, model: string): ApiError {
    return error.body ? failureOfRefusal(error, model).error : new ApiError("upstream_error");
  }

  function withoutSecrets(answer: ErrorAnswer): ErrorAnswer {
    const body = answer.body && redactSecrets(answer.body, allSecrets());
    return { ...answer, ...(body && { body }) };
  }

  function failureOfRefusal(answer: ErrorAnswer, model: string): ProviderFailure {
    return surface.failureOf?.(answer, model) ?? failureOfAnswer(answer, model);
  }
}
