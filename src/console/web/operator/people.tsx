// All people of the installation, and the credentials of the operator's programs.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import { KeyAction } from "../../../../gen/gateway/common/v1/key_action_pb.ts";
import { AdminScope, OperatorRole } from "../../../../gen/gateway/common/v1/roles_pb.ts";
import {
  type AdminToken,
  AdminTokensService,
} from "../../../../gen/gateway/people/v1/admin_tokens_pb.ts";
import {
  PeopleService,
  type PersonSettingsSchema,
  type UpdatePersonRequestSchema,
} from "../../../../gen/gateway/people/v1/people_pb.ts";
import type { Person } from "../../../../gen/gateway/people/v1/person_pb.ts";
import { call, invalidate, usePages } from "../api.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { textOf } from "../parts/enum-names.ts";
import { Filters, SearchFilter } from "../parts/filters.tsx";
import { ChoiceField, Form, TextField } from "../parts/form.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { RoleSelect } from "../parts/role-select.tsx";
import { WholeText } from "../parts/secret.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf } from "../parts/table.tsx";
import { Empty } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { isOperatorAdmin, session } from "../session.ts";
import { type Act, ActDialog } from "./act.tsx";
import { LookOnly, PagedTable, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 50;

const roleOf = {
  none: OperatorRole.UNSPECIFIED,
  support: OperatorRole.SUPPORT,
  admin: OperatorRole.ADMIN,
} as const;
type Role = keyof typeof roleOf;
const roles = ["none", "support", "admin"] as const satisfies readonly Role[];

const nameOf = ({ name, login }: Person) => name || login;

export function People(): JSX.Element {
  const [query, setQuery] = useQuery({ q: "" });
  const people = usePages(
    PeopleService.method.listPeople,
    { query: query.q.trim(), pageSize },
    (page) => page.people,
  );
  const [open, setOpen] = useState<Opened>();
  const close = () => setOpen(undefined);
  const { emptyTitle, empty, noMatchTitle, noMatch } = words.people;
  return (
    <>
      <Head title={words.people.title} />
      <LookOnly />
      <Filters>
        <SearchFilter
          label={words.people.search}
          value={query.q}
          onInput={(q) => setQuery({ q })}
        />
      </Filters>
      <Card flush>
        <PagedTable
          pages={people}
          greyRows={6}
          empty={
            query.q.trim() === "" ? (
              <Empty title={emptyTitle}>{empty}</Empty>
            ) : (
              <Empty title={noMatchTitle}>{noMatch}</Empty>
            )
          }
          caption={words.people.caption}
          columns={columnsOf(setOpen)}
          keyOf={({ personId }) => personId}
        />
      </Card>
      {open?.kind === "disable" && <DisableDialog person={open.person} onClose={close} />}
      {open?.kind === "link" && <LinkDialog person={open.person} onClose={close} />}
      <Tokens />
    </>
  );
}

/** The dialog that is open, and for whom. */
type Opened = { readonly kind: "disable" | "link"; readonly person: Person };

type PersonChange = MessageInitShape<typeof UpdatePersonRequestSchema>;

async function update(person: Person, change: PersonChange): Promise<void> {
  const { updatePerson } = PeopleService.method;
  const { approval } = await call(updatePerson, { ...change, personId: person.personId });
  peopleChanged();
  notify(approval ? words.people.waits : words.people.changed(nameOf(person)));
}

/** The request for one setting. */
const changeOf = (
  path: string,
  settings: MessageInitShape<typeof PersonSettingsSchema>,
): PersonChange => ({ settings, updateMask: { paths: [path] } });

function peopleChanged(): void {
  const { listPeople } = PeopleService.method;
  const { listAuditEvents } = AuditService.method;
  invalidate(listPeople, listAuditEvents);
}

function columnsOf(onOpen: (opened: Opened) => void): readonly Column<Person>[] {
  const { head } = words.people;
  return [
    {
      name: "person",
      head: head.person,
      sortBy: nameOf,
      cell: (person) => (
        <span class="key-name" title={person.login}>
          <bdi class="name">{nameOf(person)}</bdi>
          {person.name && <span class="faint">{person.login}</span>}
          {person.disabledAt && <Tag tone="bad">{words.people.disabled}</Tag>}
        </span>
      ),
    },
    {
      name: "operator",
      head: head.operator,
      cell: (person) =>
        isOperatorAdmin() ? (
          <RoleSelect
            label={words.people.roleOf(nameOf(person))}
            role={roleNameOf(person)}
            roles={roles}
            texts={words.people.roles}
            isFixed={person.personId === session.value.person?.personId}
            onChange={(role) =>
              update(person, changeOf("operator_role", { operatorRole: roleOf[role] }))
            }
          />
        ) : (
          words.people.roles[roleNameOf(person)]
        ),
    },
    {
      name: "seen",
      head: head.seen,
      sortBy: ({ lastSeenAt }) => momentOf(lastSeenAt),
      cell: ({ lastSeenAt }) => <Time at={lastSeenAt} />,
    },
    {
      name: "made",
      head: head.made,
      cell: ({ createdAt }) => <Time at={createdAt} as="day" />,
    },
    {
      name: "actions",
      head: head.actions,
      end: true,
      cell: (person) =>
        isOperatorAdmin() && (
          <span class="row">
            <Button kind="quiet" onClick={() => onOpen({ kind: "link", person })}>
              {words.people.link}
            </Button>
            {person.disabledAt ? (
              <Button kind="quiet" onClick={() => update(person, changeOf("disabled", {}))}>
                {words.people.enable}
              </Button>
            ) : (
              <Button kind="quiet" onClick={() => onOpen({ kind: "disable", person })}>
                {words.people.disable}
              </Button>
            )}
          </span>
        ),
    },
  ];
}

type PersonDialogProps = { readonly person: Person; readonly onClose: () => void };

function DisableDialog({ person, onClose }: PersonDialogProps): JSX.Element {
  const disable = async () => {
    await update(person, { ...changeOf("disabled", { disabled: true }), keys: KeyAction.PAUSE });
    onClose();
  };
  return (
    <Dialog title={words.people.disableTitle(nameOf(person))} onClose={onClose}>
      <p>{words.people.disableLead}</p>
      <Form kind="danger" submit={words.people.disable} onSubmit={disable} onCancel={onClose} />
    </Dialog>
  );
}

function roleNameOf({ operatorRole: operator }: Person): Role {
  return roles.find((name) => roleOf[name] === operator) ?? "none";
}

function LinkDialog({ person, onClose }: PersonDialogProps): JSX.Element {
  const [link, setLink] = useState<string>();
  const make = async (act: Act) => {
    const { personId } = person;
    const made = await call(PeopleService.method.createSignInLink, { personId, ...act });
    setLink(made.link);
    if (made.approval) notify(words.people.waits);
    peopleChanged();
  };
  const title = words.people.linkTitle(nameOf(person));
  if (link === undefined)
    return (
      <ActDialog
        title={title}
        kind="danger"
        submit={words.people.linkMake}
        onAct={make}
        onClose={onClose}
        // The link follows.
        onDone={() => undefined}
      >
        <p>{words.people.linkAsk}</p>
      </ActDialog>
    );
  return (
    <Dialog title={title} onClose={onClose} wide>
      <OnceShown
        lead={words.people.linkLead}
        label={words.people.linkLabel}
        text={link}
        done={words.people.done}
        onDone={onClose}
      />
    </Dialog>
  );
}

type OnceShownProps = {
  readonly lead: string;
  readonly label: string;
  readonly text: string;
  readonly done: string;
  readonly onDone: () => void;
};

/** A secret that no later call returns. It is gone with the dialog. */
export function OnceShown({ lead, label, text, done, onDone }: OnceShownProps): JSX.Element {
  return (
    <>
      <p>{lead}</p>
      <WholeText label={label} text={text} />
      <div class="buttons">
        <Button kind="main" onClick={onDone}>
          {done}
        </Button>
      </div>
    </>
  );
}

function Tokens(): JSX.Element {
  const [open, setOpen] = useState<"new" | AdminToken>();
  const nameOfActor = usePeopleNames();
  const tokens = usePages(
    AdminTokensService.method.listAdminTokens,
    { pageSize },
    (page) => page.tokens,
  );
  const { tokensHead: head, scopes } = words.people;
  return (
    <Card
      title={words.people.tokens}
      about={words.people.tokensAbout}
      tools={
        isOperatorAdmin() && (
          <Button icon="plus" onClick={() => setOpen("new")}>
            {words.people.newToken}
          </Button>
        )
      }
      flush
    >
      <PagedTable
        pages={tokens}
        greyRows={2}
        empty={words.none}
        caption={words.people.tokensCaption}
        columns={[
          {
            name: "name",
            head: head.name,
            cell: ({ name, hint, revokedAt }) => (
              <span class="key-name" title={name}>
                <bdi class="name">{name}</bdi>
                {hint && <code class="hint">{hint}</code>}
                {revokedAt && <Tag tone="bad">{words.people.revoked}</Tag>}
              </span>
            ),
          },
          {
            name: "scope",
            head: head.scope,
            cell: ({ scope }) => textOf(AdminScope, scopes, scope),
          },
          {
            name: "by",
            head: head.by,
            cell: ({ createdBy }) =>
              createdBy ? (
                <bdi>{nameOfActor(createdBy)}</bdi>
              ) : (
                <span class="faint">{words.people.environment}</span>
              ),
          },
          {
            name: "made",
            head: head.made,
            cell: ({ createdAt }) => <Time at={createdAt} as="day" otherwise={words.none} />,
          },
          {
            name: "used",
            head: head.used,
            cell: ({ lastUsedAt }) => <Time at={lastUsedAt} otherwise={words.none} />,
          },
          {
            name: "actions",
            head: head.actions,
            end: true,
            cell: (token) =>
              isOperatorAdmin() &&
              token.createdBy &&
              !token.revokedAt && (
                <Button kind="quiet" onClick={() => setOpen(token)}>
                  {words.people.revoke}
                </Button>
              ),
          },
        ]}
        keyOf={({ tokenId }) => tokenId}
      />
      {open === "new" && <TokenDialog onClose={() => setOpen(undefined)} />}
      {open !== undefined && open !== "new" && (
        <RevokeDialog token={open} onClose={() => setOpen(undefined)} />
      )}
    </Card>
  );
}

function tokensChanged(): void {
  const { listAdminTokens } = AdminTokensService.method;
  const { listAuditEvents } = AuditService.method;
  invalidate(listAdminTokens, listAuditEvents);
}

const scopes = ["READ", "KEYS", "MONEY", "ALL"] as const;

function TokenDialog({ onClose }: { readonly onClose: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<(typeof scopes)[number]>("READ");
  const [secret, setSecret] = useState<string>();
  const make = async () => {
    const request = { name: name.trim(), scope: AdminScope[scope] };
    const made = await call(AdminTokensService.method.createAdminToken, request);
    setSecret(made.secret);
    if (made.approval) notify(words.people.waits);
    tokensChanged();
  };
  if (secret !== undefined)
    return (
      <Dialog title={words.people.tokenReady(name.trim())} onClose={onClose} wide>
        <OnceShown
          lead={words.people.tokenLead}
          label={words.people.tokenSecret}
          text={secret}
          done={words.people.stored}
          onDone={onClose}
        />
      </Dialog>
    );
  return (
    <Dialog title={words.people.tokenTitle} onClose={onClose}>
      <Form
        submit={words.people.tokenSubmit}
        fields={["name", "scope"]}
        disabled={name.trim() === ""}
        onSubmit={make}
        onCancel={onClose}
      >
        <TextField
          name="name"
          label={words.people.tokenName}
          hint={words.people.tokenNameHint}
          value={name}
          onInput={setName}
          isFirst
        />
        <ChoiceField
          name="scope"
          label={words.people.tokenScope}
          value={scope}
          onInput={setScope}
          options={scopes.map((value) => ({ value, label: words.people.scopes[value] }))}
        />
      </Form>
    </Dialog>
  );
}

type RevokeDialogProps = { readonly token: AdminToken; readonly onClose: () => void };

function RevokeDialog({ token, onClose }: RevokeDialogProps): JSX.Element {
  const { tokenId, name } = token;
  const revoke = async () => {
    await call(AdminTokensService.method.revokeAdminToken, { tokenId });
    tokensChanged();
    notify(words.people.revokedDone(name));
    onClose();
  };
  return (
    <Dialog title={words.people.revokeTitle(name)} onClose={onClose}>
      <p>{words.people.revokeLead}</p>
      <Form kind="danger" submit={words.people.revoke} onSubmit={revoke} onCancel={onClose} />
    </Dialog>
  );
}
