// The alerts of one or several nodes on a database of its own, with the real services that they
// read, behind the interceptor.

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Client } from "@connectrpc/connect";
import {
  AlertChannel,
  AlertKind,
  AlertSettingsSchema,
  AlertsService,
} from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { AccountRole, OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { createAlerts } from "../../src/alerts/alerts.ts";
import { createBilling } from "../../src/billing/billing.ts";
import { publicAlerts } from "../../src/config/catalog.ts";
import { listBypasses } from "../../src/contract/approvals.ts";
import {
  boundMethod,
  type Caller,
  implement,
  localClient,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { intercept } from "../../src/contract/interceptor.ts";
import { createPayments } from "../../src/payments/payments.ts";
import { createPeople } from "../../src/people/people.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { contentKey } from "./content-key.ts";
import { countStatements, createNodeKeys, keysClient } from "./keys.ts";
import { freshLedger, log, price } from "./ledger.ts";

type Parts = Parameters<typeof createAlerts>[0];

/** A mask of every setting: those that a request leaves out are cleared. */
export const allSettings = { paths: AlertSettingsSchema.fields.map(({ name }) => name) };

export type AlertNodeOptions = Partial<
  Pick<Parts, "mailer" | "post" | "times" | "contentKeys" | "log">
> & {
  readonly sources?: Partial<Parts["sources"]>;
};

const publicUrl = () => new URL("http://localhost:8080");
const authenticate = async (): Promise<Caller> => ({ kind: "anyone" });

/** A person with a role in an account, who has just confirmed who he is. */
export function member(accountId: string, role: AccountRole = AccountRole.OWNER): Caller {
  return {
    kind: "person",
    personId: `per_${accountId}`,
    sessionId: "ses_test",
    memberships: [{ accountId, role }],
    operator: OperatorRole.UNSPECIFIED,
    strongUntil: new Date("2100-01-01T00:00:00Z"),
  };
}

export async function startAlertNodes() {
  const ledger = await freshLedger();
  const { run } = ledger;
  const stack = new AsyncDisposableStack();
  stack.defer(() => ledger.close());

  function node(options: AlertNodeOptions = {}) {
    const postgres = stack.adopt(connectPostgres(ledger.url), (one) => one.close());
    const counted = countStatements(postgres);
    const reports: Postgres["reports"] = {
      ...postgres.reports,
      run: (statement, ...values) => {
        counted.ran.push(statement.name);
        return postgres.reports.run(statement, ...values);
      },
    };
    const made = createNode({ ...counted, reports }, options);
    stack.defer(() => made.alerts.stop());
    return { ...made, ran: counted.ran };
  }
  const first = node();

  return {
    ...ledger,
    ...first,
    node,
    /** A person of an account with a confirmed address. */
    async person(accountId: string, name: string, role = "owner"): Promise<string> {
      const personId = `per_${name}`;
      await run(
        `insert into people (person_id, login, email, email_verified_at)
           values ($1, $2, $3, now())`,
        [personId, name, `${name}@example.com`],
      );
      if (accountId !== "")
        await run("insert into members (account_id, person_id, role) values ($1, $2, $3)", [
          ...[accountId, personId, role],
        ]);
      return personId;
    },
    /** A session of a person that began some time ago. */
    async session(personId: string, address: string, minutesAgo: number): Promise<void> {
      const id = `ses_${personId}_${address}_${minutesAgo}`;
      await run(
        `insert into sessions (digest, session_id, person_id, method, made_at, ends_at,
             strong_until, address, agent)
           values ($1, $2, $3, 'passkey', now() - $4::integer * interval '1 minute',
             now() + interval '1 day', now(), $5, 'a browser')`,
        [Buffer.from(id), id, personId, minutesAgo, address],
      );
    },
    /** Spends the same amount on each of the last days, the last one yesterday. */
    async spendDaily({ accountId, keyId }: Account, micro: bigint, days: number): Promise<void> {
      await run(
        `insert into usage_hourly (account_id, key_id, model, hour, amount, requests)
           select $1, $2, 'model-test',
             date_trunc('day', now(), 'UTC') - n * interval '1 day', $3::bigint, 1
           from generate_series(1, $4::integer) as n`,
        [accountId, keyId, micro, days],
      );
    },
    /** All alerts of an account, oldest first, also those that are not on the page. */
    async raised(accountId: string): Promise<StoredAlert[]> {
      return run<StoredAlert>(
        `select alert_id, kind, facts, on_page from alerts where account_id = $1
           order by raised_at, alert_id`,
        [accountId],
      );
    },
    /** Makes the next look due, also if a process that died was at it. */
    async makeLookDue(): Promise<void> {
      await run("delete from leases where task = 'alerts'");
    },
    async makeDeliveriesDue(): Promise<void> {
      await run("update alert_deliveries set next_at = now() where state = 'waiting'");
    },
    stop: () => stack.disposeAsync(),
  };
}

type Account = { readonly accountId: string; readonly keyId: string };
type StoredAlert = {
  alert_id: string;
  kind: string;
  facts: Record<string, string>;
  on_page: boolean;
};
export type AlertNodes = Awaited<ReturnType<typeof startAlertNodes>>;

function createNode(postgres: Postgres, options: AlertNodeOptions) {
  const keys = createNodeKeys(postgres);
  const billing = createBilling({ postgres, priceOf: () => price, log });
  const people = createPeople({ postgres, publicUrl, keys: keys.managed, log });
  const payments = createPayments({
    postgres,
    publicUrl,
    settings: undefined,
    env: {},
    log,
    billing: localClient(
      serviceTypes.billing,
      intercept(serviceTypes.billing, billing.service, { authenticate, log }),
    ),
    guesses: { check: async () => {}, count: async () => {} },
  });
  const alerts = createAlerts({
    postgres,
    publicUrl,
    config: publicAlerts,
    contentKeys: options.contentKeys ?? [Buffer.from(contentKey, "base64")],
    log: options.log ?? log,
    listRecipients: people.forAlerts.listRecipients,
    mailer: options.mailer,
    times: { everyMs: 60_000, pollMs: 20, ...options.times },
    ...(options.post && { post: options.post }),
    sources: {
      billing: billing.figures,
      listKeyEvents: keys.listEvents,
      listNewPlaces: people.forAlerts.listNewPlaces,
      listLogins: people.forAlerts.listLogins,
      listWaitingOrders: payments.listWaiting,
      listUnreadChains: async () => [],
      listBypasses: (since, limit) => listBypasses(postgres, since, limit),
      payments: payments.forAlerts,
      listMisplaced: () => [],
      modelConditions: () => [],
      ledgerProblem: () => undefined,
      ...options.sources,
    },
  });
  const service = intercept(AlertsService, alerts.service, { authenticate, log });
  return {
    alerts,
    keys: keysClient(keys),
    payments: payments.service,
    /** Calls as this caller. */
    as: (caller: Caller) =>
      implement<Client<typeof AlertsService>>(AlertsService, (desc) => {
        const { run } = boundMethod(service, desc);
        return (request: MessageInitShape<DescMessage>, call?: CallOptions) =>
          run(create(desc.input, request), {
            signal: call?.signal ?? new AbortController().signal,
            requestHeader: new Headers(),
            caller,
          });
      }),
  };
}

/** The channels of a rule. */
export function channelsBy(on: {
  page?: boolean;
  mail?: boolean;
  webhook?: boolean;
}): AlertChannel[] {
  return [
    ...(on.page ? [AlertChannel.PAGE] : []),
    ...(on.mail ? [AlertChannel.MAIL] : []),
    ...(on.webhook ? [AlertChannel.WEBHOOK] : []),
  ];
}

/** Settings by which everything is told by these channels. */
export function settingsBy(channels: { page?: boolean; mail?: boolean; webhook?: boolean }) {
  const kinds = [
    ...[AlertKind.CREDITS_LOW, AlertKind.CAP_REACHED, AlertKind.KEY_CREATED],
    ...[AlertKind.NEW_PLACE, AlertKind.KEY_STOPPED, AlertKind.ORDER_WAITING],
  ];
  return {
    rules: kinds.map((kind) => ({ kind, channels: channelsBy(channels) })),
    webhookUrl: channels.webhook ? "https://hooks.example/alerts" : "",
  };
}
