// A sealing that needs no key, to see what is sealed.

import type { Sealing } from "../../src/formats/packs.ts";

/** What `seal` returns is the base64 of the text, and opens for everybody. */
export const readableSealing: Sealing = {
  seal: (text) => Buffer.from(text).toString("base64"),
  open: (sealed) => ({ text: Buffer.from(sealed, "base64").toString() }),
  openOld: () => ({ why: "foreign" }),
};
