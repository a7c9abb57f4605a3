// The texts of mails. They name what people chose, such as the name of an account, only in letters
// and digits: a stranger could send addresses and advertisements in our name otherwise.

import { plainText } from "../base/plain-text.ts";
import { linkHours } from "../base/shown-figures.ts";
import type { MailFacts, MailKind } from "./store.ts";

/** `known`: a sign-up whose address somebody has. `link`: the address to open, if there is one. */
export function renderMail(
  kind: MailKind | "known",
  facts: MailFacts,
  publicUrl: URL,
  link = "",
): { subject: string; text: string } {
  const host = publicUrl.host;
  const name = (key: string) => plainText(facts[key] ?? "");
  const lines = {
    invitation: {
      subject: `You are invited to the Model Gateway at ${host}`,
      text: [
        `${name("by") || "An operator"} invites you to the account “${name("account")}”.`,
        "Open this link within seven days. It works once:",
        link,
        "If you did not expect this, ignore it: nothing happens.",
      ],
    },
    recovery: {
      subject: `Sign in again to the Model Gateway at ${host}`,
      text: [
        "An operator made this link for you, because you lost your way to sign in.",
        `Open it within ${linkHours} hours. It works once, replaces your earlier ways to sign in ` +
          "and ends all your sessions:",
        link,
        "If you did not ask for it, do not open it, and tell the operator.",
      ],
    },
    recovered: {
      subject: `Your ways to sign in to ${host} were replaced`,
      text: [
        `At ${facts.at ?? ""} (UTC) somebody used a recovery link for you` +
          `${facts.address ? `, from the address ${plainText(facts.address, ".:")}` : ""}.`,
        "All your earlier ways to sign in were removed, and all your sessions have ended.",
        "If that was not you, tell the operator at once.",
      ],
    },
    // To an address that nobody has confirmed: no word in it is another person's.
    sign_up: {
      subject: `Confirm your address for the Model Gateway at ${host}`,
      text: [
        `Somebody, probably you, signs up at ${host} with this address.`,
        `Open this link within ${linkHours} hours to confirm it. It works once:`,
        link,
        "If it was not you, ignore this mail: nothing happens.",
      ],
    },
    email: {
      subject: `Confirm your new address for the Model Gateway at ${host}`,
      text: [
        `Somebody, probably you, wants to get the notices of a person at ${host} at this address.`,
        `Open this link within ${linkHours} hours to confirm it. It works once:`,
        link,
        "If it was not you, do not open it: nothing happens.",
      ],
    },
    email_changed: {
      subject: `Your address for the Model Gateway at ${host} was changed`,
      text: [
        `At ${facts.at ?? ""} (UTC) this address was replaced or removed.`,
        "Notices and recovery links no longer come here.",
        "If that was not you, tell the operator at once.",
      ],
    },
    known: {
      subject: `You can sign in to the Model Gateway at ${host}`,
      text: [
        `Somebody, probably you, signs up at ${host} with this address. It has an account already.`,
        `Sign in at ${new URL("/console/", publicUrl).href}`,
        "If you cannot, ask the operator for a new link. If it was not you, ignore this mail.",
      ],
    },
  } as const satisfies Record<MailKind | "known", { subject: string; text: readonly string[] }>;
  const { subject, text } = lines[kind];
  return { subject, text: `${text.join("\n\n")}\n\n-- \nModel Gateway, ${publicUrl.origin}\n` };
}
