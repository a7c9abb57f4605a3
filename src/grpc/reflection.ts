// The standard reflection service, so that grpcurl and the like need no files.

import { type DescFile, type DescService, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, file_google_protobuf_descriptor } from "@bufbuild/protobuf/wkt";
import { ReflectionService } from "@grpc/reflection";
import { file_gateway_common_v1_error } from "../../gen/gateway/common/v1/error_pb.ts";
import { file_gateway_common_v1_options } from "../../gen/gateway/common/v1/options_pb.ts";
import { file_google_rpc_error_details } from "../../gen/google/rpc/error_details_pb.ts";
import { file_google_rpc_status } from "../../gen/google/rpc/status_pb.ts";

/** The error details: no method mentions them, and every method sends them. */
const errorFiles = [
  file_gateway_common_v1_error,
  file_google_rpc_error_details,
  file_google_rpc_status,
];

/** Describes these services, everything they mention, and the error details. */
export function createReflection(services: readonly DescService[]): ReflectionService {
  const files = new Set<DescFile>();
  for (const file of errorFiles) addFiles(file, files);
  for (const service of services) addFiles(service.file, files);
  // Only the files are read; the rest is what the library calls the smallest definition that can
  // carry them.
  const definition = {
    format: "Protocol Buffer 3 EnumDescriptorProto",
    type: {},
    fileDescriptorProtos: [...files].map(describeFile),
  } as const;
  return new ReflectionService(
    { gateway: definition },
    { services: services.map((service) => service.typeName) },
  );
}

// Our options stay out: the reflection library re-encodes descriptors and garbles extensions of
// descriptor.proto, at which clients stop with "duplicate id". They mean nothing to a caller.
const left = new Set<DescFile>([file_gateway_common_v1_options, file_google_protobuf_descriptor]);

function addFiles(file: DescFile, files: Set<DescFile>): void {
  if (left.has(file) || files.has(file)) return;
  for (const dependency of file.dependencies) addFiles(dependency, files);
  files.add(file);
}

function describeFile(file: DescFile): Buffer {
  // Read back without unknown fields, which is what options of our own are to descriptor.proto.
  const proto = fromBinary(
    FileDescriptorProtoSchema,
    toBinary(FileDescriptorProtoSchema, file.proto),
    {
      readUnknownFields: false,
    },
  );
  const names = new Set([...left].map((one) => one.proto.name));
  proto.dependency = proto.dependency.filter((name) => !names.has(name));
  return Buffer.from(toBinary(FileDescriptorProtoSchema, proto));
}
