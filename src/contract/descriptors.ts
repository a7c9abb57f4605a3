// The descriptors of the services: for gRPC reflection, and for tools that take a file of them.

import { create, type DescFile, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, FileOptionsSchema } from "@bufbuild/protobuf/wkt";
import { file_gateway_common_v1_error } from "../../gen/gateway/common/v1/error_pb.ts";
import { file_google_rpc_error_details } from "../../gen/google/rpc/error_details_pb.ts";
import { file_google_rpc_status } from "../../gen/google/rpc/status_pb.ts";
import { allServices } from "./contract.ts";

/** The error details: no method mentions them, and every method sends them. */
const errorFiles = [
  file_gateway_common_v1_error,
  file_google_rpc_error_details,
  file_google_rpc_status,
];

/**
 * The files of the services, everything that they import, and the error details. Each file comes
 * after those that it imports.
 */
export function describedFiles(): DescFile[] {
  const files = new Set<DescFile>();
  const add = (file: DescFile): void => {
    if (files.has(file)) return;
    file.dependencies.forEach(add);
    files.add(file);
  };
  errorFiles.forEach(add);
  for (const service of allServices) add(service.file);
  return [...files];
}

/** Our library has the file of descriptors without its options, which Go and Java need. */
const descriptorOptions = {
  goPackage: "google.golang.org/protobuf/types/descriptorpb",
  javaPackage: "com.google.protobuf",
  javaOuterClassname: "DescriptorProtos",
};

/** The same files as a `google.protobuf.FileDescriptorSet`. */
export function encodeDescriptorSet(): Uint8Array {
  const file = describedFiles().map(({ proto }) =>
    proto.name === "google/protobuf/descriptor.proto"
      ? { ...proto, options: create(FileOptionsSchema, descriptorOptions) }
      : proto,
  );
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
}
