// Downloads `charges.csv` from a gateway as the browser of its operator does, and watches the
// memory of the gateway meanwhile.

import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { type GatewayProcess, urlOf } from "./lab.ts";
import { residentBytes } from "./measure.ts";

export type Download = {
  readonly rows: number;
  readonly seconds: number;
  /** Resident memory of the gateway, as the largest of each half of the download. */
  readonly bytes: { readonly first: number; readonly second: number };
};

/** The cookie of the first operator of a gateway that has just seeded its database. */
export async function signIn(gateway: GatewayProcess): Promise<string> {
  const token = new URL(gateway.ownerLink).hash.slice(1);
  const answer = await fetch(`${urlOf(gateway)}/gateway.people.v1.SignInService/RedeemLink`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token, login: "bench", password: "a password of the bench" }),
  });
  if (!answer.ok) throw new Error(`no sign-in: ${answer.status} ${await answer.text()}`);
  return answer.headers.get("set-cookie")?.split(";")[0] ?? "";
}

/** Downloads the charges of an account since `from`. */
export async function download(
  gateway: GatewayProcess,
  { cookie, accountId, from }: { cookie: string; accountId: string; from: Date },
): Promise<Download> {
  const query = `account=${accountId}&from=${from.toISOString().slice(0, 10)}`;
  const started = performance.now();
  const request = get(`${urlOf(gateway)}/console/export/charges.csv?${query}`, {
    headers: { cookie, "sec-fetch-site": "same-origin" },
    agent: false,
  });
  const [answer]: IncomingMessage[] = await once(request, "response");
  if (answer?.statusCode !== 200) throw new Error(`no file: ${answer?.statusCode}`);
  const samples: number[] = [];
  const timer = setInterval(() => samples.push(residentBytes(gateway.pid)), 100);
  let lines = 0;
  for await (const chunk of answer) {
    const bytes = Buffer.from(chunk);
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) lines++;
  }
  clearInterval(timer);
  samples.push(residentBytes(gateway.pid));
  const middle = Math.ceil(samples.length / 2);
  return {
    // The first line names the columns.
    rows: lines - 1,
    seconds: (performance.now() - started) / 1000,
    bytes: {
      first: Math.max(...samples.slice(0, middle)),
      second: Math.max(...samples.slice(middle - 1)),
    },
  };
}
