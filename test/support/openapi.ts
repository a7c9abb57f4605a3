// Checks bodies against the document of /openapi.json.

import type { JsonObject } from "@bufbuild/protobuf";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { describedPosts } from "../../src/alerts/alerts.ts";
import { uncheckedMark } from "../../src/base/json-schema.ts";
import { createLog } from "../../src/base/log.ts";
import { createSessionCookie, registerConsole } from "../../src/console/console.ts";
import type { Core } from "../../src/contract/contract.ts";
import { registerConnect } from "../../src/http/connect.ts";
import { createHttpServer, type HttpServer } from "../../src/http/http.ts";
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

/** The document, as a gateway serves it, with the methods of operators or without. */
export async function readDocument(options?: { adminMethods: boolean }): Promise<Document> {
  const app = createDescribedServer(options);
  const { body } = await app.inject({ method: "GET", url: "/openapi.json" });
  await app.close();
  return JSON.parse(body);
}

/** A listener with every route, and no service behind them. */
function createDescribedServer({ adminMethods } = { adminMethods: true }): HttpServer {
  const never = () => Promise.reject(new Error("no service"));
  const limits = defaultLimits();
  const services = new Proxy({}, { get: () => new Proxy({}, { get: () => never }) });
  const core = services as Core;
  const isDraining = () => false;
  const app = createHttpServer({
    core,
    ...limits,
    posts: describedPosts,
    settings: { file: { nativeBearer: "auto" }, trustedProxies: [] },
    readiness: async () => ({}),
    identifyCaller: never,
    log: createLog("silent"),
  });
  const { stopping } = app;
  registerConnect(app, {
    core,
    ...limits,
    identifyCaller: never,
    adminMethods,
    isDraining,
    stopping,
    endsConnections: () => false,
  });
  const publicUrl = () => new URL("http://localhost:8080");
  registerConsole(app, {
    core,
    people: core.people,
    publicUrl,
    adminMethods,
    isDraining,
    cookies: createSessionCookie(publicUrl),
    checkRequest: () => {},
    identify: never,
    log: createLog("silent"),
  });
  return app;
}

/** The same schemas without what a listener does not check. */
export function withoutUnchecked<T>(value: T): T {
  const text = JSON.stringify(value, (_, inner: unknown) =>
    Object(inner)[uncheckedMark] === true ? {} : inner,
  );
  return JSON.parse(text);
}

export type Place = { method: string; path: string; status: number; type: string };

type Checker = {
  /**
   * Throws unless the body is what the document says. A request may differ in what the listener
   * does not check.
   */
  check(side: "request" | "answer", place: Place, body: unknown): void;
  /** Throws unless the body is what a schema of the document says. */
  checkSchema(name: string, body: unknown): void;
  /** Throws unless the gateway posts such a body to the webhook of this name. */
  checkPost(name: string, body: unknown): void;
};

let made: Promise<Checker> | undefined;

export function checker(): Promise<Checker> {
  made ??= readDocument().then((document) => createChecker(document, withoutUnchecked(document)));
  return made;
}

function createChecker(document: Document, checked: Document): Checker {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(document, "document");
  ajv.addSchema(checked, "checked");
  const known = new Map<string, ValidateFunction>();
  const compile = (pointer: string): ValidateFunction => {
    const found = known.get(pointer) ?? ajv.compile({ $ref: pointer });
    known.set(pointer, found);
    return found;
  };
  const forms = Object.keys(document.paths).map((path) => ({
    path,
    form: new RegExp(`^${path.replaceAll(".", "\\.").replace(/\{\w+\}/g, "[^/]+")}$`),
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
    checkSchema: (name, body) => throwUnless(name, `document#/components/schemas/${name}`, body),
    checkPost: (name, body) =>
      throwUnless(
        `the webhook ${name}`,
        `document#/webhooks/${name}/post/requestBody/content/${escaped("application/json")}/schema`,
        body,
      ),
    check(side, { method, path, status, type }, body) {
      const place = pathOf(path);
      const operation = place && document.paths[place]?.[method.toLowerCase()];
      // Of a path that is not served, and of the page of the console, it says nothing.
      if (!place || !operation) return;
      const base = `/paths/${escaped(place)}/${method.toLowerCase()}`;
      const key = operation.responses[String(status)] ? String(status) : "default";
      const [content, pointer] =
        side === "request"
          ? [operation.requestBody?.content, `checked#${base}/requestBody`]
          : [operation.responses[key]?.content, `document#${base}/responses/${key}`];
      const where = `${method} ${path} ${side === "answer" ? status : "body"} (${type})`;
      if (!content?.[type])
        throw new Error(`${where} is not described by /openapi.json: ${JSON.stringify(body)}`);
      throwUnless(where, `${pointer}/content/${escaped(type)}/schema`, body);
    },
  };
}
