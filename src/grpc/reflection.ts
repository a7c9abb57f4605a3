// The standard reflection service, so that tools such as grpcurl need no proto files.

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
  // The library reads the files only. Its types require the other members.
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

// The library re-encodes descriptors and corrupts extensions of descriptor.proto, which clients
// reject with "duplicate id". So our options are left out; callers do not need them.
const omitted = new Set<DescFile>([
  file_gateway_common_v1_options,
  file_google_protobuf_descriptor,
]);

function addFiles(file: DescFile, files: Set<DescFile>): void {
  if (omitted.has(file) || files.has(file)) return;
  for (const dependency of file.dependencies) addFiles(dependency, files);
  files.add(file);
}

function describeFile(file: DescFile): Buffer {
  // To descriptor.proto our options are unknown fields. Decoding without unknown fields drops them.
  const proto = fromBinary(
    FileDescriptorProtoSchema,
    toBinary(FileDescriptorProtoSchema, file.proto),
    {
      readUnknownFields: false,
    },
  );
  const names = new Set([...omitted].map((one) => one.proto.name));
  proto.dependency = proto.dependency.filter((name) => !names.has(name));
  return Buffer.from(toBinary(FileDescriptorProtoSchema, proto));
}
