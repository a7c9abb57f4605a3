// Keys that may be used only from some addresses: on every listener, and after every change.

import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { MisplacedUse } from "../../src/base/client-address.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import { nameClient } from "../../src/contract/callers.ts";
import type { Origin } from "../../src/contract/contract.ts";
import { serviceTypes } from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import type { Keys } from "../../src/keys/keys.ts";
import { apiErrorOf, type BindingName, startBindings } from "../support/bindings.ts";
import { createAuthority } from "../support/certificates.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import {
  bearer,
  createNodeKeys,
  errorOf,
  type KeysClient,
  startTestKeys,
} from "../support/keys.ts";
import { emptyAnswers, scriptedServices } from "../support/scripted-services.ts";

let fixture: Awaited<ReturnType<typeof startTestKeys>>;
let client: KeysClient;
const clock = new ManualClock({ creeps: true });
beforeAll(async () => {
  fixture = await startTestKeys({ clock });
  client = fixture.client;
});
afterAll(() => fixture.drop());

async function createKey(...allowedAddresses: string[]) {
  const { key, secret } = await client.createKey({
    accountId: "acc_a",
    settings: { allowedAddresses },
  });
  expect.assert(key);
  return { keyId: key.keyId, secret, addresses: key.allowedAddresses };
}

const setAddresses = async (keyId: string, ...allowedAddresses: string[]) =>
  (
    await client.updateKey({
      keyId,
      settings: { allowedAddresses },
      updateMask: { paths: ["allowed_addresses"] },
    })
  ).key?.allowedAddresses;

/** What a call with the secret from there comes to. */
const from = (secret: string, origin?: Origin, keys: Keys = fixture.keys) =>
  errorOf(keys.authenticate(bearer(secret), origin));

describe("a key with a list", () => {
  test("works from its addresses, and is refused elsewhere with the address, not the list", async () => {
    const { secret, addresses } = await createKey("198.51.100.0/24", "::ffff:203.0.113.7");
    expect(addresses).toEqual(["198.51.100.0/24", "203.0.113.7"]);
    for (const peer of ["198.51.100.9", "203.0.113.7", "::ffff:203.0.113.7"])
      expect(await from(secret, { peer })).toBe("no error");
    const refusal = async (peer?: string) => {
      const error = await fixture.keys
        .authenticate(bearer(secret), peer === undefined ? undefined : { peer })
        .catch((thrown: unknown) => thrown);
      expect.assert(error instanceof ApiError);
      return [error.reason, error.message];
    };
    const reason = "address_not_allowed";
    expect(await refusal("192.0.2.1")).toEqual([
      reason,
      "This key may not be used from 192.0.2.1.",
    ]);
    expect(await refusal("::ffff:192.0.2.1")).toEqual([
      reason,
      "This key may not be used from 192.0.2.1.",
    ]);
    const unknown = [reason, "This key may not be used from an unknown address."];
    for (const peer of [undefined, "", "a proxy's <text>"])
      expect(await refusal(peer)).toEqual(unknown);
  });

  test("is reported to its account with the address, each time", async () => {
    const uses: MisplacedUse[] = [];
    const keys = createNodeKeys(fixture.database, { onMisplaced: (use) => uses.push(use) });
    const { keyId, secret } = await createKey("198.51.100.9");
    for (const peer of ["198.51.100.9", "192.0.2.1", "192.0.2.2"])
      await from(secret, { peer }, keys);
    expect(uses).toMatchObject([
      { accountId: "acc_a", id: keyId, name: "a key", address: "192.0.2.1" },
      { accountId: "acc_a", id: keyId, address: "192.0.2.2" },
    ]);
    expect(secret.startsWith(uses[0]?.hint.split("…")[0] ?? "-")).toBe(true);
  });

  test("a key that is refused anyway is not reported: its address is not the reason", async () => {
    const uses: MisplacedUse[] = [];
    const keys = createNodeKeys(fixture.database, { onMisplaced: (use) => uses.push(use) });
    const { keyId, secret } = await createKey("198.51.100.9");
    await client.pauseKey(keyId);
    expect(await from(secret, { peer: "192.0.2.1" }, keys)).toBe("key_paused");
    expect(uses).toEqual([]);
  });

  test("a change is followed by every node within a second, in both directions", async () => {
    const { keyId, secret } = await createKey();
    const node = createNodeKeys(fixture.database, { clock });
    node.start();
    onTestFinished(() => node.stop());
    const here = { peer: "192.0.2.1" };
    const soon = (reason: string) =>
      passUntil(
        () => clock.advance(500),
        async () => expect(await from(secret, here, node)).toBe(reason),
      );
    expect(await from(secret, here, node)).toBe("no error");
    expect(await setAddresses(keyId, "198.51.100.0/24")).toEqual(["198.51.100.0/24"]);
    expect(await from(secret, here)).toBe("address_not_allowed");
    await soon("address_not_allowed");
    expect(await setAddresses(keyId)).toEqual([]);
    await soon("no error");
  });

  test.for<[string, string[]]>([
    ["allowed_addresses[1]", ["::1", "10.0.0.1/8"]],
    ["allowed_addresses[0]", ["somewhere"]],
    ["allowed_addresses", Array<string>(101).fill("::1")],
  ])("a mistake is refused at %s", async ([field, list]) => {
    expect(await errorOf(createKey(...list))).toBe(`invalid_request settings.${field}`);
    const { keyId } = await createKey();
    expect(await errorOf(setAddresses(keyId, ...list))).toBe(`invalid_request settings.${field}`);
  });
});

