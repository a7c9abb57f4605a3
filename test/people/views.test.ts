// Saved views: who keeps which, what an address may be, and what is left when somebody leaves.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { errorOf } from "../support/keys.ts";
import {
  firstOwner,
  join,
  type PeopleNode,
  type SignedIn,
  signIn,
  startTestPeople,
  type TestPeople,
} from "../support/people.ts";
import { query } from "../support/query.ts";

const { VIEWER, MEMBER, OWNER } = AccountRole;
const accountId = "acc_a";

let people: TestPeople;
let node: PeopleNode;
let owner: SignedIn;
let viewer: SignedIn;
beforeAll(async () => {
  people = await startTestPeople();
  node = people.node();
  owner = await firstOwner(node);
  viewer = await join(node, owner, accountId, VIEWER, "viewer");
});
afterAll(() => people.stop());

const as = ({ token }: SignedIn) => node.as(token);

async function namesOf(person: SignedIn): Promise<string[]> {
  const { views } = await as(person).listViews({ accountId, pageSize: 1_000 });
  return views.map(({ name, ofAccount }) => (ofAccount ? `account: ${name}` : name));
}

const save = (
  person: SignedIn,
  name: string,
  more: { address?: string; ofAccount?: boolean } = {},
) => as(person).saveView({ accountId, name, address: "usage", ...more });

describe("who keeps what", () => {
  test("everybody has own views, and sees those of the account", async () => {
    await save(viewer, "mine", { address: "usage?period=7d&by=model" });
    await save(owner, "mine", { address: "requests?outcome=failed" });
    await save(owner, "ours", { address: "usage?by=key", ofAccount: true });
    expect(await namesOf(viewer)).toEqual(["account: ours", "mine"]);
    const { views } = await as(viewer).listViews({ accountId });
    expect(views.map(({ address }) => address)).toEqual([
      "usage?by=key",
      "usage?period=7d&by=model",
    ]);
    expect(views.every(({ savedAt }) => savedAt !== undefined)).toBe(true);
    expect((await as(owner).listViews({ accountId })).views.map(({ address }) => address)).toEqual([
      "usage?by=key",
      "requests?outcome=failed",
    ]);
  });

  test("those of the account are saved and deleted by owners alone", async () => {
    const member = await join(node, owner, accountId, MEMBER, "member");
    const { view } = await save(owner, "kept", { ofAccount: true });
    const viewId = view?.viewId ?? "";
    for (const person of [viewer, member]) {
      expect(await errorOf(save(person, "of me", { ofAccount: true }))).toBe("not_permitted");
      expect(await errorOf(as(person).deleteView({ accountId, viewId }))).toBe("not_permitted");
    }
    const second = await join(node, owner, accountId, OWNER, "second-owner");
    await as(second).deleteView({ accountId, viewId });
    expect(await errorOf(as(second).deleteView({ accountId, viewId }))).toBe("not_found view_id");
  });

  test("a view of somebody else looks as if it did not exist", async () => {
    const { view } = await save(viewer, "secret");
    const viewId = view?.viewId ?? "";
    expect(await errorOf(as(owner).deleteView({ accountId, viewId }))).toBe("not_found view_id");
    await as(viewer).deleteView({ accountId, viewId });
    expect(await namesOf(viewer)).not.toContain("secret");
  });

  test("a view of the same name takes the place of the first, and keeps its id", async () => {
    const first = await save(viewer, "again", { address: "usage?by=key" });
    const second = await save(viewer, "again", { address: "usage?by=tag" });
    expect(second.view).toMatchObject({ viewId: first.view?.viewId, address: "usage?by=tag" });
    expect((await namesOf(viewer)).filter((name) => name === "again")).toHaveLength(1);
  });

  test("operators see those of the account, and keep none of their own without a membership", async () => {
    const guest = await join(node, owner, "acc_b", OWNER, "of-another-account");
    expect(await errorOf(as(guest).listViews({ accountId }))).toBe("not_found account_id");
    expect(await errorOf(save(guest, "mine"))).toBe("not_found account_id");
    const { personId } = guest.person;
    await as(owner).updatePerson({
      personId,
      settings: { operatorRole: OperatorRole.SUPPORT },
      updateMask: { paths: ["operator_role"] },
    });
    const support = await signIn(node, guest);
    expect(await namesOf(support)).toEqual(["account: ours"]);
    expect(await errorOf(save(support, "mine"))).toBe("not_found account_id");
    await as(owner).updatePerson({
      personId,
      settings: { operatorRole: OperatorRole.ADMIN },
      updateMask: { paths: ["operator_role"] },
    });
    const admin = await signIn(node, guest);
    expect(await errorOf(save(admin, "mine"))).toBe("not_permitted");
    const { view } = await save(admin, "of operators", { ofAccount: true });
    await as(admin).deleteView({ accountId, viewId: view?.viewId ?? "" });
  });

  test("who leaves an account neither reads nor uses its views, and has lost the own ones", async () => {
    for (const leave of ["is removed", "leaves", "deletes himself"]) {
      const login = `goes-${leave.replaceAll(" ", "-")}`;
      const gone = await join(node, owner, accountId, VIEWER, login);
      const { personId } = gone.person;
      const { view } = await save(gone, "to be lost");
      if (leave === "deletes himself") await as(gone).deletePerson({ personId });
      else await as(leave === "leaves" ? gone : owner).removeMember({ accountId, personId });
      const expected = leave === "deletes himself" ? "invalid_session" : "not_found account_id";
      expect(await errorOf(as(gone).listViews({ accountId }))).toBe(expected);
      expect(await errorOf(save(gone, "mine"))).toBe(expected);
      const viewId = view?.viewId ?? "";
      expect(await errorOf(as(gone).deleteView({ accountId, viewId }))).toBe(expected);
      const find = { name: "test/find-view", text: "select from saved_views where view_id = $1" };
      expect(await query(people.database, find, [viewId])).toEqual([]);
    }
    expect(await namesOf(viewer)).toContain("account: ours");
  });

  test("a person keeps 50 in an account, and so does the account", async () => {
    const full = await join(node, owner, accountId, VIEWER, "full");
    const all = Array.from({ length: 60 }, (_, index) => save(full, `view ${index}`));
    const outcomes = await Promise.all(all.map(errorOf));
    expect(outcomes.filter((one) => one === "no error")).toHaveLength(50);
    expect(new Set(outcomes)).toEqual(new Set(["no error", "limit_reached"]));
    // One of them is replaced, and one more comes after one is deleted.
    const { views } = await as(full).listViews({ accountId });
    const own = views.filter(({ ofAccount }) => !ofAccount);
    expect(await errorOf(save(full, own[0]?.name ?? "", { address: "requests" }))).toBe("no error");
    await as(full).deleteView({ accountId, viewId: own[1]?.viewId ?? "" });
    expect(await errorOf(save(full, "one more"))).toBe("no error");
    // That of another person and of the account count for themselves.
    expect(await errorOf(save(viewer, "elsewhere"))).toBe("no error");
    const ofAccount = Array.from({ length: 52 }, (_, index) =>
      save(owner, `shared ${index}`, { ofAccount: true }),
    );
    const shared = await Promise.all(ofAccount.map(errorOf));
    expect(shared.filter((one) => one === "limit_reached")).toHaveLength(52 - 49);
  });
});

