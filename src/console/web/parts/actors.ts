// Who did something: `person:<id>`, `token:<name>`, or a part of the gateway.

import { type Member, PeopleService } from "../../../../gen/gateway/people/v1/people_pb.ts";
import { useCall } from "../api.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";

/** Names actors. Only owners know the other members by name. */
export function useActorNames(): (actor: string) => string {
  const request = can("owner") ? { accountId: account.value.accountId } : undefined;
  const { data } = useCall(PeopleService.method.listMembers, request);
  const own = session.value.person?.personId;
  return (actor) => nameOf(actor, own, data?.members);
}

function nameOf(
  actor: string,
  own: string | undefined,
  members: readonly Member[] | undefined,
): string {
  const [kind = "", id = ""] = actor.split(/:(.*)/s);
  if (kind === "token") return words.keys.program(id);
  if (kind !== "person") return actor === "" ? words.key.owners : words.keys.gateway;
  if (id === own) return words.keys.you;
  if (!members) return words.keys.somebody;
  const member = members.find(({ personId }) => personId === id);
  return member ? member.name || member.login : words.keys.former;
}
