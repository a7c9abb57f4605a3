// What a listener of this process says about a call: it never comes from outside.

import { create } from "@bufbuild/protobuf";
import { createContextValues } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { AuthenticateResponseSchema, KeysService } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { AuthenticatedCall } from "../../src/contract/contract.ts";
import { localCore, withFacts } from "../../src/contract/contract.ts";
import { createIdentifyCaller } from "../../src/http/authenticate.ts";
import { type Bindings, bindingNames, startBindings } from "../support/bindings.ts";
import {
  answerOf,
  chatBody,
  chatHeaders,
  nativeBody,
  nativeHeaders,
  post,
  startHttpServer,
} from "../support/http-server.ts";
import { callersByKind, key, type Script, scriptedServices } from "../support/scripted-services.ts";

let calls: AuthenticatedCall[] = [];
const script: Script = {
  async unary(desc) {
    if (desc !== KeysService.method.authenticate) return create(desc.output);
    const { caller } = callersByKind.key;
    return create(AuthenticateResponseSchema, caller.kind === "key" ? caller : {});
  },
  async *stream(_desc, _request, call) {
    calls.push(call);
    yield* answerOf("Hello");
  },
};
const services = scriptedServices(script);

let bindings: Bindings;
beforeAll(async () => {
  bindings = await startBindings(services);
});
afterAll(() => bindings.close());
beforeEach(() => {
  calls = [];
});

const facts = () =>
  calls.map(({ takeDeltas, hasNewId = false }) => ({
    takesDeltas: takeDeltas !== undefined,
    hasNewId,
  }));

describe("what a caller says about itself in process", () => {
  for (const name of bindingNames) {
    const isLocal = name === "local";
    test(`${isLocal ? "reaches" : "does not reach"} the service over ${name}`, async () => {
      const options = {
        headers: { authorization: callersByKind.key.credential },
        contextValues: withFacts(createContextValues(), {
          takeDeltas: () => false,
          hasNewId: true,
        }),
      };
      const request = { model: "haiku", messages: [{}] };
      for await (const _ of bindings[name].inference.generate(request, options));
      expect(facts()).toEqual([{ takesDeltas: isLocal, hasNewId: isLocal }]);
    });
  }
});

describe("the HTTP listener", () => {
  const formats = [
    { path: "/v1/messages", headers: { ...nativeHeaders, "x-api-key": key }, body: nativeBody },
    {
      path: "/v1/chat/completions",
      body: chatBody,
      headers: { ...chatHeaders, authorization: `Bearer ${key}` },
    },
  ];
  for (const { path, headers, body } of formats) {
    const send = async (more: object, moreHeaders: Record<string, string> = {}) => {
      const core = localCore(services);
      const identifyCaller = createIdentifyCaller(core, { check() {}, record() {} });
      const { url } = await startHttpServer({ core, identifyCaller });
      const answer = await post(url, path, { ...headers, ...moreHeaders }, { ...body, ...more });
      expect(answer.status).toBe(200);
      await answer.text();
      return facts();
    };

    test(`${path} takes deltas at once for a stream, and for nothing else`, async () => {
      expect(await send({ stream: true })).toMatchObject([{ takesDeltas: true }]);
      calls = [];
      expect(await send({})).toMatchObject([{ takesDeltas: false }]);
    });

    test(`${path} says that it made the request id, unless the client proposed it`, async () => {
      expect(await send({})).toMatchObject([{ hasNewId: true }]);
      calls = [];
      expect(await send({}, { "x-request-id": "not one" })).toMatchObject([{ hasNewId: true }]);
      calls = [];
      const proposed = { "x-request-id": "req_proposed123" };
      expect(await send({}, proposed)).toMatchObject([{ hasNewId: false }]);
    });
  }
});
