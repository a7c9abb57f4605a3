// A gRPC client that shares no code with ours: bytes go out, bytes, status and trailers come back.

import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import {
  Client,
  type ClientOptions,
  credentials,
  Metadata,
  type StatusObject,
} from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import {
  ReasonSchema,
  type Refusal,
  RefusalSchema,
} from "../../gen/gateway/common/v1/refusal_pb.ts";
import { StatusSchema } from "../../gen/gateway/common/v1/status_pb.ts";

export type Outcome = {
  code: number;
  details: string;
  apiError: Refusal | undefined;
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
    // Told by `status` as well.
    call.on("error", () => {});
    call.on("status", resolve);
  });
  return { code: status.code, details: status.details, apiError: findDetail(status), answers };
}

function findDetail(status: StatusObject): Refusal | undefined {
  const [trailer] = status.metadata.get("grpc-status-details-bin");
  if (!(trailer instanceof Buffer)) return undefined;
  const told = fromBinary(StatusSchema, trailer);
  if (told.code !== status.code)
    throw new Error(`the trailers tell two codes, ${status.code} and ${told.code}`);
  return told.details
    .map((any) => anyUnpack(any, RefusalSchema))
    .find((detail) => detail !== undefined);
}

/** The name of a reason, as the proto spells it. */
export function reasonName(apiError: Refusal | undefined): string | undefined {
  return apiError && ReasonSchema.value[apiError.reason]?.name.replace("REASON_", "");
}
