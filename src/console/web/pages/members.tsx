import { equals } from "@bufbuild/protobuf";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  type Budget,
  BudgetLimitsSchema,
  BudgetWindow_Name,
} from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { KeyAction } from "../../../../gen/gateway/common/v1/key_action_pb.ts";
import { AccountRole } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import {
  type Invitation,
  MailState,
  type Member,
  MembersService,
} from "../../../../gen/gateway/people/v1/members_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { credits, day } from "../format.ts";
import { roleName } from "../names.ts";
import { useActorNames } from "../parts/actors.ts";
import {
  BudgetCell,
  BudgetDialog,
  budgetsOf,
  hasLimit,
  ofPerson,
  setBudget,
  useBudgets,
} from "../parts/budget.tsx";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ChoiceField, Form, TextField } from "../parts/form.tsx";
import { LocalNote } from "../parts/local-note.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { RoleSelect } from "../parts/role-select.tsx";
import { WholeText } from "../parts/secret.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href } from "../router.ts";
import { account, can, refreshSession, session } from "../session.ts";
import { words } from "../words.ts";

const { listInvitations, listMembers } = MembersService.method;

const roleOf = {
  owner: AccountRole.OWNER,
  member: AccountRole.MEMBER,
  viewer: AccountRole.VIEWER,
} as const;
type Role = keyof typeof roleOf;
const roles = ["owner", "member", "viewer"] as const satisfies readonly Role[];

/** What no column has room for. */
const titleOf = ({ login, joinedAt }: Member) =>
  joinedAt ? words.members.joined(login, day(joinedAt)) : login;
const nameOf = ({ name, login }: Member) => name || login;

export function Members(): JSX.Element {
  const { accountId } = account.value;
  const [isInviting, setInviting] = useState(false);
  const request = can("owner") ? { accountId } : undefined;
  const members = useCall(listMembers, request);
  const { invitations = [] } = useCall(listInvitations, request).data ?? {};
  if (!request)
    return (
      <>
        <Head title={words.members.title} />
        <Card>
          <Empty title={words.members.ownersOnlyTitle}>{words.members.ownersOnly}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <Head
        title={words.members.title}
        tools={
          <Button kind="main" icon="plus" onClick={() => setInviting(true)}>
            {words.members.invite}
          </Button>
        }
      />
      <View
        call={members}
        skeleton={
          <Card flush>
            <Skeleton rows={4} />
          </Card>
        }
      >
        {(data) => (
          <>
            <MemberTable members={data.members} />
            {invitations.length > 0 && <Invitations invitations={invitations} />}
          </>
        )}
      </View>
      {isInviting && <InviteDialog onClose={() => setInviting(false)} />}
    </>
  );
}

function membersChanged(): void {
  invalidate(listMembers, listInvitations);
  refreshSession();
}

/** The limits of a member. */
export function MemberBudgetDialog(props: {
  readonly personId: string;
  readonly name: string;
  /** Of all pools. */
  readonly budgets: readonly Budget[];
  readonly onClose: () => void;
}): JSX.Element {
  const { personId, name, budgets, onClose } = props;
  const limits = budgets.find(hasLimit)?.limits;
  // A pool without a budget has no limit.
  const differ =
    limits !== undefined &&
    (budgets.length < 2 ||
      budgets.some((one) => !one.limits || !equals(BudgetLimitsSchema, one.limits, limits)));
  return (
    <BudgetDialog
      title={words.budget.ofMember(name)}
      hint={differ ? words.budget.ofPoolsThatDiffer : words.budget.ofMemberHint}
      limits={limits}
      save={(next) => setBudget(ofPerson(personId), next)}
      onClose={onClose}
    />
  );
}

/** What a member spent this month, and the budgets, one for each pool. */
function useSpending(): {
  spentBy: (member: Member) => bigint;
  budgetsBy: (member: Member) => readonly Budget[];
  /** False: limits that are there may be missing. */
  isKnown: boolean;
} {
  const { data } = useBudgets();
  return {
    spentBy: ({ personId }) =>
      budgetsOf(ofPerson(personId), data?.items)
        .flatMap(({ windows }) => windows)
        .filter(({ window }) => window === BudgetWindow_Name.MONTH)
        .reduce((sum, { spentMicrocredits }) => sum + (spentMicrocredits ?? 0n), 0n),
    budgetsBy: ({ personId }) => budgetsOf(ofPerson(personId), data?.items),
    isKnown: data?.isLast === true,
  };
}