describe("what is kept", () => {
  test.each([
    ["Latin", "Aufwand je Modell und Woche, für die Besprechung am Montag — "],
    ["Arabic", "الإنفاق حسب النموذج والأسبوع لاجتماع يوم الاثنين في المكتب ا"],
    ["Japanese", "週ごとのモデル別利用額を月曜日の会議のために保存した表示設定です"],
  ])("names in %s of 60 characters are kept as they are", async (_, text) => {
    const name = [...text.trim().repeat(3)].slice(0, 60).join("").trim().padEnd(60, "x");
    expect([...name]).toHaveLength(60);
    await save(owner, name);
    expect(await namesOf(owner)).toContain(name);
  });

  test.each([
    ["empty", ""],
    ["blank", "   "],
    ["of 201 characters", "x".repeat(201)],
    ["that turns the line", "a\u202Eb"],
    ["that nobody sees", "\u200B"],
    ["with a line end", "a\nb"],
    ["with a blank at its end", "a "],
  ])("a name %s is refused", async (_, name) => {
    expect(await errorOf(save(viewer, name))).toBe("invalid_request name");
  });

  test.each([
    "usage",
    "usage?period=7d",
    "requests?key=key_1&from=2026-11-01&to=2026-11-02T05",
    "usage?by=tag&tag=team%3Da&hide=%E2%82%AC",
    "usage?at=2026-11-22T14:00:00.000Z",
  ])("the address %s is kept", async (address) => {
    const { view } = await save(owner, "address", { address });
    expect(view?.address).toBe(address);
  });

  test.each([
    ["empty", ""],
    ["absolute", "/console/acc_b/usage"],
    ["of another origin", "https://evil.example.com/usage"],
    ["of another origin without a scheme", "//evil.example.com/usage"],
    ["with a backslash", "\\\\evil.example.com"],
    ["a script", "javascript:alert(1)"],
    ["a script behind a page", "usage:javascript"],
    ["data", "data:text/html,usage"],
    ["of an unknown page", "members?x=1"],
    ["that goes up", "usage/../../acc_b/usage"],
    ["that goes up, encoded", "%2e%2e/usage"],
    ["with a fragment", "usage#x"],
    ["with markup", "usage?tag=<script>"],
    ["with a blank", "usage?tag=a b"],
    ["with a line end", "usage\n?x"],
    ["with a line end behind it", "usage\n"],
    ["with a broken escape", "usage?tag=%E2%82"],
    ["with a percent sign alone", "usage?tag=%"],
    ["of 10 KB", `usage?tag=${"x".repeat(10_240)}`],
    ["of 2,001 characters", `usage?tag=${"x".repeat(1_991)}`],
  ])("an address %s is refused", async (_, address) => {
    expect(await errorOf(save(owner, "refused", { address }))).toBe("invalid_request address");
    expect(await namesOf(owner)).not.toContain("refused");
  });
});
