// A gateway is killed while it posts an alert. Another one posts it again, with the same id, and
// the page shows it once.

import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { createServer } from "node:https";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createAuthority } from "../support/certificates.ts";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

async function call(gateway: ChildGateway, method: string, body: object): Promise<unknown> {
  const response = await fetch(`${gateway.address}/gateway.alerts.v1.AlertsService/${method}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: "Bearer the-admin-token-of-a-crash",
    },
    body: JSON.stringify(body),
  });
  return response.json();
}

test("an alert whose post dies with its process is posted by another, and listed once", async () => {
  const folder = dirname(stage.catalogPath);
  const [config, authorities] = [join(folder, "alerts.yaml"), join(folder, "authorities.pem")];
  const catalog = await readFile(stage.catalogPath, "utf8");
  await writeFile(config, `${catalog}\nalerts: { allow_hosts: [localhost] }\n`);
  const authority = createAuthority("the receivers");
  await writeFile(authorities, authority.certificate);
  const { certificate, privateKey } = authority.issue("receiver");
  const ids: unknown[] = [];
  let onPost: (request: IncomingMessage) => void = () => {};
  const receiver = createServer({ cert: certificate, key: privateKey }, (request, response) => {
    ids.push(request.headers["webhook-id"]);
    onPost(request);
    // The first one waits for an answer that its process does not live to see.
    if (ids.length > 1) response.writeHead(204).end();
  });
  receiver.listen(0, "127.0.0.1");
  await once(receiver, "listening");
  const address = receiver.address();
  const port = typeof address === "object" && address ? address.port : 0;
  const env = { CONFIG: config, NODE_EXTRA_CA_CERTS: authorities };
  const first = await stage.start(env);
  try {
    const { payer } = await stage.key(5_000_000n);
    const { accountId } = payer;
    await call(first, "UpdateAlertSettings", {
      accountId,
      settings: {
        belowMicrocredits: "100000000",
        rules: [
          {
            kind: "ALERT_KIND_CREDITS_LOW",
            channels: ["ALERT_CHANNEL_PAGE", "ALERT_CHANNEL_WEBHOOK"],
          },
        ],
        webhookUrl: `https://localhost:${port}/`,
      },
      updateMask: "belowMicrocredits,rules,webhookUrl",
    });
    const posted = new Promise<IncomingMessage>((resolve) => {
      onPost = resolve;
    });
    await stage.ledger.run("delete from leases where task = 'alerts'");
    await posted;
    await first.end("SIGKILL");
    // The lease of the dead process would end by itself, after two minutes.
    await stage.ledger.run("update alert_deliveries set next_at = now()");
    const second = await stage.start(env);
    await expect.poll(() => ids.length).toBe(2);
    const found = Object(await call(second, "ListAlerts", { accountId }));
    expect(found.alerts).toHaveLength(1);
    const [alert] = found.alerts;
    expect(ids).toEqual([alert.alertId, alert.alertId]);
    await expect
      .poll(
        async () => Object(await call(second, "ListAlerts", { accountId })).alerts[0].deliveries,
      )
      .toEqual([{ state: "DELIVERY_STATE_SENT" }]);
  } finally {
    receiver.closeAllConnections();
    receiver.close();
  }
});
