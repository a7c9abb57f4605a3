// Every method of the services as a browser calls it: by the session of a viewer, and by a page of
// somebody else that the browser sends the session to. Made from the protos, so that a new method
// is covered.

import { type DescMethod, getOption, toJsonString } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { methods } from "../support/bindings.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { leastRequest } from "../support/samples/messages.ts";

const password = "a long password";
const ownPage = { "sec-fetch-site": "same-origin" };

let gateway: TestGateway;
let cookie = "";
beforeAll(async () => {
  gateway = await startTestGateway({ split: false });
  const { people } = gateway.admin.core;
  const tokenOf = (link: string) => new URL(link).hash.slice(1);
  const owner = { token: tokenOf(gateway.ownerLink), login: "olga", password };
  const { grant } = await people.redeemLink(owner);
  const { link } = await people.createInvitation(
    { accountId: gateway.accountId, role: AccountRole.VIEWER },
    { headers: { authorization: `Session ${grant?.token}` } },
  );
  const answer = await fetch(`${gateway.address}/gateway.people.v1.SignInService/RedeemLink`, {
    method: "POST",
    headers: { "content-type": "application/json", ...ownPage },
    body: JSON.stringify({ token: tokenOf(link), login: "vic", password }),
  });
  cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? "";
});
afterAll(() => gateway.stop());

/** The reason for which a call is refused. Undefined: it is answered, or is a stream that began. */
async function refusalOf(desc: DescMethod, headers: object): Promise<string | undefined> {
  const request = leastRequest(desc.input);
  if (desc.input.field.accountId) Object.assign(request, { accountId: gateway.accountId });
  const json = Buffer.from(toJsonString(desc.input, request));
  const isStream = desc.methodKind !== "unary";
  const size = Buffer.alloc(5);
  size.writeUInt32BE(json.length, 1);
  const stopped = new AbortController();
  const answer = await fetch(`${gateway.address}/${desc.parent.typeName}/${desc.name}`, {
    method: "POST",
    headers: {
      "content-type": isStream ? "application/connect+json" : "application/json",
      ...{ cookie, ...headers },
    },
    body: isStream ? Buffer.concat([size, json]) : json,
    signal: stopped.signal,
  });
  // The first bytes of a stream are a message, or the end with the reason.
  const reader = answer.body?.getReader();
  let text = "";
  for (let part = await reader?.read(); part?.value; part = await reader?.read()) {
    text += Buffer.from(part.value).toString("latin1");
    if (isStream) break;
  }
  stopped.abort();
  return /"reason":"(\w+)"/.exec(text)?.[1];
}

/** These would end the session, or remove nobody but the caller. */
const isOfOneself = ({ name }: DescMethod) => /^(SignOut|DeletePerson|RemoveMember)$/.test(name);

describe("a viewer", () => {
  for (const desc of methods) {
    const { person, anyone } = getOption(desc, callers);
    if (anyone || isOfOneself(desc)) continue;
    const mayCall = person === AccountRole.VIEWER;
    test(`${mayCall ? "may" : "may not"} call ${desc.name}`, async () => {
      const reason = await refusalOf(desc, ownPage);
      if (mayCall) expect(reason).not.toBe("NOT_PERMITTED");
      else expect(reason).toBe("NOT_PERMITTED");
    });
  }
});

describe("the page of somebody else", () => {
  for (const desc of methods)
    test(`may not call ${desc.name} with the session of its reader`, async () => {
      for (const site of [
        { "sec-fetch-site": "cross-site", origin: "https://evil.example" },
        { "sec-fetch-site": "same-site", origin: "http://localhost:1" },
        { origin: "https://evil.example" },
        {},
      ])
        expect(await refusalOf(desc, site), JSON.stringify(site)).toBe("NOT_PERMITTED");
    });
});
