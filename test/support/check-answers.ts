// Runs before each file of tests: from now on, a `fetch` fails whose JSON answer is not what
// /openapi.json says, those of the official SDKs too. Streams pass unread. Only answers of our
// listener are looked at, which have a request id.

const real = globalThis.fetch;

globalThis.fetch = async (input, init) => {
  const response = await real(input, init);
  const type = response.headers.get("content-type") ?? "";
  const method = init?.method ?? (input instanceof Request ? input.method : "GET");
  const isOurs = /^req_/.test(response.headers.get("request-id") ?? "");
  if (type !== "application/json" || !isOurs || method === "HEAD") return response;
  const { pathname } = new URL(response.url);
  const path = pathname.replace(/^\/v1\/v1\//, "/v1/");
  // Only here: files without such an answer need not load it.
  const { checker } = await import("./openapi.ts");
  const { check } = await checker();
  check("answer", { method, path, status: response.status, type }, await response.clone().json());
  return response;
};
