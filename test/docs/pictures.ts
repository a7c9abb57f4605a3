// `npm run docs-pictures`: the pictures of the console in docs/pictures, taken from a gateway that
// runs, with two months of usage that is made up. They have 256 colours, so that they stay small.

import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { Client } from "pg";
import type { Browser, BrowserContextOptions } from "playwright-core";
import { createLog } from "../../src/base/log.ts";
import { startEmbedded } from "../../src/postgres/embedded/embedded.ts";
import { startChildGateway } from "../support/child-gateway.ts";
import { startChromium } from "../support/chromium.ts";
import { root } from "./documents.ts";

const folder = join(root, "docs/pictures");
const viewport = { width: 1_280, height: 840 };
const colorsMax = 256;

/** Keys, with what each calls, and its requests in an hour of work. */
const uses = [
  { name: "code review", model: "model-opus-4.6", requests: 4, inputPrice: 700 },
  { name: "support desk", model: "model-sonnet-4.6", requests: 14, inputPrice: 420 },
  { name: "search", model: "model-haiku-4.5", requests: 46, inputPrice: 140 },
  { name: "nightly reports", model: "model-sonnet-4.6", requests: 3, inputPrice: 420 },
] as const;

/**
 * Hours of a key. $1 account, $2 key, $3 its name, which chance depends on, $4 model, $5 requests,
 * $6 micro-credits of a token of input. Output costs five times as much, cached input a tenth.
 */
const insertHours = `
  with hours as (
    select hour, abs(hashtext($3 || hour)) % 1000 / 1000.0 as chance,
      greatest(1, round($5::int
        * (1.3 - extract(epoch from now() - hour) / 86400 / 90)
        * case when extract(isodow from hour) > 5 then 0.3 else 1 end
        * (0.7 + abs(hashtext(hour || $3)) % 600 / 1000.0)))::bigint as requests
    from generate_series(date_trunc('day', now(), 'UTC') - interval '59 days',
      date_trunc('hour', now()), interval '1 hour') hour
    where extract(hour from hour at time zone 'utc') between 7 and 18
  ), tokens as (
    select *, (requests * (900 + chance * 500))::bigint as input,
      (requests * (220 + chance * 120))::bigint as output,
      (requests * (60 + chance * 60))::bigint as thinking,
      (requests * (2400 + chance * 1200))::bigint as cache_read
    from hours
  )
  insert into usage_hourly (account_id, key_id, model, hour, input, output, thinking, cache_read,
    amount, amount_input, amount_output, amount_thinking, amount_cache, requests, completed,
    first_event_7, first_event_9)
  select $1, $2, $4, hour, input, output, thinking, cache_read,
    input * $6::int + (output + thinking) * $6::int * 5 + cache_read * $6::int / 10,
    input * $6::int, output * $6::int * 5, thinking * $6::int * 5, cache_read * $6::int / 10,
    requests, requests, requests - requests / 3, requests / 3
  from tokens`;

/** Calls a method of a service over Connect. */
async function call(
  address: string,
  method: string,
  token: string,
  body: object,
): Promise<Response> {
  const answer = await fetch(`${address}/gateway.${method}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(token !== "" && { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method}: ${await answer.text()}`);
  return answer;
}

async function fillMonths(db: Client, address: string, keys: FirstKeys): Promise<void> {
  const { accountId, adminToken } = keys;
  await db.query("update accounts set created_at = now() - interval '100 days', name = 'Acme'");
  const purchase = { kind: "TRANSFER_KIND_PURCHASE", idempotencyKey: "pictures" };
  await call(address, "billing.v1.BillingService/CreateTransfer", adminToken, {
    ...{ accountId, family: "FAMILY_V1", amountMicrocredits: "24000000000", ...purchase },
  });
  const past = "(now() at time zone 'utc')::date - 70";
  await db.query(`update usage_progress set closed_to = ${past}, hours_from = ${past}`);
  for (const { name, model, requests, inputPrice } of uses) {
    const request = { accountId, family: "FAMILY_V1", settings: { name } };
    const answer = await call(address, "keys.v1.KeysService/CreateKey", adminToken, request);
    const { key } = Object(await answer.json());
    await db.query(insertHours, [accountId, key.keyId, name, model, requests, inputPrice]);
  }
}

/** The cookie of a new owner of the account. */
async function signIn({ ownerLink }: FirstKeys) {
  const { origin, hash } = new URL(ownerLink);
  const person = { login: "olga@acme.example", name: "Olga", password: "a long password" };
  const request = { token: hash.slice(1), ...person };
  const answer = await call(origin, "people.v1.SignInService/RedeemLink", "", request);
  const [name = "", value = ""] = (answer.headers.get("set-cookie") ?? "").split(/[=;]/);
  return { name, value, url: origin };
}

