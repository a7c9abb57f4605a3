// The way of a browser to a provider of OIDC and back. What is begun is kept by the browser alone,
// in a short cookie: a challenge with the purpose of the way. The state, the nonce and the verifier
// of PKCE are derived from it, so they are bound to this browser, and nothing is stored before it
// comes back.
//
//   flow   purpose . challenge [. token of a link]

import { hash } from "node:crypto";
import type { AnsweredChallenge, Challenges } from "./challenges.ts";
import type { FlowSecrets } from "./oidc.ts";

const lifetimeMs = 10 * 60_000;
/** Clocks of providers differ from ours. */
const skewMs = 30_000;

/** What the person wants at the provider. */
export type FlowPurpose =
  | { readonly kind: "sign-in" }
  /** Takes a link. */
  | { readonly kind: "link"; readonly linkToken: string }
  /** Confirms who the person of a session is. */
  | { readonly kind: "confirm"; readonly sessionId: string }
  /** Adds the identity to the person of a session. */
  | { readonly kind: "add"; readonly sessionId: string };

export type BegunFlow = { readonly flow: string; readonly endsAt: Date } & FlowSecrets;

export type ReturnedFlow = FlowSecrets & {
  readonly purpose: FlowPurpose;
  readonly challenge: AnsweredChallenge;
  /** A person who proved himself at the provider before this did so for something else. */
  readonly begunAt: Date;
};

export type Flows = {
  begin(provider: string, purpose: FlowPurpose): BegunFlow;
  /**
   * `sessionId`: of the call. Undefined: the flow is not ours, of another provider or session, or
   * over.
   */
  read(provider: string, flow: string, sessionId: string | undefined): ReturnedFlow | undefined;
};

export function createFlows(challenges: Challenges): Flows {
  return {
    begin(provider, purpose) {
      const endsAt = new Date(Date.now() + lifetimeMs);
      const bytes = challenges.make(nameOf(provider, purpose), lifetimeMs);
      const challenge = Buffer.from(bytes).toString("base64url");
      const parts = [purpose.kind, challenge];
      if (purpose.kind === "link") parts.push(purpose.linkToken);
      return { flow: parts.join("."), endsAt, ...secretsOf(challenge) };
    },
    read(provider, flow, sessionId) {
      const [kind = "", text = "", linkToken] = flow.split(".");
      const purpose = toPurpose(kind, linkToken, sessionId);
      const challenge = purpose && challenges.check(nameOf(provider, purpose), text);
      if (!challenge) return undefined;
      const begunAt = new Date(challenge.endsAtMs - lifetimeMs - skewMs);
      return { purpose, challenge, begunAt, ...secretsOf(text) };
    },
  };
}

function toPurpose(
  kind: string,
  linkToken: string | undefined,
  sessionId: string | undefined,
): FlowPurpose | undefined {
  if (kind === "sign-in") return { kind };
  if (kind === "link" && linkToken !== undefined) return { kind, linkToken };
  if ((kind === "confirm" || kind === "add") && sessionId !== undefined) return { kind, sessionId };
  return undefined;
}

/** What the challenge is bound to. */
function nameOf(provider: string, purpose: FlowPurpose): string {
  const bound =
    purpose.kind === "link"
      ? purpose.linkToken
      : purpose.kind === "sign-in"
        ? ""
        : purpose.sessionId;
  return ["oidc", provider, purpose.kind, bound].join(" ");
}

/** 43 characters each, as PKCE needs. Whoever sees one of them knows nothing of the others. */
function secretsOf(challenge: string): FlowSecrets {
  const derive = (name: string) => hash("sha256", `${name}\0${challenge}`, "base64url");
  return { state: derive("state"), nonce: derive("nonce"), verifier: derive("verifier") };
}
