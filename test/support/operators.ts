// People who sign in to a whole gateway with passkeys, and are made operators there.

import type { CallOptions } from "@connectrpc/connect";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { Authenticator } from "./authenticator.ts";
import type { TestGateway } from "./gateway.ts";

export type SignedIn = {
  readonly personId: string;
  readonly device: Authenticator;
  call: CallOptions;
};

/** `ageLinks` makes all links older, since an account can make few a day. */
export function createOperators(gateway: TestGateway, ageLinks: () => Promise<unknown>) {
  const { people } = gateway.admin.core;
  let owner: SignedIn | undefined;
  const callOf = (token: string | undefined): CallOptions => ({
    headers: { authorization: `Session ${token}` },
  });

  async function redeem(link: string, login: string): Promise<SignedIn> {
    const { origin, hash } = new URL(link);
    const token = hash.slice(1);
    const device = new Authenticator(origin);
    const { passkeyOptionsJson } = await people.beginPasskey({ linkToken: token, login });
    const passkeyAnswerJson = device.register(passkeyOptionsJson);
    const { grant, person } = await people.redeemLink({ token, login, passkeyAnswerJson });
    return { personId: person?.personId ?? "", device, call: callOf(grant?.token) };
  }

  async function signIn(person: SignedIn): Promise<void> {
    const { passkeyOptionsJson } = await people.beginSignIn({});
    const answerJson = person.device.sign(passkeyOptionsJson);
    const { grant } = await people.signInWithPasskey({ answerJson });
    person.call = callOf(grant?.token);
  }

  /** A viewer of the first account. */
  async function newPerson(login: string): Promise<SignedIn> {
    if (!owner) throw new Error("the owner has not signed in");
    await ageLinks();
    const invitation = { accountId: gateway.accountId, role: AccountRole.VIEWER };
    return redeem((await people.createInvitation(invitation, owner.call)).link, login);
  }

  return {
    signIn,
    newPerson,
    /** The first operator, who owns the first account. Call it first. */
    async newOwner(login: string): Promise<SignedIn> {
      owner = await redeem(gateway.ownerLink, login);
      return owner;
    },
    async newOperator(
      login: string,
      operator: OperatorRole = OperatorRole.ADMIN,
    ): Promise<SignedIn> {
      const person = await newPerson(login);
      await people.updatePerson(
        {
          personId: person.personId,
          settings: { operatorRole: operator },
          updateMask: { paths: ["operator_role"] },
        },
        owner?.call,
      );
      await signIn(person);
      return person;
    },
  };
}
