// Azure, in its place: Claude in Foundry and the models of OpenAI, with the addresses at which
// Entra and a machine give tokens. It verifies keys, tokens, paths, versions, betas and members.

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
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
  responsesAnswer,
  responsesStream,
} from "./provider-answers.ts";

export type Azure = CloudRules & {
  readonly provider: FakeProvider;
  keys: string[];
  tokens: Set<string>;
  /** Requests for tokens so far, by their way. */
  readonly given: string[];
  content: AnswerContent;
  scripts: Script[];
  stop(): Promise<void>;
};

const scope = "https://cognitiveservices.azure.com/.default";
const bearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

export async function startAzure(): Promise<Azure> {
  const provider = await startFakeProvider();
  const azure: Azure = {
    provider,
    keys: [],
    tokens: new Set(),
    given: [],
    betas: [...cloudBetas, "advanced-tool-use", "prompt-caching-scope", "structured-outputs"],
    members: [...cloudMembers],
    content: { text: ["Hello"] },
    scripts: [],
    stop: () => provider.stop(),
  };
  provider.always((request) => {
    const { path, headers, bodyText } = request;
    const form = new URLSearchParams(bodyText);
    const give = (way: string) => {
      azure.given.push(way);
      const token = `eyJ.token-${way}-${azure.given.length}-0123456789abcdef`;
      azure.tokens.add(token);
      return jsonScript({ access_token: token, expires_in: 3600, token_type: "Bearer" });
    };
    if (path === "/TENANT/oauth2/v2.0/token") {
      if (form.get("client_id") !== "CLIENT" || form.get("scope") !== scope) return refused;
      if (form.get("client_secret") === "entra-secret-0123456789") return give("secret");
      const isFederated = form.get("client_assertion_type") === bearer;
      return isFederated && form.get("client_assertion") === "federated-token"
        ? give("federated")
        : refused;
    }
    if (path.startsWith("/identity?"))
      return headers["x-identity-header"] === "header-1" && path.includes("resource=https%3A%2F%2F")
        ? give("machine")
        : refused;
    return answer(azure, request);
  });
  return azure;
}

const refused = jsonScript(
  { error: "invalid_client", error_description: "AADSTS7000215: Not you." },
  401,
);

/** An error as the models of OpenAI answer it at Azure. */
export function azureError(status: number, code: string, more: Script = {}): Script {
  return { ...jsonScript({ error: { code, message: "the reason" } }, status), ...more };
}

function answer(azure: Azure, request: ReceivedRequest): Script {
  const { path, headers, body } = request;
  const isNative = path.startsWith("/anthropic/");
  const key = headers[isNative ? "x-api-key" : "api-key"];
  const token = (headers.authorization ?? "").replace(/^Bearer /, "");
  if (!azure.keys.includes(String(key)) && !azure.tokens.has(token))
    return azureError(401, "401", {});
  const [, query = ""] = path.split("?");
  if (query !== "" && query !== "api-version=2024-10-21") return azureError(404, "404");
  if (isNative) return answerNative(azure, request);
  const script = azure.scripts.shift();
  if (script) return script;
  const isStream = body.stream === true;
  const { content } = azure;
  if (
    path === "/openai/v1/chat/completions" ||
    path === "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"
  ) {
    if (body.max_tokens !== undefined) return azureError(400, "unsupported_parameter");
    return isStream ? chatStream(content) : chatAnswer(content);
  }
  if (path === "/openai/v1/responses")
    return isStream ? responsesStream(content) : responsesAnswer(content);
  return azureError(404, "DeploymentNotFound");
}

function answerNative(azure: Azure, { path, headers, body }: ReceivedRequest): Script {
  if (headers["anthropic-version"] !== "2023-06-01")
    return nativeRefusal(400, "anthropic-version: wrong");
  const sent = String(headers["anthropic-beta"] ?? "").split(",");
  const problem = problemOf(azure, body, sent, ["anthropic_version", "anthropic_beta"]);
  if (problem) return nativeRefusal(400, problem);
  const script = azure.scripts.shift();
  if (script) return script;
  if (path === "/anthropic/v1/messages/count_tokens") return jsonScript({ input_tokens: 21 });
  if (path !== "/anthropic/v1/messages") return azureError(404, "404");
  return body.stream === true ? nativeStream(azure.content) : nativeAnswer(azure.content);
}