function MemberTable({ members }: { members: readonly Member[] }): JSX.Element {
  const { accountId } = account.value;
  const [removing, setRemoving] = useState<Member>();
  const [limiting, setLimiting] = useState<Member>();
  const { spentBy, budgetsBy, isKnown } = useSpending();
  const own = session.value.person?.personId;
  const change = async (member: Member, role: Role) => {
    const { personId } = member;
    await call(MembersService.method.updateMember, { accountId, personId, role: roleOf[role] });
    membersChanged();
    const isDemoted = member.role === AccountRole.OWNER && role !== "owner";
    const said = isDemoted ? words.members.demoted : words.members.changed;
    notify(said(nameOf(member), words.shell.roles[role]));
  };
  const columns: readonly Column<Member>[] = [
    {
      name: "person",
      head: words.members.person,
      sortBy: nameOf,
      cell: (member) => (
        <span class="key-name" title={titleOf(member)}>
          <a class="name" href={href(`members/${member.personId}`)} dir="auto">
            {nameOf(member)}
          </a>
          {member.name && <span class="faint">{member.login}</span>}
          {member.personId === own && <Tag tone="accent">{words.members.you}</Tag>}
        </span>
      ),
    },
    {
      name: "budget",
      head: words.budget.column,
      cell: (member) => (
        <BudgetCell
          budgets={budgetsBy(member).filter(hasLimit)}
          onEdit={isKnown ? () => setLimiting(member) : undefined}
        />
      ),
    },
    {
      name: "spent",
      head: words.budget.spent,
      sortBy: (member) => Number(spentBy(member)),
      cell: (member) => credits(spentBy(member)),
    },
    {
      name: "role",
      head: words.members.role,
      sortBy: ({ role }) => role,
      cell: (member) => <MemberRole member={member} onChange={(role) => change(member, role)} />,
    },
    {
      name: "seen",
      head: words.members.lastSeen,
      sortBy: ({ lastSeenAt }) => momentOf(lastSeenAt),
      cell: (one) => <Time at={one.lastSeenAt} />,
    },
    {
      name: "actions",
      head: <span class="visually-hidden">{words.members.actions}</span>,
      end: true,
      cell: (member) => (
        <Button kind="quiet" onClick={() => setRemoving(member)}>
          {member.personId === own ? words.members.leave : words.members.remove}
        </Button>
      ),
    },
  ];
  return (
    <Card flush>
      <div class="dense">
        <Table
          caption={words.members.caption}
          columns={columns}
          rows={members}
          keyOf={({ personId }) => personId}
        />
      </div>
      {limiting && (
        <MemberBudgetDialog
          personId={limiting.personId}
          name={nameOf(limiting)}
          budgets={budgetsBy(limiting)}
          onClose={() => setLimiting(undefined)}
        />
      )}
      {removing && (
        <RemoveMemberDialog
          personId={removing.personId}
          name={nameOf(removing)}
          onClose={() => setRemoving(undefined)}
        />
      )}
    </Card>
  );
}

type MemberRoleProps = { member: Member; onChange: (role: Role) => Promise<void> };

function MemberRole({ member, onChange }: MemberRoleProps): JSX.Element {
  return (
    <RoleSelect
      label={words.members.roleOf(nameOf(member))}
      role={roleName(member.role)}
      roles={roles}
      texts={words.members.roles}
      onChange={onChange}
    />
  );
}

function Invitations({ invitations }: { invitations: readonly Invitation[] }): JSX.Element {
  const { accountId } = account.value;
  const nameOfActor = useActorNames();
  const withdraw = async ({ invitationId }: Invitation) => {
    await call(MembersService.method.revokeInvitation, { accountId, invitationId });
    membersChanged();
    notify(words.members.withdrawn);
  };
  const columns: readonly Column<Invitation>[] = [
    {
      name: "invited",
      head: words.members.invited,
      sortBy: ({ email, login }) => email || login,
      cell: ({ email, login }) => (
        <span class="key-name" title={email || login}>
          <span class="name">{email || login || words.members.anybody}</span>
        </span>
      ),
    },
    {
      name: "role",
      head: words.members.role,
      cell: ({ role }) => words.shell.roles[roleName(role)],
    },
    { name: "mail", head: words.members.sent, cell: (one) => <MailTag invitation={one} /> },
    {
      name: "ends",
      head: words.members.ends,
      sortBy: ({ expiresAt: endsAt }) => momentOf(endsAt),
      cell: ({ expiresAt: endsAt }) => <Time at={endsAt} as="day" />,
    },
    { name: "by", head: words.members.by, cell: ({ createdBy }) => nameOfActor(createdBy) },
    {
      name: "actions",
      head: <span class="visually-hidden">{words.members.actions}</span>,
      end: true,
      cell: (one) => (
        <Button kind="quiet" onClick={() => withdraw(one)}>
          {words.members.revoke}
        </Button>
      ),
    },
  ];
  return (
    <Card flush title={words.members.invitations}>
      <Table
        caption={words.members.invitationsCaption}
        columns={columns}
        rows={invitations}
        keyOf={({ invitationId }) => invitationId}
      />
    </Card>
  );
}

