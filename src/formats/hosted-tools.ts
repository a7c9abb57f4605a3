// Tools of the Responses format that its vendor runs itself, at a price. A model of another format
// does not get them.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Message } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import type { Fit } from "./fit.ts";
import { isObject } from "./json.ts";

/** Types of tools whose calls the client always runs. Absent: those of gRPC callers. */
const clientTypes: readonly unknown[] = [
  ...[undefined, null, "function", "custom", "namespace"],
  ...["local_shell", "apply_patch"],
];

/** True for a tool whose calls the client runs. */
export function runsAtClient({ type, execution, environment }: JsonObject): boolean {
  if (type === "tool_search") return execution === "client";
  // Without an environment it is the older form, which knows no other.
  if (type === "shell") return !isObject(environment) || environment.type === "local";
  return clientTypes.includes(type);
}

/** Items with tools of the request: those that came later, and those that a search has found. */
const itemsWithTools: readonly unknown[] = ["additional_tools", "tool_search_output"];

/** An item without its tools, where they are tools of the request. */
export function withoutTools(item: JsonObject): JsonObject {
  if (!itemsWithTools.includes(item.type)) return item;
  const { tools, ...members } = item;
  return members;
}

/** A list of tools of a request, with its path. `isFirst`: the member `tools`. */
export type ToolList = {
  readonly tools: JsonValue[];
  readonly at: string;
  readonly isFirst: boolean;
};

/** All lists of tools of a request, in their order. `items` are those of its input. */
export function toolListsOf(
  tools: JsonValue | undefined,
  items: Iterable<JsonValue | undefined>,
): ToolList[] {
  const lists: ToolList[] = [];
  if (Array.isArray(tools)) lists.push({ tools, at: "tools", isFirst: true });
  let index = 0;
  for (const item of items) {
    if (isObject(item) && itemsWithTools.includes(item.type) && Array.isArray(item.tools))
      lists.push({ tools: item.tools, at: `input[${index}].tools`, isFirst: false });
    index += 1;
  }
  return lists;
}

/** The items that a client of the Responses format sent. */
export function* itemsOf(messages: readonly Message[]): Generator<JsonObject | undefined> {
  for (const { source } of messages) yield source;
}

/** A hosted tool of a request. */
export type HostedTool = { readonly type: string; readonly at: string };

/** The hosted tools in these lists. */
export function hostedToolsIn(lists: readonly ToolList[]): HostedTool[] {
  return lists.flatMap(({ tools, at }) =>
    tools.flatMap((tool, index) => {
      const found = isObject(tool) && !runsAtClient(tool) ? tool : undefined;
      return found ? [{ type: String(found.type).slice(0, 64), at: `${at}[${index}]` }] : [];
    }),
  );
}

/** `list` without its hosted tools, but for those that `isKept` keeps; itself if it has none. */
export function withoutHosted(
  list: JsonValue[],
  isKept: (tool: JsonObject) => boolean,
): JsonValue[] {
  const remains = (tool: JsonValue) => !isObject(tool) || runsAtClient(tool) || isKept(tool);
  return list.every(remains) ? list : list.filter(remains);
}

/** Notes the hosted tools of a request whose provider speaks another format. */
export function leaveOutHosted(request: GenerateRequest, fit: Fit): void {
  const lists = toolListsOf(request.extensions?.tools, itemsOf(request.messages));
  const hosted = hostedToolsIn(lists);
  for (const { type, at } of hosted) fit.leaveOut({ where: at, what: type, why: "hosted" });
  checkChoice(request, hosted, [], "the provider of this model speaks another API");
}

/**
 * Throws `feature_not_offered` where the choice of a request demands a tool of `leftOut` that is
 * not in `kept`, too, or any tool and none remains. `reason`: why they are left out.
 */
export function checkChoice(
  { tools, toolChoice }: GenerateRequest,
  leftOut: readonly HostedTool[],
  kept: readonly HostedTool[],
  reason: string,
): void {
  const [first] = leftOut;
  if (!first || !toolChoice) return;
  const { type, name } = toolChoice;
  const demanded =
    type === "tool" && !tools.some((tool) => tool.name === name)
      ? leftOut.find((tool) => tool.type === name && !kept.some((one) => one.type === name))
      : type === "any" && tools.length === 0 && kept.length === 0
        ? first
        : undefined;
  if (!demanded) return;
  const message = `tool_choice: demands ${demanded.type}, which is left out: ${reason}.`;
  throw new ApiError("feature_not_offered", { field: "tool_choice", message });
}
