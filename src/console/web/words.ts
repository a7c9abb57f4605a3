// Every text of the console, as functions of their values. Another language is another file of this
// type. Labels end without a full stop, sentences with one.

import { figures } from "./words-figures.ts";

const plural = (n: number | bigint, one: string, many: string) =>
  `${n} ${Number(n) === 1 ? one : many}`;

export const words = {
  common: {
    product: "Model Gateway",
    documentTitle: (title: string) => `${title} · Model Gateway`,
    skip: "Skip to the content",
    copy: "Copy",
    copied: "Copied",
    copyFailed: "The browser did not copy it. Select the text and copy it by hand.",
    copyRequestId: "Copy request id",
    code: "Code",
    close: "Close",
    cancel: "Cancel",
    save: "Save",
    back: "Back",
    more: "Show more",
    menu: "More",
    retry: "Try again",
    loading: "Loading",
    never: "never",
    none: "none",
    sort: "Sort",
    failed: "This did not work",
    stale: (why: string) => `This may be old: it could not be refreshed. ${why}`,
    offline: "The gateway does not answer. Check your network.",
    unavailable: "The gateway cannot answer at this moment.",
    offlineLine: "No answer from the gateway. This page tries again by itself.",
    unavailableLine: "The gateway is busy or restarting. This page tries again by itself.",
    notFoundTitle: "There is no such page",
    notFound: "The address may be old, or belong to an account that you are not a member of.",
    toOverview: "To the overview",
    credits: "credits",
    approximately: (amount: string) => `≈ ${amount}`,
    operatorOnly: "Operator",
  },
  shell: {
    sections: "Sections",
    overview: "Overview",
    keys: "Keys",
    members: "Members",
    settings: "Settings",
    switchAccount: "Switch the account",
    roles: { owner: "Owner", member: "Member", viewer: "Viewer", none: "Operator" },
    creditsLeft: "Credits left",
    daysLeft: (days: number) =>
      days < 1
        ? "less than a day at this pace"
        : `about ${plural(Math.floor(days), "day", "days")} at this pace`,
    noPace: "for all keys together",
    me: "You",
    theme: "Look",
    themes: { system: "As the system", light: "Light", dark: "Dark" },
    signOut: "Sign out",
    noAccountTitle: "You belong to no account",
    noAccount:
      "Somebody removed you from your last account, or you were never invited to one. Ask an owner for an invitation.",
  },
  banner: {
    empty: (pool: string, other: string | undefined) =>
      `The ${pool} pool has no credits left: requests of ${pool} keys are refused.${
        other === undefined ? "" : ` Keys of ${other} still work.`
      }`,
    debt: (pool: string, amount: string) =>
      `The ${pool} pool owes ${amount} credits after a payment was reversed: requests of ${pool} keys are refused.`,
    low: (pool: string, amount: string, days: number | undefined) =>
      `The ${pool} pool has ${amount} credits left${
        days === undefined
          ? ""
          : days < 1
            ? ", which is less than a day at this pace"
            : `, which is about ${plural(Math.floor(days), "day", "days")} at this pace`
      }.`,
    suspended: (reason: string) =>
      `This account is suspended: its keys are refused.${reason ? ` The operator says: ${reason}` : ""}`,
    closed: "This account is closed. You can still read it.",
    buy: "Buy credits",
    askOwner: "Ask a member of the account to buy credits.",
  },
  doors: {
    signIn: "Sign in",
    signInLead: "With a passkey it is one touch, and nothing to type.",
    usePasskey: "Sign in with a passkey",
    continueWith: (provider: string) => `Continue with ${provider}`,
    usePassword: "Use a password",
    or: "or",
    login: "Login",
    loginHint: "Your e-mail address, or the name you chose.",
    password: "Password",
    signInWithPassword: "Sign in",
    noAccountYet: "No account yet?",
    signUp: "Sign up",
    signUpLead: "We mail you a link. You choose how to sign in after that.",
    email: "E-mail address",
    sendLink: "Send the link",
    linkSentTitle: "Look into your mail",
    linkSent: (email: string) =>
      `A link is on its way to ${email}. It is good for 24 hours. If nothing comes, look into the spam folder.`,
    signUpClosedTitle: "Signing up is closed",
    signUpClosed: "Here, people come by invitation. Ask somebody who has an account.",
    toSignIn: "To the sign-in",
    passkeyUnused: "The passkey was not used. Try again, or choose another way.",
    passkeyMissing: "This browser has no passkeys at this address. Choose another way.",
    problems: {
      sign_in_failed: "The sign-in did not succeed, or took too long. Try again.",
      sign_up_closed:
        "Nobody knows you here yet, and you cannot sign up this way. Ask for an invitation.",
      gateway_unavailable: "Your company's sign-in does not answer. Try again, or use another way.",
      auth_rate_limited: "Too many attempts from your network. Wait a moment.",
      login_taken: "This identity belongs to another person here.",
      confirm_identity: "Confirm first who you are, then try again.",
      not_found: "The link was used or is too old. Ask for a new one.",
    } satisfies Record<string, string> as Readonly<Record<string, string>>,
    endedTitle: "Your session has ended",
    ended: "Sign in again. What you typed is still there.",
    confirmTitle: "Is it you?",
    confirm:
      "This is important enough to ask once more. You will not be asked again for 15 minutes.",
    confirmPasskey: "Use your passkey",
    confirmPassword: "Confirm",
    popupDone: "Done",
    popupLead: "You can close this window.",
    popupFailedTitle: "This did not work",
  },
  links: {
    owner: "Set up this gateway",
    ownerLead:
      "This link makes you its operator, and the owner of its first account. It works once.",
    invitation: (account: string) => `Join ${account}`,
    invitationLead: (role: string) => `You were invited as ${role}.`,
    recovery: "Choose a new way to sign in",
    recoveryLead: "It replaces all earlier ones and ends all your sessions.",
    signUp: "Your address is confirmed",
    signUpLead: "Choose how you will sign in.",
    badTitle: "This link does not work",
    bad: "It was used, or is too old, or is not whole. Ask for a new one.",
    roles: { owner: "an owner", member: "a member", viewer: "a viewer", none: "a member" },
    asYou: (login: string) => `You are signed in as ${login}.`,
    take: (account: string) => `Join ${account} with this login`,
    other: "Join with another login",
    name: "Your name",
    nameHint: "As others in the account see you.",
    login: "Login",
    loginNew: "Your e-mail address, or a name. You sign in with it if you use a password.",
    createPasskey: "Create a passkey",
    passkeyHint: "Your fingerprint, face or device PIN. Safer than a password, and quicker.",
    usePassword: "Use a password instead",
    password: "Password",
    passwordHint: "At least 12 characters.",
    withPassword: "Continue with this password",
    loginMissing: "Choose a login first.",
  },
  start: {
    title: "Three steps to the first answer",
    done: "done",
    signInStep: "Choose how you sign in",
    signedInAs: (login: string) => `You are ${login}.`,
    keyStep: "Make a key",
    keyLead: "A key is what your tools use in place of a password. You see its secret once.",
    requestStep: "Send the first request",
    requestLead: "Paste this into a terminal, or set up your tool. The key is filled in.",
    keyName: "My first key",
    create: "Create key",
    skip: "Skip to the console",
    waiting: "Waiting for your first request",
    seen: (model: string, amount: string) =>
      `Your first request has arrived: ${model}, ${amount} credits.`,
    open: "Open the console",
    receipt: "See its receipt",
  },
  families: {
    v1: "v1",
    v2: "v2",
    v1Hint: "For editors, SDKs and your own programs.",
    v2Hint: "For the command-line coding assistant. It pays from a pool of its own.",
  },
  snippets: {
    label: "Your tool",
    curl: "curl",
    anthropic: "Messages SDK",
    openai: "Chat SDK",
    claudeCode: "Claude Code",
  },
  secret: {
    label: "The secret of the key",
    once: "You will not see it again.",
  },
  keyForm: {
    name: "Name",
    family: "What it is for",
  },
  keys: {
    unnamed: "unnamed key",
  },
  ...figures,
} as const;
