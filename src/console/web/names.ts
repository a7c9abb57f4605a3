// What enums of the services are called on the page.

import { Family } from "../../../gen/gateway/common/v1/family_pb.ts";
import { AccountRole } from "../../../gen/gateway/common/v1/roles_pb.ts";

/** `v1`, as in addresses and the names of keys. */
export function familyName(family: Family): "v1" | "v2" {
  return family === Family.V2 ? "v2" : "v1";
}

export type RoleName = "owner" | "member" | "viewer" | "none";

export function roleName(role: AccountRole): RoleName {
  switch (role) {
    case AccountRole.OWNER:
      return "owner";
    case AccountRole.MEMBER:
      return "member";
    case AccountRole.VIEWER:
      return "viewer";
    default:
      return "none";
  }
}
