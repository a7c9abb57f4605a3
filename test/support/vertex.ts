// Vertex AI, in its place, with the addresses at which Google gives tokens. It verifies assertions
// and tokens, paths, versions, betas and members, and refuses as Google does.

import { exportPKCS8, generateKeyPair, jwtVerify } from "jose";
import { type AwsCredentials, refusalOf } from "./bedrock.ts";
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

export type Vertex = CloudRules & {
  readonly provider: FakeProvider;
  /** The file of a service account that may call it. */
  readonly account: Readonly<Record<string, string>>;
  /** The file of another identity, whose token is at this address. */
  readonly federated: Readonly<Record<string, unknown>>;
  /** The file of an identity at AWS. The zone of its machine is at this address. */
  readonly fromAws: Readonly<Record<string, unknown>>;
  /** Whose identity at AWS it takes. */
  awsCredentials: AwsCredentials[];
  /** Tokens that it gave and takes. */
  tokens: Set<string>;
  /** Requests for tokens so far, by their way. */
  readonly given: string[];
  lifeSeconds: number;
  content: AnswerContent;
  scripts: Script[];
  stop(): Promise<void>;
};

const email = "gateway@my-project.iam.gserviceaccount.com";
const grants = "urn:ietf:params:oauth:grant-type:";

/** One pair for all: each takes a tenth of a second. */
const pair = generateKeyPair("RS256", { extractable: true });

export async function startVertex(): Promise<Vertex> {
  const provider = await startFakeProvider();
  const { publicKey, privateKey } = await pair;
  const tokenUri = `${provider.url}/token`;
  const vertex: Vertex = {
    provider,
    account: {
      type: "service_account",
      client_email: email,
      private_key_id: "key-1",
      private_key: await exportPKCS8(privateKey),
      token_uri: tokenUri,
    },
    federated: {
      type: "external_account",
      audience: "//iam.googleapis.com/projects/1/pool",
      subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
      token_url: `${provider.url}/sts`,
      credential_source: {
        url: `${provider.url}/subject`,
        headers: { metadata: "true" },
        format: { type: "json", subject_token_field_name: "value" },
      },
      service_account_impersonation_url: `${provider.url}/speak/for:generateAccessToken`,
    },
    fromAws: {
      ...{ type: "external_account", audience: awsAudience, token_url: `${provider.url}/sts` },
      subject_token_type: "urn:ietf:params:aws:token-type:aws4_request",
      credential_source: {
        environment_id: "aws1",
        region_url: `${provider.url}/zone`,
        imdsv2_session_token_url: `${provider.url}/session`,
        regional_cred_verification_url: `https://sts.{region}.amazonaws.com${identityPath}`,
      },
    },
    awsCredentials: [],
    tokens: new Set(),
    given: [],
    lifeSeconds: 3600,
    betas: [...cloudBetas, "web-search"],
    members: [...cloudMembers],
    content: { text: ["Hello"] },
    scripts: [],
    stop: () => provider.stop(),
  };
  const assertions = new Map<string, Promise<unknown>>();
  provider.always((request) => {
    const { path, headers, bodyText } = request;
    const form = new URLSearchParams(bodyText);
    const give = (way: string) => {
      vertex.given.push(way);
      const token = `ya29.token-${way}-${vertex.given.length}-0123456789abcdef`;
      vertex.tokens.add(token);
      return token;
    };
    const oauth = (way: string) =>
      jsonScript({ access_token: give(way), expires_in: vertex.lifeSeconds, token_type: "Bearer" });
    if (path === "/token") {
      const assertion = form.get("assertion") ?? "";
      const options = { issuer: email, audience: tokenUri, algorithms: ["RS256"] };
      assertions.set(assertion, jwtVerify(assertion, publicKey, options));
      return form.get("grant_type") === `${grants}jwt-bearer` ? oauth("key") : refused;
    }
    if (path === "/subject") return jsonScript({ value: "subject-token" });
    if (path === "/session") return { writes: ["imds-session"] };
    if (path === "/zone")
      return headers["x-aws-ec2-metadata-token"] === "imds-session"
        ? { writes: ["eu-west-3b"] }
        : refused;
    if (path === "/sts" && form.get("subject_token_type")?.startsWith("urn:ietf:params:aws:"))
      return isIdentity(vertex, form) ? oauth("aws") : refused;
    if (path === "/sts")
      return form.get("subject_token") === "subject-token" &&
        form.get("grant_type") === `${grants}token-exchange`
        ? oauth("federated")
        : refused;
    if (path === "/computeMetadata/v1/instance/service-accounts/default/token")
      return headers["metadata-flavor"] === "Google" ? oauth("machine") : refused;
    if (path.endsWith(":generateAccessToken"))
      return isKnown(vertex, request)
        ? jsonScript({
            accessToken: give("impersonated"),
            expireTime: new Date(Date.now() + vertex.lifeSeconds * 1000).toISOString(),
          })
        : refused;
    return answer(vertex, request);
  });
  return Object.assign(vertex, {
    async stop() {
      // Every assertion was signed well.
      await Promise.all(assertions.values());
      await provider.stop();
    },
  });
}

