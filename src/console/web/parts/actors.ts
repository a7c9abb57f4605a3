// Who did something: the names of actors on the pages of customers.

import type { Actor } from "../../../../gen/gateway/common/v1/actor_pb.ts";
import { ManagementKeysService } from "../../../../gen/gateway/keys/v1/management_keys_pb.ts";
import { MembersService } from "../../../../gen/gateway/people/v1/members_pb.ts";
import type { MemberName } from "../../../../gen/gateway/people/v1/profile_pb.ts";
import { useCall } from "../api.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";

type NameActor = (actor: Pick<Actor, "kind"> | undefined) => string;

/**
 * Names actors. Only owners know the other members, and their programs, by name. `shown`: those
 * that are on the page.
 */
export function useActorNames(shown: readonly (Actor | undefined)[] = []): NameActor {
  const { accountId } = account.value;
  const { shownAccount, person } = session.value;
  const known = shownAccount?.accountId === accountId ? shownAccount.members : undefined;
  // The session was asked for another account, or the person is an operator.
  const isAsked = known === undefined && can("owner");
  const { data } = useCall(MembersService.method.listMembers, isAsked ? { accountId } : undefined);
  const asked = data?.members.map(({ personId, name, login }) => ({
    personId,
    name: name || login,
  }));
  const isManaged = can("owner") && shown.some((actor) => actor?.kind.case === "managementKeyId");
  const managers = useCall(
    ManagementKeysService.method.listManagementKeys,
    isManaged ? { accountId, pageSize: 1000 } : undefined,
  ).data?.managementKeys;
  const nameOfManager = (id: string) => {
    const found = managers?.find(({ managementKeyId }) => managementKeyId === id);
    return found ? words.keys.manager(found.name) : words.keys.aManager;
  };
  return (actor) =>
    actor?.kind.case === "managementKeyId"
      ? nameOfManager(actor.kind.value)
      : nameOf(actor, person?.personId, can("owner") ? (known ?? asked) : undefined);
}

function nameOf(
  actor: Pick<Actor, "kind"> | undefined,
  own: string | undefined,
  members: readonly Pick<MemberName, "personId" | "name">[] | undefined,
): string {
  const kind = actor?.kind;
  if (kind?.case === "adminTokenName") return words.keys.program(kind.value);
  if (kind?.case !== "personId") return actor ? words.keys.gateway : words.key.owners;
  const id = kind.value;
  if (id === own) return words.keys.you;
  if (!members) return words.keys.somebody;
  return members.find(({ personId }) => personId === id)?.name ?? words.keys.former;
}
