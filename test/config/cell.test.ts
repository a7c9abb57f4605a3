// What the payments of a cell may be made of.

import { HDKey } from "@scure/bip32";
import { expect, test } from "vitest";
import { chainKeysOf, checkCell, readCatalogFile } from "../../src/config/catalog.ts";
import { wholeFile } from "./messages/files.ts";

const master = HDKey.fromMasterSeed(Buffer.alloc(32, 7));
const accountKey = (account: number) => master.derive(`m/84'/0'/${account}'`).publicExtendedKey;

const settings = readCatalogFile(JSON.stringify(wholeFile)).payments;
if (!settings) throw new Error("the whole file has no payments");
const [processor] = settings.processors.filter(({ type }) => type === "btcpay");
const [onchain] = settings.processors.filter((one) => one.type === "onchain");

/** The settings with these processors alone. */
const withOnly = (...processors: typeof settings.processors) => ({ ...settings, processors });
const withKey = (account: number) => {
  if (onchain?.type !== "onchain" || !onchain.bitcoin) throw new Error("no bitcoin in the file");
  const { evm: _, ...rest } = onchain;
  return withOnly({ ...rest, bitcoin: { ...onchain.bitcoin, accountKey: accountKey(account) } });
};

test("a core takes the key for coins of its own cell alone", () => {
  expect(() => checkCell("07", withKey(7))).not.toThrow();
  expect(() => checkCell("07", withKey(0))).toThrow(
    "account_key must be of account 7' of its wallet, as CELL says",
  );
  // One installation alone may use any account of a wallet.
  expect(() => checkCell("00", withKey(5))).not.toThrow();
  expect(chainKeysOf(withKey(7))).not.toEqual(chainKeysOf(withKey(0)));
});

test("the name of a processor ends with its cell, so that webhooks find it", () => {
  if (!processor) throw new Error("no btcpay in the file");
  expect(() => checkCell("07", withOnly(processor))).toThrow(
    `the name of the processor ${processor.name} must end with -07, as CELL says`,
  );
  expect(() => checkCell("07", withOnly({ ...processor, name: "btcpay-07" }))).not.toThrow();
  expect(() => checkCell("00", withOnly(processor))).not.toThrow();
});
