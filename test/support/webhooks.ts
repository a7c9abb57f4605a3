// Webhooks of the simulated processor, signed or not.

import { createHmac } from "node:crypto";
import { type CatalogFile, readCatalogFile } from "../../src/config/catalog.ts";
import { defaultCatalogWithoutPauses } from "./catalog.ts";

export const hookSecret = "a-webhook-secret-of-tests";
export const hookEnv = { HOOK_SECRET: hookSecret };

/**
 * The built-in catalogue, with three processors: `signed` and `other` have the secret, `silent` has
 * none.
 */
export function catalogWithHooks(): CatalogFile {
  return readCatalogFile(`${defaultCatalogWithoutPauses()}
payments:
  seller: { name: Example Ltd, address: "1 Example Street", tax_id: EX123 }
  processors:
    - { name: signed, type: simulated, webhook_secret: HOOK_SECRET }
    - { name: other, type: simulated, webhook_secret: HOOK_SECRET }
    - { name: silent, type: simulated }
`);
}

/** The signature of a body. */
export function signature(body: string | Buffer, secret = hookSecret): string {
  return `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`;
}

export type HookOptions = {
  processor?: string;
  /** Undefined: none is sent. */
  signature?: string | undefined;
  headers?: Record<string, string>;
};

/** Sends a webhook. By default it is signed. */
export function sendHook(
  address: string,
  body: string | Buffer,
  options: HookOptions = {},
): Promise<Response> {
  const { processor = "signed", headers = {} } = options;
  const signed = "signature" in options ? options.signature : signature(body);
  return fetch(`${address}/payments/${processor}/webhook`, {
    method: "POST",
    body: typeof body === "string" ? body : new Uint8Array(body),
    headers: {
      "content-type": "application/json",
      ...(signed !== undefined && { "x-simulated-signature": signed }),
      ...headers,
    },
  });
}

/** The body of a webhook about an order. */
export function hookBody(orderId: string, deliveryId: string): string {
  return JSON.stringify({ delivery_id: deliveryId, order_id: orderId });
}
