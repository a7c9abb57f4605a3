// The page that sends one message, by hand at the widths of a phone and of a desk: an answer with
// markup, stopped, cut, refused, after the budget is used up, with a model that is gone and without
// a session. A relay stands between the page and the gateway, and cuts their connections.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import type { AxeResults } from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { KeyState } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { hasChromium, openPage, startChromium } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, Gate, type Script, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer, nativeEvents, nativeStream } from "../support/provider-answers.ts";

const markup = '<img src=x onerror="document.title=1"><b>bold</b> {key} & "quotes"';
const password = "a long password";
/** How the provider counts a message: the gateway asks where the budget is nearly reached. */
const counted: Script = {
  headers: { "content-type": "application/json" },
  writes: ['{"input_tokens":3000}'],
};

/** Passes bytes on, and cuts every connection when it is asked to. */
class Relay {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  /** Of the gateway. */
  to = 0;

  constructor() {
    this.#server = createServer((near) => {
      const far = createConnection({ port: this.to, host: "127.0.0.1" });
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.on("error", () => to.destroy());
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
        from.pipe(to);
      }
    });
  }

  async listen(): Promise<number> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const address = this.#server.address();
    return typeof address === "object" && address ? address.port : 0;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop(): void {
    this.#server.close();
    this.cut();
  }
}

