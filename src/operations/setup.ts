// What an installation needs before customers come, read from its configuration, its nodes and its
// ledger.

import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type NodeReport,
  SetupPart,
  SetupState,
  type SetupStepSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { VerificationParts } from "./verification.ts";

export type SetupParts = VerificationParts & {
  readonly publicUrl: () => URL;
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
  const [channels, { cleanAt }] = await Promise.all([alertChannels(), ledger.latestVerification()]);
  const real = Object.entries(providers).filter(([, { kind }]) => kind !== "simulated");
  const takers = (payments?.processors ?? []).filter(({ type }) => type !== "simulated");
  const proxies = new Set(reports.flatMap(({ unnamedProxies }) => unnamedProxies));
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
    step(SetupPart.PROXIES, proxies.size > 0 ? OPEN : DONE, [...proxies].sort()),
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

function isPublic({ protocol, hostname }: URL): boolean {
  return protocol === "https:" && hostname !== "localhost" && !hostname.endsWith(".localhost");
}
