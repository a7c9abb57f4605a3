// What a request needs of its provider beyond text and tools.

import { type Block, Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { isOpenai } from "../formats/codec.ts";
import type { Feature } from "./provider.ts";

/** A feature, and the member of the request that asks for it. */
export type Need = { readonly feature: Feature; readonly member: string };

const searches = /^web_search_/;
/** Tools of the native format that its vendor runs. All others run at the client. */
const ranByVendor = /^(web_fetch_|code_execution_|advisor_|mcp_toolset)/;

/** The features that a request needs, in the order of its members. */
export function needsOf(request: GenerateRequest): Need[] {
  const needs: Need[] = [];
  const need = (feature: Feature, member: string) => needs.push({ feature, member });
  // Members of OpenAI's formats that the native one has not are left out by its encoder.
  const {
    speed,
    inference_geo: geo,
    mcp_servers: servers,
  } = isOpenai(request.origin?.format) ? {} : (request.extensions ?? {});
  for (const [index, { type = "", extensions }] of request.tools.entries()) {
    if (searches.test(type)) need("webSearch", `tools[${index}].type`);
    if (ranByVendor.test(type)) need("serverTools", `tools[${index}].type`);
    if (extensions?.strict === true) need("strictTools", `tools[${index}].strict`);
  }
  const source = request.messages.findIndex(({ content }) => content.some(hasUrl));
  if (source >= 0) need("urlSources", `messages[${source}]`);
  if (request.outputConfig?.format) need("structuredOutput", formatOf(request));
  if (Array.isArray(servers) && servers.length > 0) need("serverTools", "mcp_servers");
  if (speed === "fast") need("fast", "speed");
  if (geo !== undefined && geo !== null) need("geo", "inference_geo");
  return needs;
}

/** The name of the member with the schema of the answer. */
function formatOf({ origin }: GenerateRequest): string {
  if (origin?.format === Format.CHAT) return "response_format";
  return origin?.format === Format.RESPONSES ? "text.format" : "output_config.format";
}

/** True for an image or a document by its URL, also within the result of a tool. */
function hasUrl({ kind }: Block): boolean {
  if (kind.case === "toolResult") return kind.value.content.some(hasUrl);
  if (kind.case !== "image" && kind.case !== "document") return false;
  return kind.value.source?.kind.case === "url";
}
