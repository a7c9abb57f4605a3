// The list of coins: one that is added to it is offered, quoted, received and credited by all.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { type Coin, coins, defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { errorOf } from "../support/billing.ts";
import { type Nowpayments, startNowpayments } from "../support/nowpayments.ts";
import { evmAccountKey, startRates } from "../support/onchain.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";

/** A token that is no dollar. */
const euro: Coin = {
  asset: "EURC",
  isStablecoin: false,
  isToken: true,
  networks: [
    { network: "stellar", decimals: 7 },
    { network: "base", decimals: 6, btcpay: "EURC-BASE" },
    { network: "solana", decimals: 6, nowpayments: "eurcsol" },
    { network: "wide", decimals: 18 },
  ],
  depth: "chain",
  simulatedUsd: 2,
};

let now: Nowpayments;
let rates: Awaited<ReturnType<typeof startRates>>;
let world: PaymentsNodes;
beforeAll(async () => {
  coins.push(euro);
  now = await startNowpayments();
  now.least.eurcsol = 4;
  rates = await startRates({ EURC: 1.25 });
  const env = { ...now.env, BTCPAY_API_KEY: "key-of-tests" };
  world = await startPaymentsNodes({ settings: read(ratesOf()), env });
});
afterAll(async () => {
  await world?.stop();
  await rates?.stop();
  await now?.stop();
  coins.pop();
});

const ratesOf = () =>
  `rates: { EURC: [ { url: "${rates.url}/EURC/a", path: data.amount },` +
  ` { url: "${rates.url.replace("127.0.0.1", "localhost")}/EURC/b", path: price.0 } ] }`;

function read(rest: string) {
  const { payments } = readCatalogFile(`${defaultCatalog()}
payments:
  processors:
    - { name: simulated, type: simulated }
    - name: btcpay
      type: btcpay
      url: https://pay.example.com
      store: abc
      api_key: BTCPAY_API_KEY
      methods: [ { id: EURC-BASE } ]
    - name: nowpayments
      type: nowpayments
      api_key: NOWPAYMENTS_API_KEY
      url: ${now.settings.url}
      coins: [ eurcsol ]
    - name: onchain
      type: onchain
      evm:
        account_key: ${evmAccountKey}
        chains:
          - name: wide
            chain_id: 7
            rpc: NODE
            tokens: [ { asset: EURC, contract: "0x${"1".repeat(40)}" } ]
  ${rest}
`);
  if (!payments) throw new Error("the file has no payments");
  return payments;
}

test("settings know it, and need a rate of it, since it is no dollar", () => {
  const [, btcpay, nowpayments, onchain] = read(ratesOf()).processors;
  expect(btcpay).toMatchObject({
    methods: [{ id: "EURC-BASE", asset: "EURC", network: "base", decimals: 6 }],
  });
  expect(nowpayments).toMatchObject({ coins: ["eurcsol"] });
  expect(onchain).toMatchObject({
    evm: { chains: [{ tokens: [{ asset: "EURC", decimals: 18 }] }] },
  });
  expect(() => read("")).toThrow("payments.rates.EURC: is required");
});

test("every processor offers it on its network", async () => {
  const { methods } = await world.as(admin).listPaymentMethods({});
  const offered = methods.filter(({ asset }) => asset === "EURC");
  expect(offered.map(({ method, network }) => [method, network])).toEqual([
    ["simulated:eurc", "stellar"],
    ["btcpay:eurc-base", "base"],
    ["nowpayments:eurcsol", "solana"],
    ["onchain:eurc-wide", "wide"],
  ]);
});

test("a quote of a chain goes by the market, in the atoms of its network", async () => {
  const { order } = await world.as(admin).createOrder({
    accountId: await world.newAccount(),
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "onchain:eurc-wide",
    idempotencyKey: "wide",
  });
  expect(order).toMatchObject({ quotedCoins: "4", usdPerCoin: "1.25" });
});

test("what is pretended of it is credited by its rate", async () => {
  const accountId = await world.newAccount();
  const { order } = await world.as(admin).createOrder({
    accountId,
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "simulated:eurc",
    idempotencyKey: "simulated",
  });
  const { orderId = "", quotedCoins: quotedAmount } = order ?? {};
  expect(quotedAmount).toBe("2.5");
  await world.as(admin).simulateDeposit({
    orderId,
    event: { case: "deposit", value: { coins: "3", confirmations: 1 } },
  });
  await world.orderWhen(orderId, ({ state }) => state === OrderState.PAID);
  await world.until(async () =>
    expect(await world.posted(accountId)).toEqual([1_200_000_000n, 0n]),
  );
});

test("an account gets an address with its first order, or once it has paid", async () => {
  const address = async (accountId: string) => {
    const request = { accountId, family: Family.V1, network: "wide" };
    return (await world.as(admin).createDepositAddress(request)).address;
  };
  const given = async () => Number((await world.as(admin).listDepositAddresses({})).given);
  const before = await given();
  const stranger = await world.newAccount();
  expect((await errorOf(address(stranger))).reason).toBe("wrong_state");
  expect(await given()).toBe(before);
  await world.paidOrder(stranger);
  const own = await address(stranger);
  expect([await address(stranger), await given()]).toEqual([own, before + 1]);
  const listed = await world.as(admin).listDepositAddresses({ network: "wide", pageSize: 1000 });
  expect(listed).toMatchObject({ network: "wide", networks: ["wide"], gapLimit: 1_000 });
  expect(listed.addresses.at(-1)).toMatchObject({
    ...{ address: own, accountId: stranger, family: Family.V1 },
  });
  const first = await world.as(admin).listDepositAddresses({ pageSize: 1 });
  const second = { pageSize: 1, pageToken: first.nextPageToken };
  expect((await world.as(admin).listDepositAddresses(second)).addresses).toMatchObject([
    { address: own },
  ]);
});