/** The pixels of a PNG, 4 bytes each: Chromium can read it. */
async function readPixels(browser: Browser, png: Buffer): Promise<Buffer> {
  const page = await browser.newPage();
  const base64 = await page.evaluate<string>(`(async () => {
    const picture = await createImageBitmap(
      await (await fetch("data:image/png;base64,${png.toString("base64")}")).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    canvas.drawImage(picture, 0, 0);
    const { data } = canvas.getImageData(0, 0, picture.width, picture.height);
    const reader = new FileReader();
    const read = new Promise((resolve) => reader.addEventListener("load", resolve));
    reader.readAsDataURL(new Blob([data]));
    await read;
    return reader.result.split(",")[1];
  })()`);
  await page.close();
  return Buffer.from(base64, "base64");
}

function distanceOf(one: number, other: number): number {
  const difference = (shift: number) => ((one >> shift) & 255) - ((other >> shift) & 255);
  return difference(16) ** 2 + difference(8) ** 2 + difference(0) ** 2;
}

function nearest(color: number, palette: readonly number[]): number {
  let best = 0;
  for (const [index, one] of palette.entries())
    if (distanceOf(color, one) < distanceOf(color, palette[best] ?? 0)) best = index;
  return best;
}

/** A PNG with a palette: the colours that are used most and are not alike. */
function encode(pixels: Buffer, width: number, height: number): Buffer {
  const colorAt = (at: number) => pixels.readUInt32BE(at * 4) >>> 8;
  const counts = new Map<number, number>();
  for (let at = 0; at < width * height; at++)
    counts.set(colorAt(at), (counts.get(colorAt(at)) ?? 0) + 1);
  const byUse = [...counts].sort(([, one], [, other]) => other - one).map(([color]) => color);
  const palette: number[] = [];
  for (const color of byUse) {
    if (palette.length === colorsMax) break;
    if (palette.every((one) => distanceOf(one, color) >= 40)) palette.push(color);
  }
  const indexes = new Map(byUse.map((color) => [color, nearest(color, palette)]));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      rows[y * (width + 1) + x + 1] = indexes.get(colorAt(y * width + x)) ?? 0;
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // 8 bits a pixel, which are indexes of the palette.
  header.set([8, 3], 8);
  const colors = palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]);
  return Buffer.concat([
    Buffer.from("89504e470d0a1a0a", "hex"),
    chunkOf("IHDR", header),
    chunkOf("PLTE", Buffer.from(colors)),
    chunkOf("IDAT", deflateSync(rows, { level: 9 })),
    chunkOf("IEND", Buffer.alloc(0)),
  ]);
}

function chunkOf(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  checksum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, checksum]);
}

type FirstKeys = {
  readonly accountId: string;
  readonly adminToken: string;
  readonly ownerLink: string;
};

const home = await mkdtemp(join(tmpdir(), "gateway-pictures-"));
const gateway = await startChildGateway({ DATA_DIR: home });
const database = await startEmbedded(home, createLog("silent"));
const db = new Client({ connectionString: database.url });
await db.connect();
const browser = await startChromium();
try {
  const keys: FirstKeys = JSON.parse(await readFile(join(home, "first-keys.json"), "utf8"));
  await fillMonths(db, gateway.address, keys);
  const cookie = await signIn(keys);
  await mkdir(folder, { recursive: true });
  for (const colorScheme of ["light", "dark"] as const) {
    const options: BrowserContextOptions = { colorScheme, viewport, reducedMotion: "reduce" };
    const context = await browser.newContext(options);
    await context.addCookies([cookie]);
    const page = await context.newPage();
    await page.goto(`${cookie.url}/console/${keys.accountId}/usage?by=model`);
    await page.getByRole("table").first().waitFor();
    // Until nothing arrives any more: streams stay open, so the network is never idle.
    await page.waitForTimeout(1_000);
    const pixels = await readPixels(browser, await page.screenshot());
    const picture = encode(pixels, viewport.width, viewport.height);
    await writeFile(join(folder, `console-${colorScheme}.png`), picture);
    console.log(`console-${colorScheme}.png: ${picture.length} bytes`);
    await context.close();
  }
} finally {
  await browser.close();
  await db.end();
  await gateway.end("SIGTERM");
  await database.stop();
  await rm(home, { recursive: true });
}
