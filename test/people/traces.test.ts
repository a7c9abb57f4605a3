// What operators do with their sessions leaves an event, and what customers do does not.

import { expect, test } from "vitest";
import { AccountRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { toActor } from "../../src/base/actors.ts";
import { reasonName } from "../../src/base/reasons.ts";
import { firstOwner, join, signIn, startTestPeople } from "../support/people.ts";

test("sign-ins, confirmations and sign-outs of operators are events", async () => {
  await using stack = new AsyncDisposableStack();
  const people = stack.adopt(await startTestPeople(), (one) => one.stop());
  const node = people.node();
  const owner = await firstOwner(node);
  const password = "correct horse battery staple";
  await node.as(owner.token).setPassword({ password });
  const customer = await join(node, owner, "acc_a", AccountRole.VIEWER, "customer");
  for (const one of [owner, customer]) {
    const { token, device } = await signIn(node, one);
    const client = node.as(token);
    const { passkeyOptionsJson } = await client.beginSignIn({});
    await client.confirmIdentity({ passkeyAnswerJson: device.sign(passkeyOptionsJson) });
    await client.signOut({});
  }
  const { login } = owner.person;
  await node.as(undefined).signInWithPassword({ login, password });
  const actsOf = async (personId: string) => {
    const query = { allAccounts: true, actor: toActor(`person:${personId}`), pageSize: 1000 };
    const { events } = await node.as(owner.token).listAuditEvents(query);
    const sessions = /^(SignIn|SignOut|ConfirmIdentity)/;
    return events.flatMap(({ method, reason, address }) =>
      sessions.test(method) ? [`${method} ${reasonName(reason) || "ok"} ${address}`] : [],
    );
  };
  const from = "ok 192.0.2.1";
  expect(await actsOf(owner.person.personId)).toEqual([
    `SignInWithPassword ${from}`,
    `SignOut ${from}`,
    `ConfirmIdentity ${from}`,
    `SignInWithPasskey ${from}`,
  ]);
  expect(await actsOf(customer.person.personId)).toEqual([]);
});
