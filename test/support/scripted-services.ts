// The three services with scripted answers. The listeners, the interceptor and the clients in front
// of them are real.

import { create, type DescMethod, type DescService, type Message } from "@bufbuild/protobuf";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type Authenticate,
  type AuthenticatedCall,
  type Implementation,
  implement,
  type Services,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";

export const key = "sk-gw2-1-of-the-tests";
export const adminToken = "admin-token-of-the-tests";

/** How every unary method and every stream answers. */
export type Script = {
  unary: (desc: DescMethod, request: Message, call: AuthenticatedCall) => Promise<Message>;
  stream: (desc: DescMethod, request: Message, call: AuthenticatedCall) => AsyncIterable<Message>;
};

/** An empty answer for unary methods, three empty messages for streams. */
export function emptyAnswers(): Script {
  return {
    unary: async (desc) => create(desc.output),
    stream: async function* (desc) {
      for (let index = 0; index < 3; index++) yield create(desc.output);
    },
  };
}

export const authenticate: Authenticate = async (headers) => {
  const credential = headers.get("authorization");
  if (credential === null) throw new ApiError("missing_key");
  if (credential === `Bearer ${adminToken}`) return { kind: "admin" };
  if (credential !== `Bearer ${key}`) throw new ApiError("invalid_key");
  return {
    kind: "key",
    key: create(KeySchema, { keyId: "key_1" }),
    secret: create(SecretSchema, { secretId: "sec_1" }),
  };
};

/** Services that answer with `script`, which a test may change between calls. */
export function scriptedServices(script: Script): Services {
  const log = createLog("silent");
  const scripted = <S extends DescService>(service: S) => {
    const implementation = implement<Implementation<S, AuthenticatedCall>>(service, (desc) =>
      desc.methodKind === "unary"
        ? (request: Message, call: AuthenticatedCall) => script.unary(desc, request, call)
        : (request: Message, call: AuthenticatedCall) => script.stream(desc, request, call),
    );
    return intercept(service, implementation, authenticate, log);
  };
  return {
    billing: scripted(serviceTypes.billing),
    keys: scripted(serviceTypes.keys),
    inference: scripted(serviceTypes.inference),
  };
}
