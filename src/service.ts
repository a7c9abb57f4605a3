// What a service is to the rest of the house: an object with one function per method of its generated type, called the same way by
// every binding. `guard` puts identity, required fields and error translation in front of all of them alike.

import { type DescEnum, type DescField, type DescMessage, type DescMethod, type DescService, getOption, hasOption, type MessageShape } from "@bufbuild/protobuf";
import type { DescMethodServerStreaming, DescMethodUnary } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { callers, required } from "../gen/gateway/common/v1/options_pb.ts";
import type { Key, Secret } from "../gen/gateway/keys/v1/keys_pb.ts";
import { Refusal } from "./errors.ts";

/** One call as every binding gives it. Connect's `HandlerContext` is one. */
export interface Call {
  /** Aborted when the caller hangs up or the deadline passes. */
  readonly signal: AbortSignal;
  /** Metadata. `authorization` holds the credential. */
  readonly requestHeader: Headers;
}

/** Whoever calls. */
export type Caller =
  | { readonly kind: "key"; readonly key: Key; readonly secret: Secret }
  /** The operator. Sees every account, and has none. */
  | { readonly kind: "admin" };

/** A call whose caller is known. */
export interface CallOf extends Call {
  readonly caller: Caller;
}

/** Tells who sends this credential. Throws `missing_key`, `invalid_key` or `revoked_key`. */
export type Authenticate = (requestHeader: Headers) => Promise<Caller>;

type MethodOf<M, C extends Call> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: C) => Promise<MessageShape<O>>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, call: C) => AsyncIterable<MessageShape<O>>
      : never;

/** The methods of `S`, each taking its request and the call, and answering complete messages. Fits Connect's `ServiceImpl`. */
export type Implementation<S extends DescService, C extends Call = Call> = {
  [P in keyof S["method"]]: MethodOf<S["method"][P], C>;
};
