// The public description: that it is valid, complete and true. `test/support/check-answers.ts`
// checks every answer of the other suites against it.

import { execFile } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { type DescMethod, equals, fromJson, toJson } from "@bufbuild/protobuf";
import { Validator } from "@seriousme/openapi-schema-validator";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { allServices } from "../../src/contract/contract.ts";
import { documents, readSamples, root } from "../docs/documents.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { checker, readDocument } from "../support/openapi.ts";
import { valuesOf } from "../support/schema-values.ts";

const run = promisify(execFile);

let gateway: TestGateway;
let document: ReturnType<typeof Object>;
beforeAll(async () => {
  gateway = await startTestGateway();
  document = await (await fetch(`${gateway.address}/openapi.json`)).json();
});
afterAll(() => gateway.stop());

test("an independent validator takes the document for OpenAPI 3.1", async () => {
  const validator = new Validator();
  expect(await validator.validate(document)).toEqual({ valid: true });
  expect(validator.version).toBe("3.1");
});

test("every path that is served is in the document, and no other", async () => {
  const { paths } = Object(await (await fetch(gateway.address)).json());
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(Object(methods)).map((method) => `${method.toUpperCase()} ${path}`),
  );
  // The list of paths names each service once, and leaves out what is not for newcomers.
  const rest = paths.filter((path: string) => !path.includes("gateway."));
  const unlisted = [
    ...[
      ...["charges.csv", "usage.csv", "account"],
      ...["orders.csv", "documents.csv", "transfers.csv", "keys.csv"],
      ...["sales.csv", "revenue.csv", "liabilities.csv"],
    ].map((name) => `GET /console/export/${name}`),
    "GET /models.json",
    "POST /payments/{processor}/webhook",
  ];
  const methods = allServices
    .flatMap((service): readonly DescMethod[] => service.methods)
    .map(({ parent, name }) => `POST /${parent.typeName}/${name}`);
  expect(described.sort()).toEqual([...rest, ...unlisted, ...methods].sort());
  const ids = Object.values(document.paths).flatMap((methods) =>
    Object.values(Object(methods)).map((one) => Object(one).operationId),
  );
  expect(new Set(ids).size).toBe(ids.length);
});

test("a port without the methods of operators describes none of them", async () => {
  const { paths } = await readDocument({ adminMethods: false });
  expect(paths).toHaveProperty(["/gateway.keys.v1.KeysService/CreateKey"]);
  expect(paths).not.toHaveProperty(["/gateway.accounts.v1.AccountsService/CreateAccount"]);
});

test("every schema is used, and every reference leads to one", () => {
  const text = JSON.stringify(document);
  for (const kind of ["schemas", "parameters"]) {
    const reference = new RegExp(`"#/components/${kind}/([\\w.]+)"`, "g");
    const names = new Set([...text.matchAll(reference)].map(([, name]) => name));
    expect([...names].sort()).toEqual(Object.keys(document.components[kind]).sort());
  }
});

test("the document stays small enough to load at once", () => {
  // As it is sent.
  expect(gzipSync(JSON.stringify(document)).length).toBeLessThan(90_000);
});

