// Some providers refuse a conversation that holds tool calls while no tools are defined, as when a client asks for a summary at the
// end of its work.

import { create, type JsonObject } from "@bufbuild/protobuf";
import { ToolChoiceSchema, ToolSchema } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";

/**
 * The request with a minimal definition of each tool that its history calls, if it defines none itself. The stubs may not be called:
 * the client has no such tools.
 */
export function addToolStubs(request: GenerateRequest): GenerateRequest {
  if (request.tools.length > 0) return request;
  const names = new Set<string>();
  for (const { content } of request.messages) {
    for (const { kind } of content) if (kind.case === "toolUse" && kind.value.name !== "") names.add(kind.value.name);
  }
  if (names.size === 0) return request;
  const inputSchema: JsonObject = { type: "object", properties: {} };
  const { extensions, ...rest } = request;
  return {
    ...rest,
    tools: Array.from(names, (name) => create(ToolSchema, { name, inputSchema })),
    toolChoice: create(ToolChoiceSchema, { type: "none" }),
    ...(extensions && { extensions: withoutTools(extensions) }),
  };
}

// An empty list of tools, which the typed field cannot tell from none.
function withoutTools({ tools: _, ...others }: JsonObject): JsonObject {
  return others;
}