// Where it is absent: `apt-get install chromium`.
describe.skipIf(!hasChromium)("in Chromium", () => {
  const relay = new Relay();
  let provider: FakeProvider;
  let gateway: TestGateway;
  let browser: Browser;
  let page: Page;
  let owner = "";
  let problems: string[] = [];
  let origin = "";
  let axe = "";
  const catalog = (withOpus = true) => {
    const file = catalogFor({ real: { kind: "anthropic", url: provider.url } });
    const lines = file.split("\n").filter((line) => withOpus || !line.includes("id: model-opus"));
    return readCatalogFile(lines.join("\n").replace(withOpus ? "" : "opus: model-opus-4.6, ", ""));
  };

  beforeAll(async () => {
    provider = await startFakeProvider();
    const port = await relay.listen();
    origin = `http://localhost:${port}`;
    gateway = await startTestGateway({ env: { PUBLIC_URL: origin }, catalog: catalog() });
    relay.to = Number(new URL(gateway.address).port);
    axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
    browser = await startChromium();
    ({ page, problems } = await openPage(browser));
    page.setDefaultTimeout(30_000);
    owner = await enter(page, gateway.ownerLink, "olga");
  });
  afterAll(async () => {
    await browser.close();
    await gateway.stop();
    await provider.stop();
    relay.stop();
  });
  /** The next answers of the provider. Without one, it says hello. */
  const scripts: Script[] = [];
  beforeEach(async () => {
    scripts.length = 0;
    provider.always(({ path }) => {
      if (path.includes("count_tokens")) return counted;
      return scripts.shift() ?? nativeStream({ text: ["Hel", "lo"] });
    });
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.emulateMedia({ colorScheme: "light" });
  });

  /** Signs a person in by a link. Resolves with the token of the session. */
  async function enter(into: Page, link: string, login: string): Promise<string> {
    const redeemed = await fetch(`${origin}/gateway.people.v1.SignInService/RedeemLink`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: new URL(link).hash.slice(1), login, name: login, password }),
    });
    const [name = "", value = ""] = (redeemed.headers.get("set-cookie") ?? "").split(/[=;]/);
    await into.context().addCookies([{ name, value, url: origin }]);
    return value;
  }

  const at = (path = "") => `${origin}/console/${gateway.accountId}/${path}`;
  const open = async (query = "") => {
    await page.goto(at(`try${query}`));
    await message().waitFor();
  };
  const message = () => page.getByLabel("Message", { exact: true });
  const answer = () => page.locator(".answer");
  const state = (text: string) =>
    expect
      .poll(() => page.getByRole("status").getByText(text).count(), { timeout: 30_000 })
      .toBe(1);
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const send = async (text = "Hi") => {
    await message().fill(text);
    await button("Send").click();
  };
  const call = () => gateway.admin.call;

  /** The keys that this page made, the newest first. */
  async function ownKeys() {
    const { accountId } = gateway;
    const request = { accountId, query: "Try it, in the console" };
    const { keys } = await gateway.admin.core.keys.listKeys(request, call());
    return keys.toReversed();
  }
  const revoked = (keyId = "") =>
    expect
      .poll(async () => (await ownKeys()).find((key) => key.keyId === keyId)?.state)
      .toBe(KeyState.REVOKED);

  async function chargedOf(requestId: string) {
    const { accountId } = gateway;
    const request = { accountId, requestId };
    return (await gateway.admin.core.billing.getReceipt(request, call())).receipt;
  }
  /** The id of the request that holds credits, as soon as one does. */
  async function isRunning(): Promise<string> {
    const { accountId } = gateway;
    const running = async () => {
      const { billing } = gateway.admin.core;
      const { requests } = await billing.listRunningRequests({ accountId }, call());
      return requests.map(({ requestId }) => requestId);
    };
    await expect.poll(running).toHaveLength(1);
    const [requestId = ""] = await running();
    return requestId;
  }
  const requestIdOnPage = async () => {
    const href = await page.getByRole("link", { name: "The whole receipt" }).getAttribute("href");
    return href?.split("/").at(-1) ?? "";
  };

  /** Accessible, and nothing is wider than the window; its picture is kept where somebody asks. */
  async function look(name: string): Promise<void> {
    for (const width of [360, 1440])
      for (const colorScheme of ["light", "dark"] as const) {
        await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
        await page.emulateMedia({ colorScheme });
        const shots = process.env.SCREENSHOTS;
        const path = `${shots}/${name}-${width}-${colorScheme}.png`;
        if (shots) await page.screenshot({ path, fullPage: true });
        const over = await page.evaluate<number>(
          "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        expect([name, width, over]).toEqual([name, width, 0]);
        await page.evaluate(axe);
        const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
        const { violations } = await page.evaluate<AxeResults>(
          `axe.run({ runOnly: ${JSON.stringify(tags)} })`,
        );
        expect(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
      }
  }

  for (const width of [360, 1440])
    test(`an answer streams in as text, with its receipt and its snippet, at ${width} px`, async () => {
      await page.setViewportSize({ width, height: 900 });
      await page.goto(at());
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("t");
      await page.getByRole("heading", { name: "Try it", exact: true }).waitFor();
      const before = (await ownKeys()).length;
      const gate = new Gate();
      const [start = "", ...rest] = nativeEvents({ text: [markup, " and the end."] });
      scripts.push(
        nativeStream({}, { writes: [start, ...rest.slice(0, 2), gate, ...rest.slice(2)] }),
      );
      await page.getByLabel("Model", { exact: true }).selectOption("model-haiku-4.5");
      await page.getByLabel("System text").fill(`It's "short".\n${"x".repeat(10_000)}`);
      await message().fill("Say it.");
      // No key before the first message.
      expect(await ownKeys()).toHaveLength(before);
      await message().press("Control+Enter");
      await expect.poll(() => answer().textContent()).toBe(markup);
      await button("Stop").waitFor();
      gate.open();
      await state("The answer is whole.");
      expect(await answer().textContent()).toBe(`${markup} and the end.`);
      expect(await answer().locator("b, img").count()).toBe(0);
      expect(await page.title()).toBe("Try it · Model Gateway");

      // The receipt is that of the service.
      const requestId = await requestIdOnPage();
      const receipt = await chargedOf(requestId);
      expect(receipt).toMatchObject({ outcome: Outcome.COMPLETED, model: "model-haiku-4.5" });
      const shown = page.getByRole("region", { name: "Receipt" });
      const micro = Number(receipt?.chargedMicrocredits);
      expect(micro).toBeGreaterThan(0);
      await expect
        .poll(() => shown.textContent())
        .toContain(`Charged${(micro / 1e6).toFixed(4)} credits`);
      for (const [label, tokens] of [
        ["Input", receipt?.usage?.input],
        ["Output", receipt?.usage?.output],
      ])
        expect(await shown.textContent()).toContain(`${label}${tokens} tokens`);

      // The key is an ordinary one, with a budget and an end, and the provider got the message.
      const [key] = await ownKeys();
      expect(key).toMatchObject({ totalCapMicrocredits: 1_000_000n, state: KeyState.ACTIVE });
      const endsInMs = Number(key?.expiresAt?.seconds) * 1000 - Date.now();
      expect(endsInMs).toBeGreaterThan(3_000_000);
      expect(endsInMs).toBeLessThan(3_600_000);
      expect(receipt?.keyId).toBe(key?.keyId);
      expect(provider.requests.at(-1)?.bodyText).toContain("Say it.");

      // The same call, as a shell has it.
      const snippet = await page.locator(".snippet pre").textContent();
      expect(snippet).toContain(`curl -N ${origin}/v1/messages`);
      expect(snippet).toContain("It'\\''s");
      expect(snippet).toContain('"content": "Say it."');
      expect(snippet).not.toContain("sk-gw2");

      // A second message has the same key, and nothing of both is kept.
      await send("Once more");
      await expect.poll(() => answer().textContent()).toBe("Hello");
      await state("The answer is whole.");
      expect(await ownKeys()).toHaveLength(before + 1);
      const kept = await page.evaluate<string>(
        "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href, history.state])",
      );
      for (const one of ["Say it", "Once more", "Hello", "sk-gw2"]) expect(kept).not.toContain(one);
      if (width === 1440) await look("try-whole");

      // Who leaves ends the key, and comes back to an empty page.
      await page.keyboard.press("Escape");
      await page.evaluate("document.activeElement.blur()");
      await page.keyboard.press("g");
      await page.keyboard.press("m");
      await page.getByRole("heading", { name: "Models", exact: true }).waitFor();
      await revoked(key?.keyId);
      await page.goBack();
      expect(await message().inputValue()).toBe("");
      expect(await answer().count()).toBe(0);
    });

  test("a plain answer stands there as a whole, and a closed page ends its key", async () => {
    scripts.push(nativeAnswer({ text: [markup] }));
    await open("?model=model-haiku-4.5");
    await page.getByLabel("Show the answer as it comes").uncheck();
    await send();
    await state("The answer is whole.");
    expect(await answer().textContent()).toBe(markup);
    expect(await page.locator(".snippet pre").textContent()).toContain(`curl ${origin}`);
    const [key] = await ownKeys();
    await page.goto("about:blank");
    await revoked(key?.keyId);
  });

  test("an answer at its limit says so", async () => {
    scripts.push(nativeStream({ text: ["Hel"], stopReason: "max_tokens" }));
    await open();
    await page.getByLabel("Most tokens of the answer").fill("1");
    await send();
    await state("The answer ended at its most tokens.");
    expect(provider.requests.at(-1)?.body.max_tokens).toBe(1);
  });

  test("Stop hangs up, keeps what came, and shows what the hang-up cost", async () => {
    const events = nativeEvents({ text: ["Once upon a time", " there was"] });
    scripts.push(nativeStream({}, { writes: [...events.slice(0, 3), new Gate()] }));
    await open();
    await send();
    await expect.poll(() => answer().textContent()).toBe("Once upon a time");
    await page.getByText("Stop hangs up, as a program does").waitFor();
    await button("Stop").click();
    await state("Stopped.");
    expect(await answer().textContent()).toBe("Once upon a time");
    const requestId = await requestIdOnPage();
    expect((await chargedOf(requestId))?.outcome).toBe(Outcome.CLIENT_LEFT);
    await look("try-stopped");
  });

  test("a stream that is cut again and again keeps what came, and marks it", async () => {
    await open();
    const events = nativeEvents({ text: [markup, " the rest"] });
    for (let times = 0; times < 3; times++) {
      scripts.push(nativeStream({}, { writes: [...events.slice(0, 3), new Gate()] }));
      await send();
      await expect.poll(() => answer().textContent()).toBe(markup);
      relay.cut();
      await state("Cut off");
      expect(await answer().textContent()).toBe(`${markup} […]`);
      const requestId = await requestIdOnPage();
      expect((await chargedOf(requestId))?.outcome).toBe(Outcome.CLIENT_LEFT);
    }
    // The provider broke off: the sentence of the gateway stands behind what came.
    scripts.push(nativeStream({}, { writes: events.slice(0, 3), end: "reset" }));
    await send();
    await state("Cut off");
    expect(await answer().textContent()).toBe(`${markup} […]`);
    await page.locator('.notice[data-tone="warn"]').waitFor();
    await look("try-cut");
    await send();
    await state("The answer is whole.");
  });

  /** The amount on the page, which is that of the charge. */
  async function expectCharged(outcome: Outcome): Promise<void> {
    await page.getByRole("region", { name: "Receipt" }).waitFor();
    expect(await page.getByText("Nothing was charged.").count()).toBe(0);
    const charge = await chargedOf(await requestIdOnPage());
    expect(charge?.outcome).toBe(outcome);
    const micro = Number(charge?.chargedMicrocredits);
    expect(micro).toBeGreaterThan(0);
    const shown = page.getByRole("region", { name: "Receipt" });
    expect(await shown.textContent()).toContain(`Charged${(micro / 1e6).toFixed(4)} credits`);
  }
  /** The events of an answer that thinks before it writes, up to its thoughts. */
  const thoughts = () =>
    nativeEvents({
      ...{ thinking: { pieces: ["Let me see."], signature: "c2ln" }, text: ["Hello"] },
      usage: { input: 3_000 },
    }).slice(0, 3);

  test("a provider that breaks after its thoughts is no free answer", async () => {
    scripts.push(nativeStream({}, { writes: thoughts(), end: "reset" }));
    await open("?model=model-opus-4.6");
    await send();
    await state("No answer");
    await expectCharged(Outcome.PROVIDER_BROKE);
    await look("try-broke");
  });

  test("a key that is revoked during the thoughts of a model is charged for them", async () => {
    scripts.push(nativeStream({}, { writes: [...thoughts(), new Gate()] }));
    await open("?model=model-opus-4.6");
    const count = provider.requests.length;
    await send();
    await provider.received(count + 1);
    await isRunning();
    const [key] = await ownKeys();
    await gateway.admin.core.keys.revokeKey({ keyId: key?.keyId ?? "" }, call());
    await page.getByText("The key of this page was ended.").waitFor();
    await expectCharged(Outcome.REVOKED);
  });

  test("a plain answer that an owner ends shows its charge", async () => {
    const [whole] = nativeAnswer({ text: ["Hello"] }).writes ?? [];
    expect.assert(typeof whole === "string");
    const writes = [whole.slice(0, 20), new Gate(), whole.slice(20)];
    scripts.push(nativeAnswer({}, { writes }));
    await open("?model=model-opus-4.6");
    await page.getByLabel("Show the answer as it comes").uncheck();
    const count = provider.requests.length;
    await send();
    await provider.received(count + 1);
    const { accountId } = gateway;
    const request = { accountId, requestId: await isRunning() };
    await gateway.admin.core.inference.endRequest(request, call());
    await page.getByText("An owner of the account ended this request.").waitFor();
    await expectCharged(Outcome.REVOKED);
  });

  test("a network that is gone before the answer says so", async () => {
    await open();
    await send();
    await state("The answer is whole.");
    scripts.push({ writes: [], before: new Gate() });
    const count = provider.requests.length;
    await send();
    await provider.received(count + 1);
    relay.cut();
    await page.getByText("The connection to the gateway broke, or it does not answer.").waitFor();
    await state("No answer came. Whether it is charged is looked up.");
    expect(await page.getByText("Cut off").count()).toBe(0);
    // No network at all.
    await page.context().setOffline(true);
    await send();
    await state("No answer came.");
    await page.getByText("It comes when the request is charged.").waitFor();
    await page.context().setOffline(false);
  });

  test("a used-up budget is a sentence, and a new key sends the message", async () => {
    await open("?model=model-opus-4.6");
    const much = nativeStream({ text: ["much"], usage: { input: 5, output: 250 } });
    scripts.push(much, much);
    await page.getByLabel("Most tokens of the answer").fill("250");
    await send();
    await state("The answer is whole.");
    await page.getByRole("region", { name: "Receipt" }).waitFor();
    const [first] = await ownKeys();
    await send();
    await page.getByText("A new key has another credit.").waitFor();
    await page.getByText("Nothing was charged.").waitFor();
    await look("try-spent");
    await button("Send with a new key").click();
    await state("The answer is whole.");
    const [second] = await ownKeys();
    expect(second?.keyId).not.toBe(first?.keyId);
    await revoked(first?.keyId);
  });

  test("a budget that a broken answer used up is a reason for a new key", async () => {
    await open("?model=model-opus-4.6");
    const usage = { input: 100_000, output: 250 };
    const events = nativeEvents({ thinking: { pieces: ["Hm."], signature: "c2ln" }, usage });
    scripts.push(nativeStream({}, { writes: events.slice(0, 3), end: "reset" }));
    // Its receipt is not there yet when the next message is refused.
    await page.route("**/GetReceipt", (route) => route.abort());
    await page.getByLabel("Most tokens of the answer").fill("250");
    await send();
    await state("No answer");
    const [first] = await ownKeys();
    await send();
    await page.getByText("A new key has another credit.").waitFor();
    await page.unroute("**/GetReceipt");
    await button("Send with a new key").click();
    await state("The answer is whole.");
    await revoked(first?.keyId);
  });

  test("a message of 1 MB is refused with the next step, and is no snippet", async () => {
    await open();
    await message().fill("word ".repeat(210_000));
    await page.getByText("The text is too long to be pasted into a shell.").waitFor();
    await button("Send").click();
    await state("No answer");
    await page.getByText("The message may cost more than 1 credit").waitFor();
    await page.getByText("Nothing was charged.").waitFor();
    await send("Hi");
    await state("The answer is whole.");
  });

  test("nothing to send, and a limit that is none, are said at their fields", async () => {
    await open();
    const before = (await ownKeys()).length;
    await button("Send").click();
    await page.getByText("Write something to send.").waitFor();
    await page.getByLabel("Most tokens of the answer").fill("-1");
    await send();
    await page.getByText("A whole number from 1 on.").waitFor();
    expect(await ownKeys()).toHaveLength(before);
  });

  test("a model that is gone meanwhile is refused, and leaves the list", async () => {
    await open("?model=model-opus-4.6");
    gateway.reload(catalog(false));
    await send();
    await page.getByText("Choose another model: the list was read again.").waitFor();
    await expect
      .poll(() => page.getByLabel("Model", { exact: true }).locator("option").count())
      .toBe(2);
    await send();
    await state("The answer is whole.");
    gateway.reload(catalog());
  });

  test("a limit of requests of the provider is said with the time to wait", async () => {
    const overloaded: Script = {
      status: 529,
      headers: { "content-type": "application/json" },
      writes: ['{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'],
    };
    scripts.push(...Array(9).fill(overloaded));
    await open();
    await send();
    await page.getByText(/Try again in( a moment| \d+ s)\./).waitFor();
    await state("No answer");
    await page.getByText("Nothing was charged.").waitFor();
    expect((await chargedOf(await requestIdOnPage()))?.outcome).toBe(Outcome.PROVIDER_FAILED);
  });

  test("a key that an owner revokes is replaced by the next message", async () => {
    await open();
    await send();
    await state("The answer is whole.");
    const [key] = await ownKeys();
    await gateway.admin.core.keys.revokeKey({ keyId: key?.keyId ?? "" }, call());
    await send();
    await page.getByText("The key of this page was ended.").waitFor();
    await send();
    await state("The answer is whole.");
  });

  test("an address that serves no models says so", async () => {
    await open();
    await page.route("**/v1/messages", (route) =>
      route.fulfill({ status: 404, contentType: "text/html", body: "<h1>nginx</h1>" }),
    );
    await send();
    await state("No answer");
    await page.getByText("the models are not served at the address of this console").waitFor();
    await page.unroute("**/v1/messages");
  });

  test("a proxy that does not reach the gateway is no wrong address", async () => {
    await open();
    for (const status of [502, 504]) {
      await page.route("**/v1/messages", (route) =>
        route.fulfill({ status, contentType: "text/html", body: "<h1>nginx</h1>" }),
      );
      await send();
      await state("No answer came.");
      await page.getByText("The connection to the gateway broke, or it does not answer.").waitFor();
      expect(await page.getByText("Nothing was charged.").count()).toBe(0);
      await page.unroute("**/v1/messages");
    }
  });

  for (const days of [-1, 1])
    test(`a clock that is ${days} day ahead makes no other key`, async () => {
      const other = await openPage(browser);
      await other.page.context().addCookies(await page.context().cookies());
      await other.page.addInitScript(`{
        const aheadMs = ${days * 86_400_000};
        const now = Date.now.bind(Date);
        globalThis.Date = class extends Date {
          constructor(...args) {
            super(...(args.length > 0 ? args : [now() + aheadMs]));
          }
          static now() {
            return now() + aheadMs;
          }
        };
      }`);
      await other.page.goto(at("try"));
      await other.page.getByLabel("Message", { exact: true }).fill("Hi");
      await other.page.getByRole("button", { name: "Send", exact: true }).click();
      await other.page.getByText("The answer is whole.").waitFor();
      const [key] = await ownKeys();
      const seconds = Number(key?.expiresAt?.seconds) - Number(key?.createdAt?.seconds);
      expect(seconds).toBeGreaterThan(3_000);
      expect(seconds).toBeLessThanOrEqual(3_600);
      // It is good for the next message, too.
      const count = provider.requests.length;
      await other.page.getByRole("button", { name: "Send", exact: true }).click();
      await provider.received(count + 1);
      await other.page.getByText("The answer is whole.").waitFor();
      expect((await ownKeys())[0]?.keyId).toBe(key?.keyId);
      expect(other.problems).toEqual([]);
      await other.page.context().close();
    });

  test("a session that ended asks for the password, and the message is sent", async () => {
    await open();
    await message().fill("Kept while signing in");
    await gateway.admin.core.people.signOut({}, { headers: { authorization: `Session ${owner}` } });
    await button("Send").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Use a password" }).click();
    await dialog.getByLabel("Login").fill("olga");
    await dialog.getByLabel("Password", { exact: true }).fill(password);
    await dialog.getByLabel("Password", { exact: true }).press("Enter");
    await state("The answer is whole.");
    expect(await message().inputValue()).toBe("Kept while signing in");
  });

  test("a viewer finds no such page in the column, and a sentence at its address", async () => {
    const { people } = gateway.admin.core;
    const cookies = await page.context().cookies();
    const session = cookies.find(({ name }) => name.startsWith("gateway-session"))?.value;
    const invited = await people.createInvitation(
      { accountId: gateway.accountId, role: AccountRole.VIEWER },
      { headers: { authorization: `Session ${session}` } },
    );
    const other = await openPage(browser);
    await enter(other.page, invited.link, "vera");
    await other.page.goto(at("try"));
    await other.page.getByText("Ask an owner to make you a member.").waitFor();
    expect(await other.page.getByRole("link", { name: "Try it" }).count()).toBe(0);
    expect(other.problems).toEqual([]);
    await other.page.context().close();
  });

  test("the pages said nothing that should not be", () => {
    expect(problems).toEqual([]);
  });
});
