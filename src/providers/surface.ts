// The two parts in which providers over HTTP differ: the surface, which writes requests in the
// words of one address, and the authenticator, which proves who sends them. `http-provider.ts` has
// what they share. No other code knows a cloud.

import type { JsonObject } from "@bufbuild/protobuf";
import type { AnswerCodec, AnswerSource } from "../formats/codec.ts";
import type { Fit } from "../formats/fit.ts";
import type { ErrorAnswer } from "./failures.ts";
import type {
  Credential,
  Feature,
  ProviderCall,
  ProviderFailure,
  ProviderTokenCount,
} from "./provider.ts";

/** One request to an address. */
export type Message = {
  /** Begins with a slash, and follows the path of the base URL. */
  readonly path: string;
  /** Beside those of every request: name, value, name, value, … */
  readonly headers: readonly string[];
  readonly body: JsonObject;
  /**
   * Changes what the surface writes from now on after such an answer to this request. Returns false
   * if that cannot help, otherwise the request is written and sent again. Absent: it never can.
   */
  readonly learn?: (answer: ErrorAnswer) => boolean;
};

/** What one address makes of canonical requests, and how it answers. */
export type Surface = {
  readonly codec: AnswerCodec;
  /** The media types that it is asked for. Default: JSON and event streams. */
  readonly accept?: string;
  /** The request for an answer. Throws an ApiError for what the format cannot express. */
  generate(
    call: Pick<ProviderCall, "request" | "route">,
    stream: boolean,
    fit: Fit,
  ): Message & { readonly source: AnswerSource };
  /** Absent: it cannot count. */
  readonly counting?: {
    /** Undefined: it cannot with this model. */
    message(call: Pick<ProviderCall, "request" | "route">): Message | undefined;
    /** The count in an answer. Throws `upstream_error` if there is none. */
    read(answer: JsonObject): ProviderTokenCount;
    /** True for the error answer of a server that cannot count with this model. */
    isMissing(answer: ErrorAnswer, model: string): boolean;
  };
  /** Absent: it has all features. */
  readonly supports?: (feature: Feature, model: string) => boolean;
  /**
   * The meaning of an error answer, or of a JSON body without an answer. Undefined: the same as
   * elsewhere.
   */
  readonly failureOf?: (answer: ErrorAnswer, model: string) => ProviderFailure | undefined;
};

/** A request without the headers that prove who sends it. */
export type UnprovenRequest = {
  readonly method: "POST";
  /** With the query, as it is sent. */
  readonly path: string;
  /** Name, value, name, value, … */
  readonly headers: readonly string[];
  readonly body: Uint8Array;
};

/** Proves to a provider who sends a request. */
export type Authenticator = {
  /**
   * The headers that do so: name, value, … A promise only where they must be fetched or computed
   * elsewhere; it rejects with a `CredentialError`.
   */
  headers(request: UnprovenRequest): readonly string[] | Promise<readonly string[]>;
  /**
   * Replaces the credential after an answer that refuses it, and resolves with true if another
   * attempt may succeed. Undefined: the answer refuses something else. Absent: it is constant.
   */
  readonly refresh?: (answer: ErrorAnswer) => Promise<boolean> | undefined;
  /** Texts that are removed from all that a provider says. The same list until one changes. */
  secrets(): readonly string[];
  /** Absent: the credential is constant, or there is none. */
  readonly credential?: () => Credential;
};

/** No credential can be had. The message is for operators, without secrets. */
export class CredentialError extends Error {
  override readonly name = "CredentialError";
}
