// Admin tokens of each scope on every method of the real services, over both listeners: made from
// the protos, so that a new method is covered.

import { type DescMethod, getOption } from "@bufbuild/protobuf";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TransferKind } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Reason } from "../../gen/gateway/common/v1/error_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { callers } from "../../gen/gateway/common/v1/options_pb.ts";
import { AdminScope, AdminScopeSchema } from "../../gen/gateway/common/v1/roles_pb.ts";
import { actorText, toActor } from "../../src/base/actors.ts";
import { reasonName } from "../../src/base/reasons.ts";
import type { Core } from "../../src/contract/contract.ts";
import { apiErrorOf, callAll, coreOver, methods } from "../support/bindings.ts";
import { outcomeOf, pathOf, wrongCells } from "../support/contract-cases.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { leastRequest } from "../support/samples/messages.ts";

const { READ, KEYS, MONEY, ALL } = AdminScope;
const scopes = [READ, KEYS, MONEY, ALL];
const nameOf = (scope: AdminScope) => AdminScopeSchema.value[scope]?.localName.toLowerCase() ?? "";

for (const split of [false, true]) {
  describe(split ? "a facade and a core" : "one process", () => {
    let gateway: TestGateway;
    let overHttp: Core;
    const secrets = new Map<AdminScope, string>();
    beforeAll(async () => {
      gateway = await startTestGateway({ split });
      const { core, call } = gateway.admin;
      for (const scope of scopes) {
        const token = await core.people.createAdminToken({ name: nameOf(scope), scope }, call);
        secrets.set(scope, token.secret);
      }
      const transport = createConnectTransport({ baseUrl: gateway.address, httpVersion: "1.1" });
      overHttp = coreOver(transport);
    });
    afterAll(() => gateway.stop());

    const as = (scope: AdminScope) => ({
      headers: { authorization: `Bearer ${secrets.get(scope)}` },
    });

    test.for(["gRPC", "HTTP"] as const)(
      "each method admits the tokens of its scope over %s, and no other",
      async (listener) => {
        const core = listener === "gRPC" ? gateway.admin.core : overHttp;
        const cells = methods.flatMap((desc) =>
          scopes.map((scope) => ({
            name: `${pathOf(desc)} by a token that may ${nameOf(scope)}`,
            expected: mayCall(desc, scope) ? "admitted" : "not_permitted",
            async outcome() {
              const reason = await outcomeOf(
                callAll(core, desc, leastRequest(desc.input), as(scope)),
              );
              return /^not_permitted|_key$/.test(reason) ? reason : "admitted";
            },
          })),
        );
        expect(await wrongCells(cells, 1)).toEqual([]);
      },
    );

    test("transfers, keys and audit events name the token", async () => {
      const { core, call } = gateway.admin;
      const { accountId } = gateway;
      const bonus = {
        accountId,
        family: Family.V1,
        kind: TransferKind.BONUS,
        amountMicrocredits: 5n,
        idempotencyKey: "of the token",
      };
      const { transfer } = await overHttp.billing.createTransfer(bonus, as(MONEY));
      expect(actorText(transfer?.createdBy)).toBe("token:money");
      const { key } = await core.keys.createKey(
        { accountId, family: Family.V1, settings: { name: "k" } },
        as(KEYS),
      );
      expect(actorText(key?.createdBy)).toBe("token:keys");
      const { events } = await core.people.listAuditEvents({ accountId }, call);
      const acts = events.map(
        ({ method, actor, reason }) =>
          `${actorText(actor)} ${method} ${reasonName(reason) || "ok"}`,
      );
      expect(acts).toContain("token:money CreateTransfer ok");
      expect(acts).toContain("token:keys CreateKey ok");
      const { transfer: other } = await core.billing.createTransfer(
        { ...bonus, idempotencyKey: "of the environment's" },
        call,
      );
      expect(actorText(other?.createdBy)).toBe("token:ADMIN_TOKEN");
    });

    test("a token of lesser scope changes nothing, and its attempt is recorded", async () => {
      const { core, call } = gateway.admin;
      const { accountId } = gateway;
      const before = await core.billing.getPools({ accountId }, call);
      const transfer = {
        accountId,
        family: Family.V1,
        kind: TransferKind.BONUS,
        amountMicrocredits: 5n,
        idempotencyKey: "of a lesser one",
      };
      for (const scope of [READ, KEYS]) {
        const error = await core.billing.createTransfer(transfer, as(scope)).catch(apiErrorOf);
        expect(error).toMatchObject({ reason: "not_permitted" });
      }
      expect(await core.billing.getPools({ accountId }, call)).toEqual(before);
      const { events } = await core.people.listAuditEvents(
        { allAccounts: true, actor: toActor("token:read"), method: "CreateTransfer" },
        call,
      );
      expect(events[0]).toMatchObject({ reason: Reason.NOT_PERMITTED });
    });

    test("a token pays for no request, and is no key of the REST paths", async () => {
      const answer = await fetch(`${gateway.address}/v1/messages`, {
        method: "POST",
        headers: {
          "x-api-key": secrets.get(ALL) ?? "",
          "anthropic-version": "2023-06-01",
          "content-type": "application/json",
        },
        body: JSON.stringify({
          model: "haiku",
          max_tokens: 5,
          messages: [{ role: "user", content: "Hello" }],
        }),
      });
      expect(answer.status).toBe(403);
    });
  });
}

/** By the rule: every scope includes READ, and ALL includes every other one. */
function mayCall(desc: DescMethod, scope: AdminScope): boolean {
  const { admin, anyone } = getOption(desc, callers);
  if (anyone) return true;
  return admin !== AdminScope.UNSPECIFIED && (scope === ALL || admin === READ || admin === scope);
}
