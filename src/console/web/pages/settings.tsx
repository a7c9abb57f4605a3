import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { AccountsService } from "../../../../gen/gateway/accounts/v1/accounts_pb.ts";
import { BillingService } from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { KeyAction } from "../../../../gen/gateway/common/v1/key_action_pb.ts";
import { PeopleService } from "../../../../gen/gateway/people/v1/people_pb.ts";
import { ProfileService, type Session } from "../../../../gen/gateway/people/v1/profile_pb.ts";
import { OidcPurpose, SignInService } from "../../../../gen/gateway/people/v1/sign_in_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { moment, relative } from "../format.ts";
import { leaveFor } from "../oidc.ts";
import { AlertsCard } from "../parts/alerts.tsx";
import { BillingDetailsCard } from "../parts/billing-details.tsx";
import { BudgetDialog, budgetsChanged, limitsText } from "../parts/budget.tsx";
import { Button, LinkButton } from "../parts/button.tsx";
import { exact } from "../parts/decimals.ts";
import { Dialog } from "../parts/dialog.tsx";
import { Form, fieldError, SelectField, TextField } from "../parts/form.tsx";
import { ManagementKeysCard } from "../parts/management.tsx";
import { notify } from "../parts/messages.ts";
import { Card, Head } from "../parts/page.tsx";
import { useSeen } from "../parts/seen.ts";
import { Facts, Snippet, Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { createPasskey } from "../passkeys.ts";
import { account, can, currentSession, loadSession, refreshSession, session } from "../session.ts";
import { words } from "../words.ts";
import { browserZone, chosenZone, setZone, shownZone, zones } from "../zone.ts";
import { RemoveMemberDialog } from "./members.tsx";

type OpenDialog = "rename" | "close" | "leave" | "passkey" | "password" | "email" | "delete";

export function Settings(): JSX.Element {
  const [dialog, setDialog] = useState<OpenDialog>();
  return (
    <>
      <Head title={words.settings.title} />
      <AccountCard onOpen={setDialog} />
      <BillingDetailsCard />
      <Ways onOpen={setDialog} />
      <Sessions />
      <PersonCard onOpen={setDialog} />
      {can("owner") && <MemberLimits />}
      {can("owner") && isMember() && <ManagementKeysCard />}
      {can("owner") && <AlertsCard />}
      <Endings onOpen={setDialog} />
      <OpenedDialog dialog={dialog} onClose={() => setDialog(undefined)} />
    </>
  );
}

type CardProps = { readonly onOpen: (dialog: OpenDialog) => void };

function AccountCard({ onOpen }: CardProps): JSX.Element {
  const { accountId, name } = account.value;
  return (
    <Card
      title={words.settings.account}
      tools={
        can("owner") && (
          <Button kind="quiet" onClick={() => onOpen("rename")}>
            {words.settings.rename}
          </Button>
        )
      }
    >
      <Facts>
        {[
          [
            words.settings.accountName,
            <span key="name" dir="auto">
              {name}
            </span>,
          ],
          [
            words.settings.accountId,
            <code key="id" class="mono">
              {accountId}
            </code>,
          ],
        ]}
      </Facts>
    </Card>
  );
}

function PersonCard({ onOpen }: CardProps): JSX.Element {
  const { person } = session.value;
  return (
    <Card
      title={words.settings.you}
      tools={
        <Button kind="quiet" onClick={() => onOpen("email")}>
          {words.settings.emailChange}
        </Button>
      }
    >
      <div class="stack">
        <Facts>
          {[
            [words.settings.login, person?.login],
            person?.name ? [words.settings.name, person.name] : undefined,
            [
              words.settings.email,
              person?.email || (
                <span key="email" class="faint">
                  {words.settings.emailNone}
                </span>
              ),
            ],
          ]}
        </Facts>
        <ZoneChoice />
      </div>
    </Card>
  );
}

/** The zone of the times that this browser shows. */
function ZoneChoice(): JSX.Element {
  const { zone, zoneHint, zoneOfBrowser } = words.settings;
  const names = [...new Set([...zones(), shownZone.value])];
  return (
    <SelectField
      name="zone"
      label={zone}
      hint={zoneHint(moment(new Date()))}
      value={chosenZone.value}
      onInput={setZone}
      options={[
        { value: "", label: zoneOfBrowser(browserZone.value) },
        ...names.map((name) => ({ value: name, label: name.replaceAll("_", " ") })),
      ]}
    />
  );
}

/** The limits of members who have none of their own. */
function MemberLimits(): JSX.Element {
  const { accountId } = account.value;
  const [place, isSeen] = useSeen();
  const [isOpen, setOpen] = useState(false);
  const { listBudgets } = BillingService.method;
  const budgets = useCall(listBudgets, isSeen ? { accountId, pageSize: 1 } : undefined);
  return (
    <Card
      place={place}
      title={words.budget.ofNew}
      about={words.budget.ofNewHint}
      tools={
        budgets.data && <Button onClick={() => setOpen(true)}>{words.budget.ofNewButton}</Button>
      }
    >
      <View call={budgets} skeleton={<Skeleton rows={1} />}>
        {({ defaultMemberLimits: limits }) => (
          <>
            <p>{limitsText(limits) ?? <span class="muted">{words.budget.none}</span>}</p>
            {isOpen && (
              <BudgetDialog
                title={words.budget.ofNew}
                hint={words.budget.ofNewHint}
                limits={limits}
                save={async (next) => {
                  await call(AccountsService.method.updateAccount, {
                    accountId,
                    settings: { defaultMemberLimits: next },
                    updateMask: { paths: ["default_member_limits"] },
                  });
                  budgetsChanged();
                }}
                onClose={() => setOpen(false)}
              />
            )}
          </>
        )}
      </View>
    </Card>
  );
}

/** True: the person is a member of the account on screen, not just an operator who looks. */
function isMember(): boolean {
  return session.value.accounts.some((one) => one.accountId === account.value.accountId);
}

/** What ends: the data of an account, a membership, the account, the person. */
function Endings({ onOpen }: CardProps): JSX.Element {
  const { accountId } = account.value;
  const owns = can("owner");
  return (
    <Card title={words.settings.endings}>
      <ul class="endings stack">
        {owns && (
          <Ending title={words.settings.data} about={words.settings.dataAbout}>
            <LinkButton
              download
              icon="download"
              href={`/console/export/account?${new URLSearchParams({ account: accountId })}`}
            >
              {words.settings.download}
            </LinkButton>
          </Ending>
        )}
        {isMember() && (
          <Ending title={words.settings.leave} about={words.members.leaveLead}>
            <Button onClick={() => onOpen("leave")}>{words.members.leave}</Button>
          </Ending>
        )}
        {owns && isMember() && (
          <Ending title={words.settings.closeAccount} about={words.settings.closeAbout}>
            <Button onClick={() => onOpen("close")}>{words.settings.closeShort}</Button>
          </Ending>
        )}
        <Ending title={words.settings.deleteMe} about={words.settings.deleteAbout}>
          <Button onClick={() => onOpen("delete")}>{words.settings.deleteShort}</Button>
        </Ending>
      </ul>
    </Card>
  );
}

type OpenedDialogProps = DialogProps & { readonly dialog: OpenDialog | undefined };

function OpenedDialog({ dialog, onClose }: OpenedDialogProps): JSX.Element | null {
  switch (dialog) {
    case undefined:
      return null;
    case "rename":
      return <RenameDialog onClose={onClose} />;
    case "close":
      return <CloseAccountDialog onClose={onClose} />;
    case "passkey":
      return <PasskeyDialog onClose={onClose} />;
    case "password":
      return <PasswordDialog onClose={onClose} />;
    case "email":
      return <EmailDialog onClose={onClose} />;
    case "delete":
      return <DeleteDialog onClose={onClose} />;
    case "leave": {
      const personId = session.value.person?.personId ?? "";
      return <RemoveMemberDialog personId={personId} name={account.value.name} onClose={onClose} />;
    }
  }
}

type EndingProps = { title: string; about: string; children: JSX.Element };

function Ending({ title, about, children }: EndingProps): JSX.Element {
  return (
    <li class="spread">
      <div>
        <h3>{title}</h3>
        <p class="muted">{about}</p>
      </div>
      {children}
    </li>
  );
}

/** A way to sign in that a person removes. */
type Removal = { readonly name: string; readonly run: () => Promise<unknown> };

function Ways({ onOpen }: CardProps): JSX.Element {
  const [removal, setRemoval] = useState<Removal>();
  const { passkeys, identities, providers } = session.value;
  const titleOf = (name: string) => providers.find((one) => one.name === name)?.title || name;
  const others = providers.filter(
    ({ name }) => !identities.some(({ provider }) => provider === name),
  );
  return (
    <Card
      title={words.settings.ways}
      about={words.settings.waysAbout}
      tools={
        <Button icon="passkey" onClick={() => onOpen("passkey")}>
          {words.settings.addPasskey}
        </Button>
      }
    >
      <ul class="endings stack">
        {passkeys.map(({ passkeyId, name, createdAt, lastUsedAt: usedAt }) => (
          <RemovableWay
            key={passkeyId}
            name={words.settings.passkeyNamed(name)}
            note={
              usedAt
                ? words.settings.used(relative(usedAt))
                : createdAt && words.settings.added(relative(createdAt))
            }
            run={() => call(ProfileService.method.deletePasskey, { passkeyId })}
            onRemove={setRemoval}
          />
        ))}
        {identities.map(({ identityId, provider, lastUsedAt: usedAt }) => (
          <RemovableWay
            key={identityId}
            name={words.settings.provider(titleOf(provider))}
            note={usedAt && words.settings.used(relative(usedAt))}
            run={() => call(ProfileService.method.deleteIdentity, { identityId })}
            onRemove={setRemoval}
          />
        ))}
        <PasswordWay onOpen={onOpen} onRemove={setRemoval} />
        {others.map(({ name }) => (
          <li class="spread" key={name}>
            <h3>{words.settings.provider(titleOf(name))}</h3>
            <Button onClick={() => addIdentity(name)}>
              {words.settings.connect(titleOf(name))}
            </Button>
          </li>
        ))}
      </ul>
      {removal && <RemovalDialog removal={removal} onClose={() => setRemoval(undefined)} />}
    </Card>
  );
}

type RemovableWayProps = Removal & {
  readonly note: string | undefined;
  readonly onRemove: (removal: Removal) => void;
};

/** A passkey, or a sign-in at a provider. */
function RemovableWay({ name, note, run, onRemove }: RemovableWayProps): JSX.Element {
  return (
    <li class="spread">
      <div>
        <h3 dir="auto">{name}</h3>
        <p class="muted">{note}</p>
      </div>
      <Button kind="quiet" onClick={() => onRemove({ name, run })}>
        {words.settings.remove}
      </Button>
    </li>
  );
}

type PasswordWayProps = CardProps & { readonly onRemove: (removal: Removal) => void };

function PasswordWay({ onOpen, onRemove }: PasswordWayProps): JSX.Element {
  const { hasPassword } = session.value;
  const removal: Removal = {
    name: words.settings.password,
    run: () => call(ProfileService.method.setPassword, { password: "" }),
  };
  return (
    <li class="spread">
      <div>
        <h3>{words.settings.password}</h3>
        <p class="muted">
          {hasPassword ? words.settings.passwordSet : words.settings.passwordNone}
        </p>
      </div>
      <div class="row">
        {hasPassword && (
          <Button kind="quiet" onClick={() => onRemove(removal)}>
            {words.settings.remove}
          </Button>
        )}
        <Button onClick={() => onOpen("password")}>
          {hasPassword ? words.settings.changePassword : words.settings.setPassword}
        </Button>
      </div>
    </li>
  );
}

type RemovalDialogProps = DialogProps & { readonly removal: Removal };

function RemovalDialog({ removal, onClose }: RemovalDialogProps): JSX.Element {
  const remove = async () => {
    await removal.run();
    onClose();
    await loadSession();
    notify(words.settings.removed);
  };
  return (
    <Dialog title={words.settings.removeWay(removal.name)} onClose={onClose}>
      <p>{words.settings.removeWayText}</p>
      <Form kind="danger" submit={words.settings.remove} onSubmit={remove} onCancel={onClose} />
    </Dialog>
  );
}

async function addIdentity(provider: string): Promise<void> {
  const { authorizationUrl } = await call(SignInService.method.beginOidc, {
    provider,
    purpose: OidcPurpose.ADD,
  });
  leaveFor(authorizationUrl, location.pathname);
}

function Sessions(): JSX.Element {
  const [place, isSeen] = useSeen();
  const sessions = useCall(ProfileService.method.listSessions, isSeen ? {} : undefined);
  const end = async ({ sessionId }: Session) => {
    await call(ProfileService.method.revokeSession, { sessionId });
    invalidate(ProfileService.method.listSessions);
    notify(words.settings.ended);
  };
  const columns: readonly Column<Session>[] = [
    {
      name: "browser",
      head: words.settings.browser,
      sortBy: ({ agent }) => browserOf(agent),
      cell: ({ agent, current }) => (
        <span title={agent}>
          {browserOf(agent)} {current && <Tag tone="accent">{words.settings.current}</Tag>}
        </span>
      ),
    },
    {
      name: "address",
      head: words.settings.address,
      sortBy: ({ address }) => address,
      cell: ({ address }) => address,
    },
    {
      name: "since",
      head: words.settings.since,
      sortBy: ({ createdAt }) => momentOf(createdAt),
      cell: ({ createdAt }) => <Time at={createdAt} />,
    },
    {
      name: "used",
      head: words.settings.lastUsed,
      sortBy: ({ lastUsedAt: usedAt }) => momentOf(usedAt),
      cell: ({ lastUsedAt: usedAt }) => <Time at={usedAt} />,
    },
    {
      name: "actions",
      head: <span class="visually-hidden">{words.keys.actions}</span>,
      end: true,
      cell: (one) =>
        !one.current && (
          <Button kind="quiet" onClick={() => end(one)}>
            {words.settings.end}
          </Button>
        ),
    },
  ];
  return (
    <Card flush place={place} title={words.settings.sessions} about={words.settings.sessionsAbout}>
      <View call={sessions} skeleton={<Skeleton rows={2} />}>
        {(data) => (
          <Table
            caption={words.settings.sessionsCaption}
            columns={columns}
            rows={data.sessions}
            keyOf={({ sessionId }) => sessionId}
          />
        )}
      </View>
    </Card>
  );
}

// Later names are part of more: every Edge calls itself Chrome, every Chrome Safari.
const browsers = ["Edg", "OPR", "Firefox", "Chrome", "Safari"];
const systems = ["Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux"];
const shownNames: Readonly<Record<string, string>> = {
  Edg: "Edge",
  OPR: "Opera",
  "Mac OS X": "macOS",
};

/** "Firefox, Linux" of what a browser calls itself; else the beginning of that. */
function browserOf(agent: string): string {
  const found = [browsers, systems].flatMap(
    (names) => names.find((one) => agent.includes(one)) ?? [],
  );
  const text = found.map((name) => shownNames[name] ?? name).join(", ");
  return text || agent.slice(0, 40) || words.settings.unknownBrowser;
}

type DialogProps = { onClose: () => void };

function RenameDialog({ onClose }: DialogProps): JSX.Element {
  const { accountId } = account.value;
  const [name, setName] = useState(account.value.name);
  const send = async () => {
    await call(AccountsService.method.updateAccount, {
      accountId,
      settings: { name: name.trim() },
      updateMask: { paths: ["name"] },
    });
    invalidate(AccountsService.method.getAccount);
    refreshSession();
    notify(words.settings.renamed);
    onClose();
  };
  return (
    <Dialog title={words.settings.rename} onClose={onClose}>
      <Form submit={words.settings.rename} fields={["name"]} onSubmit={send} onCancel={onClose}>
        <TextField
          name="name"
          label={words.settings.accountName}
          hint={words.settings.accountFacts}
          value={name}
          onInput={setName}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function CloseAccountDialog({ onClose }: DialogProps): JSX.Element {
  const { accountId, name } = account.value;
  const [confirm, setConfirm] = useState("");
  const pools = useCall(BillingService.method.getPools, { accountId });
  const free = (pools.data?.pools ?? []).reduce(
    (sum, { freeMicrocredits }) => sum + (freeMicrocredits > 0n ? freeMicrocredits : 0n),
    0n,
  );
  const send = async () => {
    await call(AccountsService.method.closeAccount, { accountId, confirm: confirm.trim() });
    // The credits may have changed since: the service says what to type then.
    invalidate(AccountsService.method.getAccount, BillingService.method.getPools);
    refreshSession();
    notify(words.settings.closed);
    onClose();
  };
  return (
    <Dialog title={words.settings.closeTitle(name)} onClose={onClose}>
      <p>{words.settings.closeAbout}</p>
      {pools.data && <Snippet text={words.settings.closeWords(name, exact(free))} wraps />}
      <Form
        kind="danger"
        submit={words.settings.closeButton}
        fields={["confirm"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="confirm"
          label={words.settings.closeType}
          value={confirm}
          onInput={setConfirm}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function PasskeyDialog({ onClose }: DialogProps): JSX.Element {
  const [name, setName] = useState("");
  const send = async () => {
    const { passkeyOptionsJson } = await call(SignInService.method.beginPasskey, {});
    const answerJson = await createPasskey(passkeyOptionsJson);
    await call(ProfileService.method.createPasskey, { answerJson, name: name.trim() });
    await loadSession();
    notify(words.settings.passkeyAdded);
    onClose();
  };
  return (
    <Dialog title={words.settings.addPasskey} onClose={onClose}>
      <Form submit={words.settings.addPasskey} fields={["name"]} onSubmit={send} onCancel={onClose}>
        <TextField
          name="name"
          label={words.settings.passkeyName}
          hint={words.settings.passkeyNameHint}
          value={name}
          onInput={setName}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function PasswordDialog({ onClose }: DialogProps): JSX.Element {
  const [password, setPassword] = useState("");
  const send = async () => {
    // An empty one would remove it.
    if (password === "") throw fieldError("password", words.links.passwordHint);
    await call(ProfileService.method.setPassword, { password });
    await loadSession();
    invalidate(ProfileService.method.listSessions);
    notify(words.settings.passwordSaved);
    onClose();
  };
  return (
    <Dialog title={words.settings.passwordTitle} onClose={onClose}>
      <Form
        submit={words.settings.setPassword}
        fields={["password"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="password"
          type="password"
          label={words.settings.password}
          hint={words.settings.passwordHint}
          autocomplete="new-password"
          value={password}
          onInput={setPassword}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function EmailDialog({ onClose }: DialogProps): JSX.Element {
  const known = session.value.person?.email ?? "";
  const [typed, setTyped] = useState(known);
  const email = typed.trim();
  const send = async () => {
    await call(ProfileService.method.setEmail, { email });
    await loadSession();
    notify(email === "" ? words.settings.emailRemoved : words.settings.emailSent(email));
    onClose();
  };
  const isRemoval = email === "" && known !== "";
  return (
    <Dialog title={words.settings.emailTitle} onClose={onClose}>
      <Form
        submit={isRemoval ? words.settings.remove : words.settings.emailSend}
        kind={isRemoval ? "danger" : "main"}
        disabled={email === known}
        fields={["email"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="email"
          type="email"
          label={words.settings.email}
          hint={isRemoval ? words.settings.emailRemove : words.settings.emailHint}
          autocomplete="email"
          value={typed}
          onInput={setTyped}
          isFirst
        />
      </Form>
    </Dialog>
  );
}

function DeleteDialog({ onClose }: DialogProps): JSX.Element {
  const { personId = "", login = "" } = session.value.person ?? {};
  const [typed, setTyped] = useState("");
  const send = async () => {
    if (typed.trim().toLowerCase() !== login)
      throw fieldError("confirm", words.settings.deleteWrong);
    // Nobody knows who should go on with them.
    const keys = KeyAction.PAUSE;
    await call(PeopleService.method.deletePerson, { personId, keys });
    currentSession.value = undefined;
    location.assign("/console/sign-in");
  };
  return (
    <Dialog title={words.settings.deleteTitle} onClose={onClose}>
      <p>{words.settings.deleteAbout}</p>
      <Form
        kind="danger"
        submit={words.settings.deleteButton}
        fields={["confirm"]}
        onSubmit={send}
        onCancel={onClose}
      >
        <TextField
          name="confirm"
          label={words.settings.deleteType(login)}
          value={typed}
          onInput={setTyped}
          isFirst
        />
      </Form>
    </Dialog>
  );
}
