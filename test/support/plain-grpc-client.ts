// A gRPC client that shares no code with ours: it sends bytes and returns bytes and status.

import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import {
  Client,
  type ClientOptions,
  credentials,
  Metadata,
  type StatusObject,
} from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { type Status, StatusSchema } from "../../gen/google/rpc/status_pb.ts";

export type Outcome = {
  code: number;
  details: string;
  /** Decoded from the trailer `grpc-status-details-bin`. */
  error: Status | undefined;
  answers: Buffer[];
};

export function plainClient(address: string, options: ClientOptions = {}): Client {
  const client = new Client(address, credentials.createInsecure(), options);
  onTestFinished(() => client.close());
  return client;
}

export function plainMetadata(headers: Record<string, string | Buffer>): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
  return metadata;
}

/** One call of either kind. */
export async function callPlain(
  client: Client,
  path: string,
  request: Uint8Array,
  headers: Record<string, string | Buffer> = {},
  deadline?: number,
): Promise<Outcome> {
  const answers: Buffer[] = [];
  const status = await new Promise<StatusObject>((resolve) => {
    const call = client.makeServerStreamRequest(
      path,
      (bytes: Uint8Array) => Buffer.from(bytes),
      (bytes) => bytes,
      request,
      plainMetadata(headers),
      deadline === undefined ? {} : { deadline },
    );
    call.on("data", (answer: Buffer) => answers.push(answer));
    // The event `status` carries the same.
    call.on("error", () => {});
    call.on("status", resolve);
  });
  return { code: status.code, details: status.details, error: decodeTrailer(status), answers };
}

function decodeTrailer({ code, metadata }: StatusObject): Status | undefined {
  const [trailer] = metadata.get("grpc-status-details-bin");
  if (!(trailer instanceof Buffer)) return undefined;
  const error = fromBinary(StatusSchema, trailer);
  if (error.code !== code)
    throw new Error(`the trailers hold two codes, ${code} and ${error.code}`);
  return error;
}

/** The detail of this type. */
export function findDetail<D extends DescMessage>(
  error: Status | undefined,
  desc: D,
): MessageShape<D> | undefined {
  return error?.details.map((any) => anyUnpack(any, desc)).find((detail) => detail !== undefined);
}

/** `ErrorInfo.reason`, such as `INVALID_KEY`. */
export function reasonOf(error: Status | undefined): string | undefined {
  return findDetail(error, ErrorInfoSchema)?.reason;
}
