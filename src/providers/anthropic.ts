// The native messages API as its vendor serves it.

import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import type { HttpProviderSettings } from "../config/catalog.ts";
import * as native from "../formats/native/native.ts";
import type { Surface } from "./surface.ts";

/** Servers without the counting endpoint of the native API answer one of these. */
const statusesWithoutCounting: readonly number[] = [404, 405, 501];

export function anthropicSurface({ dialect }: HttpProviderSettings): Surface {
  return {
    codec: native,
    generate({ request, route }, stream, fit) {
      const { model } = route;
      const target = { model, stream, dialect, foldSystem: route.systemEntries === "fold" };
      const body = native.encodeRequest(request, target, fit);
      const writer = { format: Format.NATIVE, dialect, model };
      const source = { writer, leftOut: fit.leftOut };
      return { path: "/v1/messages", headers: headersOf(request), body, source };
    },
    counting: {
      message({ request, route }) {
        const foldSystem = route.systemEntries === "fold";
        const body = native.encodeCountRequest(request, {
          model: route.model,
          dialect,
          foldSystem,
        });
        return { path: "/v1/messages/count_tokens", headers: headersOf(request), body };
      },
      read: native.decodeCount,
      isMissing: ({ status }) => statusesWithoutCounting.includes(status),
    },
  };
}

function headersOf(request: GenerateRequest): string[] {
  checkVendorHeaders(request);
  const { vendorVersion = "", vendorBeta = "" } = request.origin ?? {};
  const version = ["anthropic-version", vendorVersion || "2023-06-01"];
  return vendorBeta === "" ? version : [...version, "anthropic-beta", vendorBeta];
}

/** Throws `invalid_request` for headers of the client that no header can carry. */
export function checkVendorHeaders({ origin }: GenerateRequest): void {
  const { vendorVersion = "", vendorBeta = "" } = origin ?? {};
  // undici's error would count as a failure of the provider.
  if (/^[\t\x20-\x7e]*$/.test(vendorVersion + vendorBeta)) return;
  throw new ApiError("invalid_request", {
    message: "vendor_version and vendor_beta: must be printable ASCII",
  });
}
