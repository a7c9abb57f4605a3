// The page of the console with fixtures in place of a gateway: `GET /console/states` lists the
// states of its pages, `/console/states/<page>/<state>` shows one.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type {
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  Message,
} from "@bufbuild/protobuf";
import { createContextKey, createContextValues, type HandlerContext } from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import fastify, { type FastifyRequest } from "fastify";
import { ApiError } from "../../../src/base/errors.ts";
import { createLog } from "../../../src/base/log.ts";
import { registerPage } from "../../../src/console/console.ts";
import { allServices } from "../../../src/contract/contract.ts";
import { toConnectError } from "../../../src/http/connect-error.ts";
import { type Answer, aborted, accountId, type PageStates } from "./answers.ts";
import { allPages, commonAnswers } from "./states.ts";

export type StatesServer = {
  /** Without a slash at the end. */
  readonly address: string;
  stop(): Promise<void>;
};

/** Where the script of axe is: Chromium compiles one with an address less often. */
export const axePath = "/console/states/axe.js";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"));

/** Where the state of a page is shown. */
export function statePath(page: string, state: string): string {
  return `/console/states/${encodeURIComponent(page)}/${encodeURIComponent(state)}`;
}

const cookieName = "console-state";
const stateOf = createContextKey<readonly Answer[]>([], {
  description: "the answers of the state",
});

export async function startStates(pages: readonly PageStates[] = allPages): Promise<StatesServer> {
  const app = fastify({ logger: false, forceCloseConnections: true });
  let address = "http://localhost";
  registerPage(app, { publicUrl: () => new URL(address), log: createLog("error") });
  app.get("/console/states", async (_request, reply) =>
    reply.type("text/html; charset=utf-8").send(
      `<!doctype html><title>States</title>${pages
        .flatMap(({ name, states }) => Object.keys(states).map((state) => [name, state] as const))
        .map(([name, state]) => `<p><a href="${statePath(name, state)}">${name}: ${state}</a></p>`)
        .join("")}`,
    ),
  );
  app.get(axePath, (_request, reply) =>
    reply.type("text/javascript").header("cache-control", "max-age=86400").send(axe),
  );
  app.get<{ Params: { page: string; state: string } }>(
    "/console/states/:page/:state",
    async ({ params }, reply) => {
      const page = pages.find(({ name }) => name === params.page);
      if (!page?.states[params.state]) return reply.code(404).send("No such state.");
      const value = encodeURIComponent(`${params.page}/${params.state}`);
      const path = page.path.startsWith("/") ? page.path : `/console/${accountId}/${page.path}`;
      // Who brings a session sees the frame.
      const session = `gateway-session-${new URL(address).port}=of-the-state; Path=/`;
      return reply
        .header("set-cookie", [`${cookieName}=${value}; Path=/`, session])
        .redirect(path, 302);
    },
  );
  app.register(fastifyConnectPlugin, {
    grpc: false,
    grpcWeb: false,
    contextValues: (request) => createContextValues().set(stateOf, answersOf(request, pages)),
    routes: (router) => {
      for (const service of allServices)
        for (const method of service.methods) {
          const run = (request: Message, context: HandlerContext) =>
            find(context, method.name, service.typeName).run(request, context.signal);
          if (isUnary(method))
            router.rpc(method, async (request: Message, context: HandlerContext) => {
              try {
                const [message] = await run(request, context);
                if (!message) throw new ApiError("internal");
                return message;
              } catch (error) {
                throw toConnectError(error);
              }
            });
          else if (isServerStreaming(method))
            router.rpc(method, async function* (request: Message, context: HandlerContext) {
              try {
                yield* await run(request, context);
              } catch (error) {
                throw toConnectError(error);
              }
              await aborted(context.signal);
            });
        }
    },
  });
  address = (await app.listen({ host: "127.0.0.1", port: 0 })).replace("127.0.0.1", "localhost");
  return { address, stop: () => app.close() };
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isServerStreaming(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === "server_streaming";
}

function answersOf({ headers }: FastifyRequest, pages: readonly PageStates[]): readonly Answer[] {
  const value = /(?:^|;\s*)console-state=([^;]*)/.exec(headers.cookie ?? "")?.[1] ?? "";
  const [name = "", state = ""] = decodeURIComponent(value).split("/");
  return pages.find((page) => page.name === name)?.states[state] ?? [];
}

function find({ values }: HandlerContext, method: string, service: string): Answer {
  const isAsked = (one: Answer) =>
    one.method.name === method && one.method.parent.typeName === service;
  const found = values.get(stateOf).find(isAsked) ?? commonAnswers.find(isAsked);
  if (!found)
    throw toConnectError(new ApiError("unimplemented", { message: `${method}: no answer` }));
  return found;
}

/** Shows each part of a page once, so that it asks for what it shows. Runs in the page. */
export const scrollThrough = `(async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  for (let at = 0; at < document.documentElement.scrollHeight; at += innerHeight / 2) {
    scrollTo(0, at);
    await frame();
    await frame();
  }
  scrollTo(0, 0);
})()`;
