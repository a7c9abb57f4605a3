// Checks bodies against the document of /openapi.json.

import type { JsonObject } from "@bufbuild/protobuf";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { createLog } from "../../src/base/log.ts";
import { createHttpServer } from "../../src/http/http.ts";
import { defaultLimits } from "./limits.ts";

type Media = Readonly<Record<string, { readonly schema?: unknown }>>;
type Described = {
  readonly operationId: string;
  readonly requestBody?: { readonly content: Media };
  readonly responses: Readonly<Record<string, { readonly content?: Media }>>;
};
type Document = JsonObject & {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
};

/** The document, as a listener serves it. */
export async function readDocument(): Promise<Document> {
  const never = () => Promise.reject(new Error("no service"));
  const server = createHttpServer({
    core: new Proxy({}, { get: () => ({}) }) as never,
    settings: { nativeBearer: () => "auto", trustedProxies: [] },
    readiness: async () => ({}),
    identifyCaller: never,
    earlyCheck: () => ({ fail() {} }),
    ...defaultLimits(),
    log: createLog("silent"),
  });
  const { body } = await server.inject({ method: "GET", url: "/openapi.json" });
  await server.close();
  return JSON.parse(body);
}

type Checker = {
  /** Throws unless the body is what the document says. Undefined: it says nothing of it. */
  check(
    side: "request" | "answer",
    place: { method: string; path: string; status: number; type: string },
    body: unknown,
  ): void;
  /** Throws unless the body is what a schema of the document says. */
  checkSchema(name: string, body: unknown): void;
};

let made: Promise<Checker> | undefined;

export function checker(): Promise<Checker> {
  made ??= readDocument().then(createChecker);
  return made;
}

function createChecker(document: Document): Checker {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(document, "document");
  const known = new Map<string, ValidateFunction>();
  const compile = (pointer: string): ValidateFunction => {
    const found = known.get(pointer) ?? ajv.compile({ $ref: `document#${pointer}` });
    known.set(pointer, found);
    return found;
  };
  const forms = Object.keys(document.paths).map((path) => ({
    path,
    form: new RegExp(`^${path.replace(/[.]/g, "\\.").replace(/\{\w+\}/g, "[^/]+")}$`),
  }));
  // `/v1/models/info` is also of the form of `/v1/models/{id}`.
  const pathOf = (path: string) =>
    path in document.paths ? path : forms.find(({ form }) => form.test(path))?.path;
  const escaped = (name: string) =>
    encodeURIComponent(name.replaceAll("~", "~0").replaceAll("/", "~1"));
  const throwUnless = (where: string, pointer: string, body: unknown) => {
    const validate = compile(pointer);
    if (validate(body)) return;
    throw new Error(
      `${where} is not what /openapi.json says: ${ajv.errorsText(validate.errors)}: ` +
        JSON.stringify(body).slice(0, 2_000),
    );
  };
  return {
    checkSchema: (name, body) => throwUnless(name, `/components/schemas/${name}`, body),
    check(side, { method, path, status, type }, body) {
      const place = pathOf(path);
      const operation = place && document.paths[place]?.[method.toLowerCase()];
      if (!place || !operation) return;
      const base = `/paths/${escaped(place)}/${method.toLowerCase()}`;
      const key = operation.responses[String(status)] ? String(status) : "default";
      const [content, pointer] =
        side === "request"
          ? [operation.requestBody?.content, `${base}/requestBody`]
          : [operation.responses[key]?.content, `${base}/responses/${key}`];
      const where = `${method} ${path} ${side === "answer" ? status : "body"} (${type})`;
      if (!content?.[type])
        throw new Error(`${where} is not described by /openapi.json: ${JSON.stringify(body)}`);
      throwUnless(where, `${pointer}/content/${escaped(type)}/schema`, body);
    },
  };
}
