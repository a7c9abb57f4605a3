// What an installation needs before customers come, read from its configuration, its nodes and its
// ledger.

import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type NodeReport,
  SetupPart,
  SetupState,
  type SetupStepSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { loopbackRanges, matchAddresses } from "../base/client-address.ts";
import type { CatalogFile } from "../config/catalog.ts";

export type SetupParts = {
  readonly ledger: {
    /** The last check of the ledger. Undefined: there was none. */
    latestVerification(): Promise<{
      readonly latest: { readonly endedAt: Date; readonly violationCount: number } | undefined;
    }>;
  };
  readonly publicUrl: () => URL;
  readonly trustedProxies: readonly string[];
  /** The address of the sender of mail. Undefined: no mail is sent. */
  readonly mailFrom: string | undefined;
  /** How alerts of the installation reach people off the page. */
  readonly alertChannels: () => Promise<readonly string[]>;
  readonly database: { readonly isEmbedded: boolean };
  readonly file: () => CatalogFile;
};

type Step = MessageInitShape<typeof SetupStepSchema>;

const { OPEN, DEFAULT, DONE } = SetupState;

/** The steps in the order in which they are best done. `reports`: of the nodes. */
export async function readSetup(
  parts: SetupParts,
  reports: readonly Pick<NodeReport, "unnamedProxies">[],
): Promise<Step[]> {
  const { publicUrl, mailFrom, database, alertChannels, ledger, file } = parts;
  const { providers, people, payments } = file();
  const [channels, { latest }] = await Promise.all([alertChannels(), ledger.latestVerification()]);
  // A check before, without a finding, says nothing of a ledger in which the last one found some.
  const cleanAt = latest?.violationCount === 0 ? latest.endedAt : undefined;
  const real = Object.entries(providers).filter(([, { kind }]) => kind !== "simulated");
  const takers = (payments?.processors ?? []).filter(({ type }) => type !== "simulated");
  const peers = [...new Set(reports.flatMap(({ unnamedProxies }) => unnamedProxies))].sort();
  const { mode, domains } = people.signUp;
  const signUp = [...(mode === "domains" ? domains : [mode]), ...Object.keys(people.oidc)];
  const isDecided = mode !== "closed" || signUp.length > 1;
  const url = publicUrl();
  const step = (part: SetupPart, state: SetupState, facts: readonly string[] = []): Step => ({
    ...{ part, state },
    facts: [...facts],
  });
  return [
    step(SetupPart.REACHABLE, isPublic(url) ? DONE : OPEN, [url.origin]),
    peers.length === 0
      ? step(SetupPart.PROXIES, DONE)
      : // Each of them may be a client who made the header up, and then nothing is to be done.
        {
          ...step(SetupPart.PROXIES, DEFAULT, peers),
          line: proxiesLine(parts.trustedProxies, peers),
        },
    step(
      SetupPart.PROVIDER,
      real.length > 0 ? DONE : OPEN,
      real.map(([name]) => name),
    ),
    step(SetupPart.MAIL, mailFrom ? DONE : DEFAULT, mailFrom ? [mailFrom] : []),
    step(SetupPart.SIGN_UP, isDecided ? DONE : DEFAULT, signUp),
    step(
      SetupPart.PAYMENTS,
      takers.length > 0 ? DONE : OPEN,
      takers.map(({ name }) => name),
    ),
    step(SetupPart.BACKUP, DEFAULT, [database.isEmbedded ? "embedded" : "external"]),
    step(SetupPart.LEDGER, cleanAt ? DONE : OPEN, cleanAt ? [cleanAt.toISOString()] : []),
    step(SetupPart.ALERTS, channels.length > 0 ? DONE : OPEN, channels),
  ];
}

/** Addresses that no client from elsewhere has, if a peer has one. */
const isNear = matchAddresses([
  ...loopbackRanges,
  ...["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"],
]);

/** Names no address of the internet: it would be believed of every client behind it. */
function proxiesLine(trustedProxies: readonly string[], peers: readonly string[]): string {
  const proxy = peers.find(isNear) ?? "ADDRESS_OF_YOUR_PROXY";
  return `TRUSTED_PROXIES=${[...trustedProxies, proxy].join(",")}`;
}

function isPublic({ protocol, hostname }: URL): boolean {
  return protocol === "https:" && hostname !== "localhost" && !hostname.endsWith(".localhost");
}
