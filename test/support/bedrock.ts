// Amazon Bedrock, in its place: it verifies the signature of every request with another library
// than the one that made it, then its path, version, betas and members, and refuses as AWS does.

import type { IncomingHttpHeaders } from "node:http";
import type { JsonObject } from "@bufbuild/protobuf";
import aws4 from "aws4";
import { awsEventStream } from "../../src/formats/aws-event-stream.ts";
import { awsFrames } from "./aws-frames.ts";
import {
  type CloudRules,
  cloudBetas,
  cloudMembers,
  jsonScript,
  nativeRefusal,
  problemOf,
} from "./cloud-rules.ts";
import {
  type FakeProvider,
  type ReceivedRequest,
  type Script,
  startFakeProvider,
} from "./provider.ts";
import { type AnswerContent, nativeAnswer, nativeStream } from "./provider-answers.ts";

export type AwsCredentials = {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
};

/** What a Bedrock knows. Tests change it while it runs. */
export type Bedrock = CloudRules & {
  readonly provider: FakeProvider;
  /** Who may call it. */
  credentials: AwsCredentials[];
  /** API keys that may call it. */
  keys: string[];
  /** The clock of AWS, in milliseconds since 1970. */
  now: () => number;
  /** The content of the next answers. */
  content: AnswerContent;
  /** The answer of its API in the form of OpenAI. Absent: it has none. */
  openai?: Script;
  /** Scripts for the next good requests, instead of answers. */
  scripts: Script[];
  stop(): Promise<void>;
};

export async function startBedrock(): Promise<Bedrock> {
  const provider = await startFakeProvider();
  const bedrock: Bedrock = {
    provider,
    credentials: [],
    keys: [],
    betas: [...cloudBetas, "fine-grained-tool-streaming"],
    members: [...cloudMembers],
    now: Date.now,
    content: { text: ["Hello"] },
    scripts: [],
    stop: () => provider.stop(),
  };
  provider.always((request) => answer(bedrock, request));
  return bedrock;
}

/** An error as AWS answers it. */
export function awsError(status: number, type: string, message: string, more: Script = {}): Script {
  const headers = { "content-type": "application/json", "x-amzn-errortype": `${type}:http://aws/` };
  return {
    status,
    writes: [JSON.stringify({ message })],
    ...more,
    headers: { ...headers, ...more.headers },
  };
}

function answer(bedrock: Bedrock, request: ReceivedRequest): Script {
  const date = { headers: { date: new Date(bedrock.now()).toUTCString() } };
  const refusal = refusalOf(bedrock, request);
  if (refusal) return awsError(403, refusal[0], refusal[1], date);
  const { path } = request;
  const invoked = /^\/model\/([^/]+)\/(invoke|invoke-with-response-stream|count-tokens)$/.exec(
    path,
  );
  if (invoked) return answerInvoke(bedrock, request, invoked[2] ?? "");
  if (path === "/openai/v1/chat/completions" && bedrock.openai) return bedrock.openai;
  const isCount = path === "/anthropic/v1/messages/count_tokens";
  if (path !== "/anthropic/v1/messages" && !isCount) return unknownOperation;
  const { headers, body } = request;
  if (headers["anthropic-version"] !== "2023-06-01")
    return awsError(400, "ValidationException", "anthropic-version: wrong");
  const sent = String(headers["anthropic-beta"] ?? "").split(",");
  const problem = problemOf(bedrock, body, sent, ["anthropic_version", "anthropic_beta"]);
  if (problem) return nativeRefusal(400, problem);
  if (isCount) return jsonScript({ input_tokens: 21 });
  const script = bedrock.scripts.shift();
  if (script) return script;
  return body.stream === true ? nativeStream(bedrock.content) : nativeAnswer(bedrock.content);
}

/** At paths that it does not know. */
export const unknownOperation: Script = {
  headers: { "content-type": "application/json" },
  writes: [
    '{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}',
  ],
};

function answerInvoke(bedrock: Bedrock, { body }: ReceivedRequest, action: string): Script {
  const inner = action === "count-tokens" ? innerOf(body) : body;
  if (inner.anthropic_version !== "bedrock-2023-05-31")
    return awsError(400, "ValidationException", "anthropic_version: wrong");
  const sent = Array.isArray(inner.anthropic_beta) ? inner.anthropic_beta.map(String) : [];
  const problem = problemOf(bedrock, inner, sent, ["model", "stream"]);
  if (problem) return awsError(400, "ValidationException", problem);
  const script = bedrock.scripts.shift();
  if (script) return script;
  if (action === "count-tokens") return jsonScript({ inputTokens: 21 });
  if (action === "invoke") return nativeAnswer(bedrock.content);
  return { headers: { "content-type": awsEventStream }, writes: awsFrames(bedrock.content) };
}

function innerOf({ input }: JsonObject): JsonObject {
  const { invokeModel } = Object(input);
  return JSON.parse(Buffer.from(String(Object(invokeModel).body), "base64").toString());
}

/** Why it does not know who sends a request. Undefined: it does. */
export function refusalOf(
  { credentials, keys, now }: Pick<Bedrock, "credentials" | "keys" | "now">,
  {
    method,
    path,
    headers,
    bodyText,
  }: Pick<ReceivedRequest, "method" | "path" | "headers" | "bodyText">,
): readonly [type: string, message: string] | undefined {
  const { authorization = "" } = headers;
  if (authorization.startsWith("Bearer "))
    return keys.includes(authorization.slice(7))
      ? undefined
      : ["AccessDeniedException", "The API key is not valid."];
  const parsed =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/\d+\/([^/]+)\/([^/]+)\/aws4_request, SignedHeaders=([^,]+)/.exec(
      authorization,
    );
  if (!parsed) return ["MissingAuthenticationTokenException", "Missing Authentication Token"];
  const [, accessKeyId = "", region = "", service = "", signedNames = ""] = parsed;
  const known = credentials.find((one) => one.accessKeyId === accessKeyId);
  if (!known)
    return [
      "UnrecognizedClientException",
      "The security token included in the request is invalid.",
    ];
  if (headers["x-amz-security-token"] !== known.sessionToken)
    return ["ExpiredTokenException", "The security token included in the request is expired"];
  const names = signedNames.split(";");
  if (!names.includes("host") || (known.sessionToken && !names.includes("x-amz-security-token")))
    return ["IncompleteSignatureException", "The signature covers too little."];
  const stamp = String(headers["x-amz-date"]);
  const signedMs = Date.parse(stamp.replace(/^(....)(..)(..T..)(..)/, "$1-$2-$3:$4:"));
  if (Math.abs(signedMs - now()) > 300_000)
    return [
      "InvalidSignatureException",
      `Signature ${signedMs > now() ? "not yet current" : "expired"}: ${stamp}`,
    ];
  const request = {
    ...{ method, path, region, service, body: bodyText },
    headers: pick(headers, names),
    extraHeadersToIgnore: { "content-type": true, "content-length": true },
  };
  const expected = aws4.sign(request, known);
  const { Authorization: signature } = Object(expected.headers);
  return signature === authorization
    ? undefined
    : ["InvalidSignatureException", "The request signature we calculated does not match."];
}

function pick(headers: IncomingHttpHeaders, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, String(headers[name] ?? "")]));
}