const awsAudience = "//iam.googleapis.com/projects/1/aws";
const identityPath = "/?Action=GetCallerIdentity&Version=2011-06-15";

/** True for a request that AWS would answer, signed for this audience in the machine's region. */
function isIdentity({ awsCredentials: credentials }: Vertex, form: URLSearchParams): boolean {
  const text = decodeURIComponent(form.get("subject_token") ?? "");
  const { url, method, headers }: Identity = JSON.parse(text);
  const named = Object.fromEntries(headers.map(({ key, value }) => [key.toLowerCase(), value]));
  const refusal = refusalOf(
    { credentials, keys: [], now: Date.now },
    { method, path: identityPath, headers: named, bodyText: "" },
  );
  return (
    refusal === undefined &&
    url === `https://sts.eu-west-3.amazonaws.com${identityPath}` &&
    named.host === "sts.eu-west-3.amazonaws.com" &&
    / Credential=[^,]+\/eu-west-3\/sts\/.*x-goog-cloud-target-resource/.test(
      named.authorization ?? "",
    ) &&
    [form.get("audience"), named["x-goog-cloud-target-resource"]].every(
      (audience) => audience === awsAudience,
    )
  );
}

type Identity = {
  readonly url: string;
  readonly method: string;
  readonly headers: readonly { readonly key: string; readonly value: string }[];
};

const refused = jsonScript({ error: "invalid_grant", error_description: "Not you." }, 400);

/** An error as Google's front answers it. */
export function googleError(status: number, name: string, more: object = {}): Script {
  const error = { code: status, message: "the reason", status: name, ...more };
  return jsonScript({ error }, status);
}

function isKnown({ tokens }: Vertex, { headers }: ReceivedRequest): boolean {
  return tokens.has((headers.authorization ?? "").replace(/^Bearer /, ""));
}

const place = /^\/v1\/projects\/my-project\/locations\/global\/publishers\/anthropic\/models\//;

function answer(vertex: Vertex, request: ReceivedRequest): Script {
  if (!isKnown(vertex, request)) return googleError(401, "UNAUTHENTICATED");
  const { path, body, headers } = request;
  if (!place.test(path)) return googleError(404, "NOT_FOUND");
  const [model, action] = path.replace(place, "").split(":");
  if (body.anthropic_version !== "vertex-2023-10-16")
    return nativeRefusal(400, "anthropic_version: wrong");
  const sent = String(headers["anthropic-beta"] ?? "").split(",");
  const isCount = model === "count-tokens";
  const foreign = isCount ? ["anthropic_beta", "stream"] : ["anthropic_beta", "model"];
  const problem = problemOf(vertex, body, sent, foreign);
  if (problem) return nativeRefusal(400, problem);
  const script = vertex.scripts.shift();
  if (script) return script;
  if (isCount && action === "rawPredict") return jsonScript({ input_tokens: 21 });
  const isStream = action === "streamRawPredict";
  if (isStream !== (body.stream === true)) return nativeRefusal(400, "stream: wrong");
  return isStream ? nativeStream(vertex.content) : nativeAnswer(vertex.content);
}
