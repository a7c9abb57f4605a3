// Sample blocks of the kinds that the simulated model does not produce by itself, so that clients
// can be tried with each: `[[simulate blocks=server_tool_use,web_search_tool_result,…]]`.

import { create, type JsonObject } from "@bufbuild/protobuf";
import { type Block, BlockSchema } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { BlockDelta } from "../../../gen/gateway/inference/v1/event_pb.ts";

/** A planned block. */
export type PlannedBlock =
  | { readonly kind: "text"; readonly text: string }
  | {
      readonly kind: "thinking";
      readonly thinking: string;
      readonly isShown: boolean;
      readonly signature: string;
    }
  /** `input` is JSON. */
  | { readonly kind: "tool_use"; readonly name: string; readonly input: string }
  /** A complete block. */
  | {
      readonly kind: "sample";
      readonly start: Block;
      readonly deltas: readonly BlockDelta["kind"][];
    };

const toolId = "srvtoolu_0123456789abcdefghijklmn";
const citation: JsonObject = {
  type: "char_location",
  cited_text: "an example",
  document_index: 0,
  document_title: "Example",
  start_char_index: 0,
  end_char_index: 10,
};
const searchResult: JsonObject = {
  type: "web_search_result",
  title: "Example",
  url: "https://example.com/",
  encrypted_content: "ZXhhbXBsZQ==",
  page_age: null,
};

// The block of `content_block_start`, by kind. It is complete, or empty where deltas complete it.
const startsByKind: Record<string, JsonObject> = {
  server_tool_use: { id: toolId, name: "web_search", input: {} },
  mcp_tool_use: {
    id: "mcptoolu_0123456789abcdefghijklmn",
    name: "example",
    server_name: "example",
    input: {},
  },
  mcp_tool_result: {
    tool_use_id: "mcptoolu_0123456789abcdefghijklmn",
    is_error: false,
    content: [{ type: "text", text: "example" }],
  },
  web_search_tool_result: { tool_use_id: toolId, content: [searchResult] },
  web_fetch_tool_result: {
    tool_use_id: toolId,
    content: {
      type: "web_fetch_result",
      url: "https://example.com/",
      retrieved_at: "2026-01-02T03:04:05Z",
      content: {
        type: "document",
        source: { type: "text", media_type: "text/plain", data: "example" },
        title: "Example",
        citations: null,
      },
    },
  },
  code_execution_tool_result: {
    tool_use_id: toolId,
    content: {
      type: "code_execution_result",
      stdout: "example\n",
      stderr: "",
      return_code: 0,
      content: [],
    },
  },
  bash_code_execution_tool_result: {
    tool_use_id: toolId,
    content: {
      type: "bash_code_execution_result",
      stdout: "example\n",
      stderr: "",
      return_code: 0,
      content: [],
    },
  },
  text_editor_code_execution_tool_result: {
    tool_use_id: toolId,
    content: {
      type: "text_editor_code_execution_view_result",
      file_type: "text",
      content: "example",
      num_lines: 1,
      start_line: 1,
      total_lines: 1,
    },
  },
  tool_search_tool_result: {
    tool_use_id: toolId,
    content: {
      type: "tool_search_tool_search_result",
      tool_references: [{ type: "tool_reference", tool_name: "example" }],
    },
  },
  advisor_tool_result: {
    tool_use_id: toolId,
    content: { type: "advisor_result", text: "example" },
  },
  container_upload: { file_id: "file_0123456789abcdefghijklmn" },
  fallback: { from: { model: "example-1" }, to: { model: "example-2" } },
  compaction: { content: null },
};

/** A sample of this kind. An unknown kind gives an unknown block with an unknown delta. */
export function sampleBlock(kind: string): PlannedBlock {
  switch (kind) {
    case "tool_use":
      return { kind: "tool_use", name: "example", input: '{"example":true}' };
    case "redacted_thinking":
      return sample(
        create(BlockSchema, {
          kind: { case: "redactedThinking", value: { data: "ZXhhbXBsZQ==" } },
        }),
        [],
      );
    case "citations":
      return sample(
        create(BlockSchema, {
          kind: { case: "text", value: { text: "" } },
          extensions: { citations: null },
        }),
        [
          { case: "text", value: "an example" },
          { case: "other", value: { type: "citations_delta", citation } },
        ],
      );
    default: {
      const start: JsonObject = {
        type: kind,
        ...((Object.hasOwn(startsByKind, kind) ? startsByKind[kind] : undefined) ?? {
          note: "an unknown kind",
        }),
      };
      return sample(create(BlockSchema, { kind: { case: "other", value: start } }), deltasOf(kind));
    }
  }
}

function sample(start: Block, deltas: readonly BlockDelta["kind"][]): PlannedBlock {
  return { kind: "sample", start, deltas };
}

function deltasOf(kind: string): BlockDelta["kind"][] {
  if (kind === "server_tool_use" || kind === "mcp_tool_use")
    return [{ case: "inputJson", value: '{"query":"example"}' }];
  if (kind === "compaction") {
    return [
      {
        case: "other",
        value: { type: "compaction_delta", content: "A summary.", encrypted_content: null },
      },
    ];
  }
  return Object.hasOwn(startsByKind, kind)
    ? []
    : [{ case: "other", value: { type: `${kind}_delta`, note: "an unknown delta" } }];
}