describe("the services", () => {
  const bearer = () => ({ authorization: `Bearer ${gateway.v1}` });
  const call = (name: string, body: unknown, headers: Record<string, string> = bearer()) =>
    fetch(`${gateway.address}/gateway.${name}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });

  test("answer by Connect as their descriptors say", async () => {
    // Each answer is checked against the document as it is written.
    const pools = await call("billing.v1.BillingService/GetPools", {});
    expect(pools.status).toBe(200);
    expect(await pools.json()).toMatchObject({ pools: [{ family: "FAMILY_V1" }] });
    const models = await call("inference.v1.InferenceService/ListModels", {});
    expect(models.status).toBe(200);
    const none = await call("keys.v1.KeysService/GetKey", { keyId: "key_none" });
    expect([none.status, Object(await none.json()).code]).toEqual([403, "permission_denied"]);
    const nobody = await call("billing.v1.BillingService/GetPools", {}, {});
    expect([nobody.status, Object(await nobody.json()).code]).toEqual([401, "unauthenticated"]);
  });

  test("take what the schemas of their messages make, and their messages fit these", async () => {
    const { checkSchema } = await checker();
    const { schemas } = document.components;
    const messages = new Set(
      allServices
        .flatMap((service): readonly DescMethod[] => service.methods)
        .flatMap(({ input, output }) => [input, output]),
    );
    for (const desc of messages)
      fc.assert(
        fc.property(valuesOf(schemas, desc.typeName), (value) => {
          const message = fromJson(desc, value);
          const json = toJson(desc, message);
          expect(() => checkSchema(desc.typeName, json)).not.toThrow();
          expect(equals(desc, fromJson(desc, json), message)).toBe(true);
        }),
        { numRuns: 6 },
      );
  });

  test("say who may call each method, and what it needs of its request", () => {
    const operation = document.paths["/gateway.keys.v1.KeysService/CreateKey"].post;
    expect(operation.security).toEqual([{ bearer: [] }, { session: [] }]);
    expect(operation.description).toContain("members of the account, from member");
    expect(operation.description).toContain("admin tokens (keys)");
    const { required, properties } =
      document.components.schemas["gateway.keys.v1.CreateKeyRequest"];
    expect(required).toEqual(["family", "settings"]);
    expect(properties.settings.description).toContain("It has to have a name.");
  });

  test("state the limits of fields", () => {
    const { schemas } = document.components;
    const propertiesOf = (name: string) => schemas[`gateway.${name}`].properties;
    const tagKey = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$";
    const key = propertiesOf("keys.v1.KeySettings");
    expect(key.name).toMatchObject({ maxLength: 200 });
    expect(key.requestsPerMinute).toMatchObject({ minimum: 0, maximum: 1_000_000 });
    expect(key.dailyCapMicrocredits).toMatchObject({
      "x-minimum": "0",
      "x-maximum": "9007199254740992",
      description: expect.stringMatching(/ It is from 0 to 9,007,199,254,740,992\.$/),
    });
    expect(key.allowedModels).toMatchObject({ maxItems: 100 });
    expect(key.expiresAt.description).toMatch(/ It is in the future\.$/);
    expect(key.tags).toMatchObject({
      maxProperties: 10,
      propertyNames: { pattern: tagKey },
      additionalProperties: { minLength: 1, maxLength: 64 },
    });
    const { overlap } = propertiesOf("keys.v1.RotateKeyRequest");
    expect(overlap.description).toMatch(/ It is from 0 to 604,800 seconds\.$/);
    const { scopes } = propertiesOf("keys.v1.ManagementKeySettings");
    const none = { const: "MANAGEMENT_SCOPE_UNSPECIFIED" };
    expect(scopes).toMatchObject({ uniqueItems: true, items: { not: none } });
    const { percents } = propertiesOf("alerts.v1.AlertSettings");
    expect(percents).toMatchObject({ maxItems: 10, items: { minimum: 1, maximum: 100 } });
    expect(propertiesOf("keys.v1.ListKeysRequest").withoutTag.pattern).toBe(`^$|${tagKey}`);
  });
});

describe("the examples of the documents", () => {
  type Example = { readonly path: string; readonly headers: string[]; readonly body?: string };
  const examples: Example[] = documents.flatMap((name) =>
    readSamples(name)
      .filter(({ language }) => language === "sh")
      .flatMap(({ text }) => [
        ...text
          .replaceAll("\\\n", " ")
          .matchAll(/^curl (?:[^']|'[^']*')*?(?=\n(?:curl|\n|$)|$(?![\s\S]))/gm),
      ])
      .flatMap(([command]) => {
        const [, path = ""] = /http:\/\/127\.0\.0\.1:8080(\/v1\/[^\s']*)/.exec(command) ?? [];
        const headers = [...command.matchAll(/-H (?:'([^']*)'|"([^"]*)")/g)];
        const [, body] = / -d '([^']*)'/.exec(command) ?? [];
        return path === ""
          ? []
          : [
              {
                path,
                headers: headers.map(([, single, double]) => single ?? double ?? ""),
                ...(body !== undefined && { body }),
              },
            ];
      }),
  );

  test("are found", () => {
    expect(examples.filter(({ body }) => body !== undefined).length).toBeGreaterThanOrEqual(3);
    expect(examples.filter(({ body }) => body === undefined).length).toBeGreaterThanOrEqual(4);
  });

  for (const { path, headers, body } of examples)
    test(`${body === undefined ? "GET" : "POST"} ${path} ${body?.includes('"stream"') ? "as a stream" : ""}`, async () => {
      const { check } = await checker();
      const method = body === undefined ? "GET" : "POST";
      const [place = ""] = path.split("?");
      const place200 = { method, path: place, status: 200, type: "application/json" };
      if (body !== undefined) check("request", place200, JSON.parse(body));
      const fill = (text: string) =>
        text.replace("$GATEWAY_KEY", gateway.v1).replace("$REQUEST", "req_hello_example");
      // The answer is checked as every other.
      const answer = await fetch(gateway.address + fill(path), {
        method,
        headers: Object.fromEntries(
          headers.map((header) => fill(header).split(/: (.*)/s) as [string, string]),
        ),
        ...(body !== undefined && { body }),
      });
      // The streamed one, before it, has made the receipt.
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
    });
});

describe("the events of streams", () => {
  const messages = [{ role: "user", content: "Hello" }];
  const formats = [
    ["/v1/messages", { model: "haiku", max_tokens: 50, messages }, "MessageEvent"],
    ["/v1/chat/completions", { model: "haiku", messages }, "ChatChunk"],
    [
      "/v1/chat/completions",
      { model: "haiku", messages, stream_options: { include_usage: true } },
      "ChatChunk",
    ],
    ["/v1/responses", { model: "haiku", input: "Hello" }, "ResponseEvent"],
  ] as const;
  for (const [path, body, name] of formats)
    test(`${path} sends ${name} ${"stream_options" in body ? "with usage" : ""}`, async () => {
      const answer = await fetch(gateway.address + path, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(path === "/v1/messages"
            ? { "x-api-key": gateway.v1, "anthropic-version": "2023-06-01" }
            : { authorization: `Bearer ${gateway.v1}` }),
        },
        body: JSON.stringify({ ...body, stream: true }),
      });
      expect(answer.headers.get("content-type")).toContain("text/event-stream");
      const data = [...(await answer.text()).matchAll(/^data: (\{.*)$/gm)].map(([, text = ""]) =>
        JSON.parse(text),
      );
      expect(data.length).toBeGreaterThan(3);
      const { checkSchema } = await checker();
      for (const event of data) checkSchema(name, event);
      expect(() => checkSchema(name, {})).toThrow();
    });
});

test("a client that a generator makes of the document runs a paid request", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gateway-client-"));
  try {
    await symlink(join(root, "node_modules"), join(folder, "node_modules"));
    await writeFile(join(folder, "package.json"), '{"type":"module"}');
    await writeFile(join(folder, "openapi.json"), JSON.stringify(document));
    const generator = join(root, "node_modules/@hey-api/openapi-ts/dist/run.mjs");
    await run(
      process.execPath,
      [
        ...["--import", join(root, "test/support/typescript-api.ts"), generator],
        ...["-i", "openapi.json", "-o", "client", "-c", "@hey-api/client-fetch", "--silent"],
      ],
      { cwd: folder },
    );
    await writeFile(
      join(folder, "use.ts"),
      `import { client } from "./client/client.gen";
       import {
         billingServiceGetPools,
         createMessage,
         getReceipt,
         getUsage,
       } from "./client";
       const { address = "", key = "" } = process.env;
       const isKey = ({ type, scheme }) => type === "apiKey" || scheme === "bearer";
       const auth = (one) => (isKey(one) ? key : undefined);
       client.setConfig({ baseUrl: address, auth });
       const { data, response } = await createMessage({
         headers: { "anthropic-version": "2023-06-01", "x-gateway-tags": "client=generated" },
         body: { model: "haiku", max_tokens: 10, messages: [{ role: "user", content: "Hello" }] },
         throwOnError: true,
       });
       const requestId = response.headers.get("request-id") ?? "";
       const receipt = await getReceipt({ path: { requestId }, throwOnError: true });
       const usage = await getUsage({ query: { group_by_tag: "client" }, throwOnError: true });
       const pools = await billingServiceGetPools({ body: {}, throwOnError: true });
       const found = { receipt: receipt.data, usage: usage.data, pools: pools.data };
       console.log(JSON.stringify({ data, ...found }));`,
    );
    // As a user of the client would: with types, and in one file.
    await run(join(root, "node_modules/.bin/esbuild"), [
      ...[join(folder, "use.ts"), "--bundle", "--platform=node", "--format=esm"],
      `--outfile=${join(folder, "use.mjs")}`,
    ]);
    const { stdout } = await run(process.execPath, [join(folder, "use.mjs")], {
      env: { ...process.env, address: gateway.address, key: gateway.v1 },
    });
    const { data, receipt, usage, pools } = JSON.parse(stdout);
    expect(data.type).toBe("message");
    expect(receipt).toMatchObject({ outcome: "COMPLETED", tags: { client: "generated" } });
    expect(receipt.charge_credits).not.toBe("0");
    expect(pools.pools[0]).toMatchObject({ family: "FAMILY_V1" });
    expect(usage.data.map((row: Record<string, unknown>) => row.tag_value)).toContain("generated");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
