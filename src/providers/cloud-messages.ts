// The native messages API as the clouds serve it: the same body, with the model, the version and
// the betas in other places, and refused as a whole for what the cloud does not know.

import type { JsonObject } from "@bufbuild/protobuf";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Clock } from "../base/clock.ts";
import type { AnswerCodec } from "../formats/codec.ts";
import * as native from "../formats/native/native.ts";
import { checkVendorHeaders } from "./anthropic.ts";
import { Betas, type Fitted } from "./betas.ts";
import { cloudFailure } from "./cloud-failures.ts";
import type { Feature, ProviderCall } from "./provider.ts";
import type { Message, Surface } from "./surface.ts";

/** A request of the native API, and what a cloud may want elsewhere. */
export type CloudRequest = {
  /** With `model` and, for an answer, `stream`. */
  readonly body: JsonObject;
  readonly model: string;
  readonly stream: boolean;
  /** By the cloud's names. */
  readonly betas: readonly string[];
};

/** Where one address of a cloud wants things. */
export type Place = {
  /** Default: that of the native format. */
  readonly codec?: AnswerCodec;
  readonly accept?: string;
  /** The betas that it offers, with its names for them. */
  readonly betas: Readonly<Record<string, string>>;
  /** True: it knows no system entries within a conversation. */
  readonly foldsSystem?: boolean;
  readonly write: (request: CloudRequest) => Message;
  /** Absent: it cannot count. */
  readonly counting?: Omit<NonNullable<Surface["counting"]>, "message"> & {
    /** Undefined: it cannot count with this model. */
    write(request: CloudRequest, maxTokens: number | undefined): Message | undefined;
  };
  readonly supports: (feature: Feature, model: string) => boolean;
  /** Default, and for undefined: the usual meaning of a cloud's failures. */
  readonly failureOf?: Surface["failureOf"];
};

/** The vendor's headers, where a cloud takes them as they are. */
export function vendorHeaders(betas: readonly string[]): string[] {
  const own = ["anthropic-version", "2023-06-01"];
  return betas.length === 0 ? own : [...own, "anthropic-beta", betas.join(",")];
}

/** What surfaces of clouds need of the process. */
export type CloudParts = {
  readonly clock: Clock;
  /** Hears of what the operator should know. */
  readonly report: (message: string) => void;
};

/** The vendor's own method of counting, below the path of the messages. */
export function countingBelow(path: string): NonNullable<Place["counting"]> {
  return {
    write: ({ body, betas }) => ({
      ...{ path: `${path}/count_tokens`, headers: vendorHeaders(betas), body },
    }),
    read: native.decodeCount,
    isMissing: ({ status }) => status === 404 || status === 405,
  };
}

/** `betas`: the operator's own names. */
export function cloudMessages(
  place: Place,
  { betas: own }: { readonly betas: Readonly<Record<string, string>> },
  parts: CloudParts,
): Surface {
  const { counting, failureOf } = place;
  const betas = new Betas(place.betas, own, parts);
  const dialect = "anthropic";
  const targetOf = ({ model, systemEntries }: ProviderCall["route"]) => {
    const foldSystem = place.foldsSystem === true || systemEntries === "fold";
    return { model, dialect, foldSystem } as const;
  };
  /** Holds no part of a request, which would stay for as long as its answer. */
  const learning = (
    model: string,
    { body, betas: sent }: Fitted,
  ): NonNullable<Message["learn"]> => {
    const members = Object.keys(body);
    return (answer) => betas.learn(answer, model, { members, betas: sent });
  };
  return {
    codec: place.codec ?? native,
    ...(place.accept !== undefined && { accept: place.accept }),
    generate({ request, route }, stream, fit) {
      checkVendorHeaders(request);
      const { model } = route;
      const encoded = native.encodeRequest(request, { ...targetOf(route), stream }, fit);
      const fitted = betas.fit(encoded, request.origin?.vendorBeta ?? "", model, fit);
      const writer = { format: Format.NATIVE, dialect, model } as const;
      const source = { writer, leftOut: fit.leftOut };
      const message = place.write({ ...fitted, model, stream });
      return { ...message, source, learn: learning(model, fitted) };
    },
    ...(counting && {
      counting: {
        message({ request, route }) {
          checkVendorHeaders(request);
          const { model } = route;
          const encoded = native.encodeCountRequest(request, targetOf(route));
          const fitted = betas.fit(encoded, request.origin?.vendorBeta ?? "", model);
          const asked = { ...fitted, model, stream: false };
          const message = counting.write(asked, request.maxTokens);
          return message && { ...message, learn: learning(model, fitted) };
        },
        read: counting.read,
        isMissing: counting.isMissing,
      },
    }),
    supports: place.supports,
    failureOf: (answer, model) => failureOf?.(answer, model) ?? cloudFailure(answer, model),
  };
}