function MailTag({ invitation }: { invitation: Invitation }): JSX.Element {
  const { mailState: mail, mailProblem } = invitation;
  if (mail === MailState.WAITING)
    return (
      <span title={mailProblem}>
        <Tag tone={mailProblem ? "warn" : "accent"}>{words.members.mailWaiting}</Tag>
      </span>
    );
  if (mail === MailState.SENT) return <Tag tone="good">{words.members.mailSent}</Tag>;
  if (mail === MailState.FAILED)
    return (
      <span title={mailProblem}>
        <Tag tone="bad">{words.members.mailFailed}</Tag>
      </span>
    );
  return <Tag>{words.members.linkShown}</Tag>;
}

function InviteDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const { accountId } = account.value;
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [made, setMade] = useState<{ readonly link: string }>();
  const send = async () => {
    const { link } = await call(MembersService.method.createInvitation, {
      accountId,
      role: roleOf[role],
      email: email.trim(),
    });
    membersChanged();
    setMade({ link });
  };
  const done = (
    <div class="buttons">
      <Button kind="main" onClick={onClose}>
        {words.members.done}
      </Button>
    </div>
  );
  if (made?.link === "")
    return (
      <Dialog title={words.members.mailedTitle} onClose={onClose}>
        <p>{words.members.mailedLead(email.trim())}</p>
        {done}
      </Dialog>
    );
  if (made)
    return (
      <Dialog title={words.members.linkTitle} onClose={onClose} wide>
        <p>{words.members.linkLead}</p>
        <LocalNote link={made.link} />
        <WholeText label={words.members.link} text={made.link} />
        {done}
      </Dialog>
    );
  return (
    <Dialog title={words.members.inviteTitle} onClose={onClose}>
      <p class="muted">{words.members.inviteLead}</p>
      <Form
        submit={words.members.inviteButton}
        fields={["email", "role"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="email"
          type="email"
          label={words.members.email}
          hint={words.members.emailHint}
          value={email}
          onInput={setEmail}
          isFirst
        />
        <ChoiceField
          name="role"
          label={words.members.role}
          value={role}
          onInput={setRole}
          options={roles.toReversed().map((value) => ({
            value,
            label: words.members.roles[value],
            hint: words.members.roles[`${value}Hint`],
          }))}
        />
      </Form>
    </Dialog>
  );
}

type RemoveProps = { personId: string; name: string; onClose: () => void };

/** Removes somebody from the account, or the person itself. */
export function RemoveMemberDialog({ personId, name, onClose }: RemoveProps): JSX.Element {
  const { accountId, name: accountName } = account.value;
  const isSelf = personId === session.value.person?.personId;
  const [keys, setKeys] = useState<"keep" | "revoke">("keep");
  const send = async () => {
    await call(MembersService.method.removeMember, {
      accountId,
      personId,
      keys: keys === "keep" ? KeyAction.KEEP : KeyAction.REVOKE,
    });
    // Whatever of the account is in memory goes.
    if (isSelf) return location.assign("/console/");
    membersChanged();
    notify(words.members.removed(name));
    onClose();
  };
  const { members } = words;
  return (
    <Dialog
      title={isSelf ? members.leaveTitle(accountName) : members.removeTitle(name)}
      onClose={onClose}
    >
      <p>{isSelf ? members.leaveLead : members.removeLead}</p>
      <Form
        kind="danger"
        submit={isSelf ? members.leaveButton : members.removeButton(name)}
        fields={["keys"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <ChoiceField
          name="keys"
          label={isSelf ? members.ownKeys : members.keys}
          value={keys}
          onInput={setKeys}
          options={[
            {
              value: "keep",
              label: members.keep,
              hint: isSelf ? members.keepOwnHint : members.keepHint,
            },
            { value: "revoke", label: members.revokeKeys, hint: members.revokeKeysHint },
          ]}
        />
      </Form>
    </Dialog>
  );
}
