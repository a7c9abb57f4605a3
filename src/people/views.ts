// Saved views: addresses of the console with a name, of a member or of an account. An own one goes
// with the membership, by the foreign key of its row.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import {
  type DeleteViewRequest,
  DeleteViewResponseSchema,
  type ListViewsRequest,
  ListViewsResponseSchema,
  type SaveViewRequest,
  SaveViewResponseSchema,
  type View,
  ViewSchema,
  ViewsService,
} from "../../gen/gateway/people/v1/views_pb.ts";
import * as sql from "../../gen/sql/people.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { timeOrderedId } from "../base/ids.ts";
import { checkName } from "../base/names.ts";
import { readPage, wholeList } from "../base/paging.ts";
import type { AuthenticatedCall, Person } from "../contract/contract.ts";
import { checkStillAdmin, type Parts } from "./parts.ts";
import type { PeopleTables } from "./store.ts";

/** Of a person in an account, and of the account itself. */
const viewsMax = 50;
/** The pages that can be kept, each with its filters behind a `?`. */
const pages = ["usage", "requests"];

export async function listViews(
  { store }: Parts,
  request: ListViewsRequest,
  call: AuthenticatedCall,
) {
  const { accountId, caller } = call;
  const { personId } = personOf(caller);
  const found = await store.run(sql.findAccount, { accountId });
  if (!found) throw new ApiError("not_found", { field: "account_id", message: "No such account." });
  const rows = await store.run(sql.listViews, { accountId, personId });
  const list = wholeList(rows, ({ viewId }) => viewId);
  const page = await readPage(ViewsService.method.listViews, request, call, list);
  return create(ListViewsResponseSchema, {
    views: page.entries.map(toView),
    nextPageToken: page.nextPageToken,
  });
}

export async function saveView(
  { store }: Parts,
  { name, address, ofAccount }: SaveViewRequest,
  { accountId, caller }: AuthenticatedCall,
) {
  const person = personOf(caller);
  const view = { accountId, name: checkName("name", name), address: checkAddress(address) };
  const saved = await store.transaction(async (tables) => {
    await tables.findOpenAccount(accountId);
    await lockScope(tables, { accountId, person, ofAccount });
    const personId = ofAccount ? null : person.personId;
    const { views } = await tables.run(sql.countOtherViews, { accountId, personId, name });
    if (views >= viewsMax)
      throw new ApiError("limit_reached", {
        message: `At most ${viewsMax} views are kept: delete one.`,
        limit: { name: "views", limit: BigInt(viewsMax), used: BigInt(views) },
      });
    return tables.run(sql.putView, { ...view, viewId: timeOrderedId("view_"), personId });
  });
  return create(SaveViewResponseSchema, { view: toView(saved) });
}

export async function deleteView(
  { store }: Parts,
  { viewId }: DeleteViewRequest,
  { accountId, caller, note }: AuthenticatedCall,
) {
  const person = personOf(caller);
  await store.transaction(async (tables) => {
    const { personId } = person;
    const view = await tables.run(sql.findView, { accountId, viewId, personId });
    if (!view) throw noSuchView();
    await lockScope(tables, { accountId, person, ofAccount: view.personId === null });
    // Somebody else may have deleted it meanwhile.
    if ((await tables.run(sql.deleteView, { accountId, viewId })) === 0) throw noSuchView();
    note?.({ name: view.name });
  });
  return create(DeleteViewResponseSchema);
}

type Scope = {
  readonly accountId: string;
  readonly person: Person;
  /** False: the views of the person. */
  readonly ofAccount: boolean;
};

/**
 * Locks the members on whose behalf views change, so that these are counted one by one. Throws
 * `not_permitted` unless the person may change them at this moment.
 */
async function lockScope(tables: PeopleTables, { accountId, person, ofAccount }: Scope) {
  const { personId } = person;
  if (!ofAccount) {
    const own = await tables.run(sql.lockMember, { accountId, personId });
    if (own) return;
    const message = "Only members of an account keep views of their own in it.";
    throw new ApiError("not_permitted", { message });
  }
  const members = await tables.run(sql.lockMembers, { accountId });
  if (members.some((one) => one.personId === personId && one.role === "owner")) return;
  if (person.operator !== OperatorRole.ADMIN)
    throw new ApiError("not_permitted", { message: "Only owners keep the views of an account." });
  await checkStillAdmin(tables, person);
}

function personOf(caller: AuthenticatedCall["caller"]): Person {
  if (caller.kind !== "person") throw new ApiError("not_permitted");
  return caller;
}

function noSuchView(): ApiError {
  return new ApiError("not_found", { field: "view_id", message: "No such view." });
}

/**
 * The address of a page below that of an account. It begins with the name of a page, so that it is
 * relative, and nothing of it is another origin, a script, or a way out of the account.
 */
function checkAddress(address: string): string {
  const shown = `has to be ${pages.map((page) => `"${page}"`).join(" or ")}, with filters behind a ?`;
  // Printable ASCII, as URLs are written. No `#`, `\` or quotes.
  const [, page = "", query = ""] =
    /^([a-z]+)(?:\?([\w.~%&=+*!$'(),;:@/?-]*))?$/.exec(address) ?? [];
  if (!pages.includes(page)) throw invalidField("address", shown);
  try {
    decodeURIComponent(query);
  } catch {
    throw invalidField("address", "has a % that begins no character");
  }
  return address;
}

function toView({ viewId, personId, name, address, savedAt }: sql.PutViewRow): View {
  return create(ViewSchema, {
    ...{ viewId, name, address },
    ofAccount: personId === null,
    savedAt: timestampFromDate(savedAt),
  });
}
