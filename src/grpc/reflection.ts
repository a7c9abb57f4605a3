// The standard reflection service, so that tools such as grpcurl need no proto files.

import { type DescFile, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, file_google_protobuf_descriptor } from "@bufbuild/protobuf/wkt";
import { ReflectionService } from "@grpc/reflection";
import { file_buf_validate_validate } from "../../gen/buf/validate/validate_pb.ts";
import { file_gateway_common_v1_options } from "../../gen/gateway/common/v1/options_pb.ts";
import { file_grpc_health_v1_health, Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { allServices } from "../contract/contract.ts";
import { describedFiles } from "../contract/descriptors.ts";

/** Describes the services, everything that they mention, the error details, and health. */
export function createReflection(): ReflectionService {
  const fileDescriptorProtos = [...describedFiles(), file_grpc_health_v1_health]
    .filter((file) => !omitted.has(file))
    .map(describeFile);
  // The library reads the files only. Its types require the other members.
  const definition = {
    format: "Protocol Buffer 3 EnumDescriptorProto" as const,
    type: {},
    fileDescriptorProtos,
  };
  const services = [...allServices, Health].map((service) => service.typeName);
  return new ReflectionService({ gateway: definition }, { services });
}

// The library re-encodes descriptors and corrupts extensions of descriptor.proto, which clients
// reject with "duplicate id". So options are left out; callers do not need them.
const omitted = new Set<DescFile>([
  file_buf_validate_validate,
  file_gateway_common_v1_options,
  file_google_protobuf_descriptor,
]);
const omittedNames = new Set([...omitted].map((file) => file.proto.name));

function describeFile(file: DescFile): Buffer {
  // To descriptor.proto options are unknown fields. Decoding without unknown fields drops them.
  const proto = fromBinary(
    FileDescriptorProtoSchema,
    toBinary(FileDescriptorProtoSchema, file.proto),
    {
      readUnknownFields: false,
    },
  );
  proto.dependency = proto.dependency.filter((name) => !omittedNames.has(name));
  return Buffer.from(toBinary(FileDescriptorProtoSchema, proto));
}