describe("over every listener", () => {
  type Tls = Parameters<typeof startBindings>[2];
  const claimed = "203.0.113.9";

  /** Calls Authenticate over every binding, each with a header that claims an address. */
  async function open(secret: string, tls?: Tls) {
    const { keys } = fixture;
    const log = createLog("silent");
    const services = {
      ...scriptedServices(emptyAnswers()),
      keys: intercept(serviceTypes.keys, keys.service, { authenticate: keys.authenticate, log }),
    };
    const bindings = await startBindings(services, keys.authenticate, tls);
    onTestFinished(() => bindings.close());
    return (name: BindingName) => {
      const headers = bearer(secret);
      nameClient(headers, { address: claimed, agent: "" });
      headers.set("x-forwarded-for", claimed);
      return errorOf(
        bindings[name].keys.authenticate({}, { headers }).catch((error: unknown) => {
          throw apiErrorOf(error);
        }),
      );
    };
  }
  const all: BindingName[] = ["local", "gRPC", "Connect with JSON", "Connect with protobuf"];
  const outcomes = async (call: (name: BindingName) => Promise<string>) =>
    Object.fromEntries(
      await Promise.all(all.map(async (name) => [name, await call(name)] as const)),
    );

  test("who claims an address has only his own, apart from the listeners of this process", async () => {
    const allowed = await open((await createKey(claimed)).secret);
    expect(await outcomes(allowed)).toEqual({
      local: "no error",
      gRPC: "address_not_allowed",
      "Connect with JSON": "address_not_allowed",
      "Connect with protobuf": "address_not_allowed",
    });
    const own = await open((await createKey("127.0.0.1")).secret);
    expect(await outcomes(own)).toEqual({
      local: "address_not_allowed",
      // It may be a facade that shows no certificate, and stand for anybody.
      gRPC: "address_not_allowed",
      "Connect with JSON": "no error",
      "Connect with protobuf": "no error",
    });
  });

  test("a facade is believed with a client certificate, and not without", async () => {
    const { secret } = await createKey(claimed);
    const authority = createAuthority("test authority");
    const server = authority.issue("core");
    const trusting = await open(secret, {
      server: { ...server, clientAuthorities: authority.certificate },
      client: { authorities: authority.certificate, identity: authority.issue("facade") },
    });
    expect(await trusting("gRPC")).toBe("no error");
    const plain = await open(secret, { server, client: { authorities: authority.certificate } });
    expect(await plain("gRPC")).toBe("address_not_allowed");
  });
});
