// The HTTP answer to every error reason, in each envelope.

import { globSync, readFileSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import { anyPack, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { LimitMetricSchema, ReasonSchema } from "../../gen/gateway/common/v1/error_pb.ts";
import { QuotaFailureSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { fromDetails, toDetails } from "../../src/base/error-details.ts";
import { ApiError, type ErrorReason, errorCatalog } from "../../src/base/errors.ts";
import { toErrorResponse, toStreamErrorBody } from "../../src/http/error-body.ts";
import type { Envelope } from "../../src/http/error-table.ts";

const names = Object.keys(errorCatalog) as ErrorReason[];

test("the proto lists every reason, and no other", () => {
  const listed = ReasonSchema.values.filter(({ number }) => number !== 0).map(({ name }) => name);
  expect(listed.sort()).toEqual(names.map((name) => `REASON_${name.toUpperCase()}`).sort());
});

test("the proto lists every limit, and no other", () => {
  const sources = globSync("src/**/*.ts").map((path) => readFileSync(path, "utf8"));
  const text = sources.join("\n");
  const windows =
    /^(key|manager|pool)_((daily|weekly|monthly|total)_microcredits|requests_at_once)$/;
  const names = LimitMetricSchema.values
    .filter(({ number }) => number !== 0)
    .map(({ localName }) => localName.toLowerCase());
  // The compiler refuses the others; those of windows are put together.
  const unused = names.filter((name) => !text.includes(`"${name}"`) && !windows.test(name));
  expect(unused.filter((name) => !text.includes(`  ${name}: {`))).toEqual([]);
  expect(text).toContain("_microcredits`");
  expect(names.filter((name) => windows.test(name)).length).toBe(3 * 5 - 1);
});

test("a limit that this version does not know is left out of its error", () => {
  const known = { name: "views", limit: 5n } as const;
  const details = toDetails(new ApiError("limit_reached", { limit: known }));
  const read = (metric: string) => {
    const packed = details.map(({ desc, value }) => {
      const violations = [{ quotaMetric: metric, quotaValue: 5n }];
      const quota = create(QuotaFailureSchema, { violations });
      return desc === QuotaFailureSchema ? anyPack(desc, quota) : anyPack(desc, value);
    });
    return fromDetails("Too many.", packed)?.facts.limit;
  };
  expect(read("views")).toMatchObject(known);
  for (const metric of ["moons_per_minute", "unspecified", ""])
    expect(read(metric)).toBeUndefined();
});

type Expected = {
  reason: ErrorReason;
  status: number;
  chatStatus?: number;
  native: [type: string, code?: string];
  chat: [type: string, code: string | null, param?: string];
  shouldRetry?: "false";
  retryAfter?: true;
};

const invalid = "invalid_request_error";
const unauthenticated = "authentication_error";
const rows: Expected[] = [
  {
    reason: "missing_key",
    status: 401,
    native: [unauthenticated, "missing_key"],
    chat: [invalid, "invalid_api_key"],
    shouldRetry: "false",
  },
  {
    reason: "invalid_key",
    status: 401,
    native: [unauthenticated, "invalid_key"],
    chat: [invalid, "invalid_api_key"],
    shouldRetry: "false",
  },
  {
    reason: "revoked_key",
    status: 401,
    native: [unauthenticated, "revoked_key"],
    chat: [invalid, "revoked_api_key"],
    shouldRetry: "false",
  },
  {
    reason: "wrong_credential_header",
    status: 401,
    native: [unauthenticated, "wrong_credential_header"],
    chat: [invalid, "wrong_credential_header"],
    shouldRetry: "false",
  },
  {
    reason: "credits_exhausted",
    status: 402,
    native: ["billing_error", "credits_exhausted"],
    chat: ["insufficient_quota", "insufficient_quota"],
    shouldRetry: "false",
  },
  {
    reason: "credits_held",
    status: 429,
    native: ["rate_limit_error", "credits_held"],
    chat: ["requests", "credits_held"],
    retryAfter: true,
  },
  {
    reason: "monthly_cap_reached",
    status: 402,
    native: ["billing_error", "monthly_cap_reached"],
    chat: ["insufficient_quota", "monthly_cap_reached"],
    shouldRetry: "false",
  },
  {
    reason: "model_not_allowed",
    status: 403,
    native: ["permission_error", "model_not_allowed"],
    chat: [invalid, "model_not_allowed", "model"],
    shouldRetry: "false",
  },
  {
    reason: "model_not_found",
    status: 404,
    native: ["not_found_error", "model_not_found"],
    chat: [invalid, "model_not_found", "model"],
    shouldRetry: "false",
  },
  {
    reason: "not_found",
    status: 404,
    native: ["not_found_error", "not_found"],
    chat: [invalid, "not_found"],
    shouldRetry: "false",
  },
  {
    reason: "method_not_allowed",
    status: 405,
    native: [invalid, "method_not_allowed"],
    chat: [invalid, "method_not_allowed"],
    shouldRetry: "false",
  },
  {
    reason: "version_required",
    status: 400,
    native: [invalid, "version_required"],
    chat: [invalid, "version_required"],
    shouldRetry: "false",
  },
  {
    reason: "version_unsupported",
    status: 400,
    native: [invalid, "version_unsupported"],
    chat: [invalid, "version_unsupported"],
    shouldRetry: "false",
  },
  {
    reason: "invalid_request",
    status: 400,
    native: [invalid],
    chat: [invalid, null],
    shouldRetry: "false",
  },
  {
    reason: "feature_not_offered",
    status: 400,
    native: [invalid, "feature_not_offered"],
    chat: [invalid, "feature_not_offered"],
    shouldRetry: "false",
  },
  {
    reason: "thread_unsupported_request",
    status: 400,
    native: [invalid, "thread_unsupported_request"],
    chat: [invalid, "thread_unsupported_request"],
  },
  {
    reason: "context_length_exceeded",
    status: 400,
    native: [invalid],
    chat: [invalid, "context_length_exceeded", "messages"],
    shouldRetry: "false",
  },
  {
    reason: "request_too_large",
    status: 413,
    native: ["request_too_large"],
    chat: [invalid, "request_too_large"],
    shouldRetry: "false",
  },
  {
    reason: "request_body_too_large_after_decoding",
    status: 413,
    native: [invalid, "request_body_too_large_after_decoding"],
    chat: [invalid, "request_body_too_large_after_decoding"],
    shouldRetry: "false",
  },
  {
    reason: "request_body_encoding_unsupported",
    status: 400,
    native: [invalid, "request_body_encoding_unsupported"],
    chat: [invalid, "request_body_encoding_unsupported"],
    shouldRetry: "false",
  },
  {
    reason: "request_body_encoding_invalid",
    status: 400,
    native: [invalid, "request_body_encoding_invalid"],
    chat: [invalid, "request_body_encoding_invalid"],
    shouldRetry: "false",
  },
  {
    reason: "auth_rate_limited",
    status: 429,
    native: ["rate_limit_error", "auth_rate_limited"],
    chat: ["requests", "auth_rate_limited"],
    retryAfter: true,
  },
  {
    reason: "rate_limited",
    status: 429,
    native: ["rate_limit_error", "rate_limited"],
    chat: ["requests", "rate_limit_exceeded"],
    retryAfter: true,
  },
  {
    reason: "requests_not_allowed",
    status: 403,
    native: ["permission_error", "requests_not_allowed"],
    chat: [invalid, "requests_not_allowed"],
    shouldRetry: "false",
  },
  {
    reason: "too_many_failed",
    status: 429,
    native: ["rate_limit_error", "too_many_failed"],
    chat: ["requests", "too_many_failed"],
    retryAfter: true,
  },
  {
    reason: "too_many_bodies",
    status: 429,
    native: ["rate_limit_error", "too_many_bodies"],
    chat: ["requests", "too_many_bodies"],
    retryAfter: true,
  },
  {
    reason: "body_too_slow",
    status: 408,
    native: ["timeout_error", "body_too_slow"],
    chat: [invalid, "body_too_slow"],
  },
  {
    reason: "count_rate_limited",
    status: 429,
    native: ["rate_limit_error", "count_rate_limited"],
    chat: ["requests", "count_rate_limited"],
    retryAfter: true,
  },
  {
    reason: "gateway_unavailable",
    status: 503,
    native: ["api_error", "gateway_unavailable"],
    chat: ["server_error", "gateway_unavailable"],
    retryAfter: true,
  },
  {
    reason: "database_unavailable",
    status: 503,
    native: ["api_error", "database_unavailable"],
    chat: ["server_error", "database_unavailable"],
    retryAfter: true,
  },
  {
    reason: "billing_unavailable",
    status: 503,
    native: ["api_error", "billing_unavailable"],
    chat: ["server_error", "billing_unavailable"],
    retryAfter: true,
  },
  {
    reason: "overloaded",
    status: 529,
    chatStatus: 503,
    native: ["overloaded_error"],
    chat: ["server_error", "overloaded"],
  },
  {
    reason: "upstream_error",
    status: 502,
    native: ["api_error", "upstream_error"],
    chat: ["server_error", "upstream_error"],
  },
  { reason: "timeout", status: 504, native: ["timeout_error"], chat: ["server_error", "timeout"] },
  { reason: "internal", status: 500, native: ["api_error"], chat: ["server_error", null] },
];

describe.each(rows)(
  "$reason",
  ({ reason, status, chatStatus, native, chat, shouldRetry, retryAfter }) => {
    const expected = errorCatalog[reason].message;

    test("native clients get its status, type and code", () => {
      const response = toErrorResponse(new ApiError(reason), "native", "req_12345678");
      expect(response.status).toBe(status);
      const [type, code] = native;
      const details = code === undefined ? {} : { details: { error_code: code } };
      expect(response.body).toMatchObject({
        type: "error",
        error: { type, message: expected, ...details },
        request_id: "req_12345678",
      });
      if (code === undefined) expect(response.body.error).not.toHaveProperty("details");
      expect(response.headers["x-should-retry"]).toBe(shouldRetry);
      expect(response.headers["retry-after"] !== undefined).toBe(retryAfter ?? false);
    });

    test("chat clients get all four members of an error", () => {
      const response = toErrorResponse(new ApiError(reason), "chat", "req_12345678");
      expect(response.status).toBe(chatStatus ?? status);
      const [type, code, param = null] = chat;
      expect(response.body).toEqual({ error: { message: expected, type, param, code } });
    });

    test("shared endpoints return a body that both SDKs parse", () => {
      const { body } = toErrorResponse(new ApiError(reason), "union", "req_12345678");
      const [, code, param = null] = chat;
      expect(body).toMatchObject({
        type: "error",
        error: { type: native[0], message: expected, param, code },
        request_id: "req_12345678",
      });
    });
  },
);

const envelopes: Envelope[] = ["native", "chat", "union"];

test("no error body names the native key header or repeats a key", () => {
  for (const name of names) {
    for (const envelope of envelopes) {
      const message = "model: X-Api-Key sk-gw2-1abcdefghijklmnopqrstuvwxyz";
      const { body } = toErrorResponse(
        new ApiError(name, { message, field: "x-api-key" }),
        envelope,
        "req_12345678",
      );
      expect(JSON.stringify(body)).not.toMatch(/x-api-key|sk-gw2-1abc/i);
    }
  }
});

test("a 401 names the credential header of its endpoint in www-authenticate", () => {
  const challenge = (envelope: Envelope) =>
    toErrorResponse(new ApiError("invalid_key"), envelope, "r").headers["www-authenticate"];
  expect(challenge("native")).toBe('ApiKey realm="gateway", header="x-api-key"');
  expect(challenge("chat")).toBe('Bearer realm="gateway"');
  expect(challenge("union")).toBe(
    'ApiKey realm="gateway", header="x-api-key", Bearer realm="gateway"',
  );
});

test("retry-after is whole seconds, rounded up, and never below one", () => {
  const retryAfter = (retryAfterMs: number) =>
    toErrorResponse(new ApiError("rate_limited", { retryAfterMs }), "native", "r").headers[
      "retry-after"
    ];
  expect([1, 1000, 1001, 59_999].map(retryAfter)).toEqual(["1", "1", "2", "60"]);
});

test("an exceeded request limit is shown in the rate limit headers of the format", () => {
  // Not a whole second, which would be written without a fraction.
  const resetsAt = new Date(Math.floor(Date.now() / 1000) * 1000 + 11_500);
  const limit = {
    name: "requests_per_minute" as const,
    limit: 60n,
    used: 60n,
    remaining: 0n,
    resetsAt: timestampFromDate(resetsAt),
  };
  const headers = (envelope: Envelope) =>
    toErrorResponse(new ApiError("rate_limited", { limit }), envelope, "r").headers;
  expect(headers("native")).toMatchObject({
    "anthropic-ratelimit-requests-limit": "60",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": resetsAt.toISOString(),
  });
  expect(headers("chat")).toMatchObject({
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "0",
  });
  expect(headers("chat")["x-ratelimit-reset-requests"]).toMatch(/^\d+s$/);
});

const source = "messages[0].content[1].source";
test.for<[ErrorReason, field: string, message: string | undefined, native: string]>([
  [
    "invalid_request",
    "messages[1].content",
    "messages[1].content: must be text",
    "messages.1.content: must be text",
  ],
  [
    "invalid_request",
    "messages[1]",
    "messages.1.content: must be text",
    "messages.1.content: must be text",
  ],
  [
    "feature_not_offered",
    source,
    `${source}: file is not offered`,
    "messages.0.content.1.source: file is not offered",
  ],
  ["feature_not_offered", "tools[2]", "tools[2] is not offered.", "tools.2: is not offered."],
  ["feature_not_offered", "tools[2]", undefined, "tools.2: This feature is not offered."],
  [
    "model_not_found",
    "model",
    "model: gpt-9 is not one of opus",
    "model: gpt-9 is not one of opus",
  ],
  ["model_not_allowed", "model", undefined, "model: This key may not use this model."],
])(
  "the message of %s for %s begins with the vendor's path for native clients, and `param` has the field for chat clients",
  ([name, field, message, expected]) => {
    const reason = new ApiError(name, { field, ...(message !== undefined && { message }) });
    for (const envelope of ["native", "union"] as const) {
      expect(toErrorResponse(reason, envelope, "r").body).toMatchObject({
        error: { message: expected },
      });
    }
    expect(toErrorResponse(reason, "chat", "r").body).toMatchObject({ error: { param: field } });
  },
);

test("the message of a prompt that is too long begins with the text that clients look for", () => {
  const tooLong = new ApiError("context_length_exceeded", { field: "messages" });
  expect(toErrorResponse(tooLong, "native", "r").body).toMatchObject({
    error: { message: "prompt is too long" },
  });
});

test("the message of an unknown model lists the models of the key", () => {
  const unknown = new ApiError("model_not_found", {
    message: "model: gpt-9",
    allowed: ["model-opus-4.6", "opus"],
  });
  expect(toErrorResponse(unknown, "native", "r").body).toMatchObject({
    error: { message: "model: gpt-9. Models of this key: model-opus-4.6, opus." },
  });
});

const vendorBody = {
  type: "error",
  error: { type: "invalid_request_error", message: "messages.3: role not supported", param: "x" },
  request_id: "req_theirs",
  extra: [1],
};

test("a provider's error body reaches native clients unchanged except for the request id", () => {
  const reason = new ApiError("upstream_refused", {
    providerAnswer: { status: 400, body: vendorBody },
  });
  const { status, body, headers } = toErrorResponse(reason, "native", "req_ours1234");
  expect(status).toBe(400);
  expect(body).toEqual({ ...vendorBody, request_id: "req_ours1234" });
  expect(headers["x-should-retry"]).toBe("false");
});

test("a provider's error body is translated for chat clients", () => {
  const reason = new ApiError("upstream_refused", {
    providerAnswer: { status: 413, body: vendorBody },
  });
  const { status, body } = toErrorResponse(reason, "chat", "r");
  expect(status).toBe(413);
  expect(body).toEqual({
    error: {
      message: "messages.3: role not supported",
      type: "invalid_request_error",
      param: "x",
      code: null,
    },
  });
});

test("a provider's error about the gateway's credential never looks like one about the client's", () => {
  for (const status of [401, 402, 403, 429]) {
    const reason = new ApiError("upstream_refused", {
      providerAnswer: { status, body: vendorBody },
    });
    const { status: shown, headers } = toErrorResponse(reason, "native", "r");
    expect([shown, headers["x-should-retry"]]).toEqual([502, status === 429 ? undefined : "false"]);
  }
});

test("an error that only the operator can fix is not retryable, with any status of the provider", () => {
  for (const status of [200, 401, 404, 429]) {
    const reason = new ApiError("upstream_error", { providerAnswer: { status } });
    const { status: shown, headers } = toErrorResponse(reason, "chat", "r");
    expect([shown, headers["x-should-retry"]]).toEqual([502, "false"]);
  }
  expect(toErrorResponse(new ApiError("upstream_error"), "chat", "r").headers).not.toHaveProperty(
    "x-should-retry",
  );
});

test("an error event of a native stream has a type that clients know", () => {
  const known = [
    "overloaded_error",
    "api_error",
    "timeout_error",
    "rate_limit_error",
    "authentication_error",
  ];
  for (const name of names) {
    const { error } = toStreamErrorBody(new ApiError(name), "native", "r");
    expect(known).toContainEqual((error as { type: string }).type);
  }
  expect(toStreamErrorBody(new ApiError("revoked_key"), "native", "r")).toMatchObject({
    error: { type: "authentication_error", details: { error_code: "revoked_key" } },
  });
});
