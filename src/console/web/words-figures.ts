// The words of the pages with figures: usage, requests, receipts, credits, purchases and charts.
// Texts are strings, or functions of their values. Another language is another file of this type.

import { creditsPerUsd, leastDepositUsd, packStepUsdCents } from "../../base/shown-figures.ts";
import type { TokenCategory } from "../../base/token-categories.ts";
import { clock, day, dayOfYear, minutes, month } from "./format.ts";
import type { Span } from "./parts/timeline.ts";
import { utc } from "./zone.ts";

const leastPackUsd = packStepUsdCents / 100;
const leastPackCredits = (leastPackUsd * creditsPerUsd).toLocaleString("en");

/** How the keys of a pool begin. No line ends in it: U+2060 joins what a hyphen would part. */
const prefix = (pool: 1 | 2) => `sk-\u2060gw2-\u2060${pool}`;

const plural = (n: bigint | number, one: string, many: string) => (Number(n) === 1 ? one : many);

const categories = {
  input: "Input",
  output: "Output",
  thinking: "Thinking",
  cacheWrite5m: "Cache write 5 min",
  cacheWrite1h: "Cache write 1 h",
  cacheRead: "Cache read",
  /** Of credits, which reports do not split further. */
  cache: "Cache",
} satisfies Record<TokenCategory | "cache", string>;

/** How requests end, by the names of `Outcome`. */
const running = {
  label: "Running",
  sentence: "The request still runs. Its tokens are counted up to now; nothing is charged yet.",
};
const outcomes = {
  UNSPECIFIED: running,
  RUNNING: running,
  COMPLETED: {
    label: "Completed",
    sentence: "The answer is complete. You pay for the tokens of the whole request.",
  },
  PROVIDER_FAILED: {
    label: "Provider failed",
    sentence: "No provider answered with content. You pay nothing.",
  },
  PROVIDER_BROKE: {
    label: "Broke off",
    sentence:
      "The provider broke off during its answer. You pay for the input and for what was streamed " +
      "to you. A plain answer costs nothing.",
  },
  CLIENT_LEFT_BEFORE_ACCEPTANCE: {
    label: "Client left",
    sentence: "Your client hung up before a provider had the request. You pay nothing.",
  },
  CLIENT_LEFT_BEFORE_CONTENT: {
    label: "Client left",
    sentence:
      "Your client hung up after the provider had accepted the request, and before any content. " +
      "You pay for the input, which the provider had read.",
  },
  CLIENT_LEFT: {
    label: "Client left",
    sentence:
      "Your client hung up during the answer. You pay for the input and for what was produced by " +
      "then.",
  },
  REVOKED: {
    label: "Ended",
    sentence:
      "The key was revoked, the account suspended, or an owner ended the request. You pay as if " +
      "your client had hung up.",
  },
  TIME_LIMIT: {
    label: "Time limit",
    sentence:
      "A time limit ended the answer. You pay for the input and for what was streamed to you. A " +
      "plain answer costs nothing.",
  },
  GATEWAY_FAILED: {
    label: "Gateway failed",
    sentence:
      "The gateway itself failed. You pay nothing, or for the input and what was streamed to you.",
  },
  REAPED: {
    label: "Interrupted",
    sentence:
      "The gateway process that ran this request ended. You pay for the usage that it had last " +
      "recorded, and nothing for a plain answer.",
  },
  INPUT_ABOVE_HOLD: {
    label: "Too large",
    sentence:
      "The provider counted more input than the credits could cover, before anything was shown. " +
      "You pay nothing.",
  },
};

export const figures = {
  bars: {
    asTable: "As table",
    total: "Total",
    open: "so far",
    time: (span: Span) =>
      ({ hour: "Hour, UTC", day: "Day, UTC", week: "Week, UTC", month: "Month, UTC" })[span],
    /** What one bar covers, in full. */
    span: (span: Span, from: Date): string => {
      if (span === "hour") return `${day(from, utc)}, ${clock(from, utc)}`;
      if (span === "month") return month(from, utc);
      return span === "week" ? `Week of ${day(from, utc)}` : day(from, utc);
    },
    /** The same, below the bar. */
    tick: (span: Span, from: Date): string => {
      if (span === "month") return month(from, utc);
      const isMidnight = from.getUTCHours() === 0;
      return span === "hour" && !isMidnight ? minutes(from, utc) : dayOfYear(from, utc);
    },
    none: "none",
    /** What a screen reader says of a bar. `total`: empty where nothing is added up. */
    figures: (time: string, total: string, parts: readonly string[]) => {
      const list = parts.join(", ");
      if (total === "") return `${time}: ${list || "none"}.`;
      return parts.length > 1 ? `${time}: ${total}. ${list}.` : `${time}: ${total}.`;
    },
  },

  usage: {
    title: "Usage",
    intro: "All hours, days and months are UTC, as those of budgets are.",
    period: "Period",
    periods: {
      "7d": "7 days",
      "30d": "30 days",
      month: "This month",
      "13m": "13 months",
      custom: "From … to",
    },
    from: "From (UTC)",
    to: "To (UTC)",
    by: "By",
    bys: { category: "Category", model: "Model", key: "Key", tag: "Tag" },
    tagNeeded: "Name a tag, such as team",
    noTag: "without it",
    measure: "Figures",
    measures: { credits: "Credits", tokens: "Tokens", requests: "Requests" },
    bucket: "One bar a",
    buckets: { "": "Automatic", hour: "Hour", day: "Day", month: "Month" },
    key: "Key",
    model: "Model",
    allKeys: "All keys",
    allModels: "All models",
    filters: "Filters",
    csv: "Export CSV",
    copyLink: "Copy link",
    spent: "Credits spent",
    requests: "Requests",
    tokens: "Tokens",
    firstToken: "First token, median",
    firstTokenNone: "no answer began",
    about: (text: string) => `≤ ${text}`,
    beyond: (text: string) => `> ${text}`,
    slowest: (text: string) => `slowest 1 %: ${text}`,
    /** `change`: such as `12 %`. `before`: such as `the 30 days before`. */
    more: (change: string, before: string) => `▲ ${change} against ${before}`,
    less: (change: string, before: string) => `▼ ${change} against ${before}`,
    same: (before: string) => `as much as in ${before}`,
    none: (before: string) => `nothing in ${before}`,
    before: {
      "7d": "the 7 days before",
      "30d": "the 30 days before",
      month: "the same part of last month",
      "13m": "the 13 months before",
      custom: "as many days before",
    },
    notCompleted: (failed: string, cut: string) => `${failed} failed, ${cut} cut off`,
    allCompleted: "all completed",
    fromCache: (share: string) => `${share} read from cache`,
    chart: (measure: "credits" | "tokens" | "requests", span: Span) => {
      const what = { credits: "Credits", tokens: "Tokens", requests: "Requests" }[measure];
      return `${what} per ${span}`;
    },
    value: {
      credits: (text: string) => `${text} credits`,
      tokens: (text: string) => `${text} tokens`,
      requests: (text: string) => `${text} requests`,
    },
    rest: (n: string) => `${n} more`,
    endings: { completed: "Completed", failed: "Failed", cut: "Cut off" },
    categories,
    completeUntil: (clock: string) => `complete until ${clock}`,
    weeks: "Drawn by week: single days would be too thin to read.",
    table: { key: "By key", model: "By model", tag: "By tag" },
    head: {
      key: "Key",
      model: "Model",
      requests: "Requests",
      notCompleted: "Failed or cut",
      cacheWrite: "Cache write",
      credits: "Credits",
    },
    total: { key: "All keys", model: "All models", tag: "All" },
    cacheDetails: (written: string, read: string) => `${written} written, ${read} read`,
    unnamed: "unnamed",
    showMore: (n: number) => `Show ${n} more`,
    stillLoading: "More keys are being read.",
    refused: "Refused requests",
    refusedNote: "They cost nothing.",
    refusedNone: "No request was refused in this time.",
    refusedHead: { reason: "Why", count: "Requests", last: "What to do" },
    empty: {
      title: "No usage in this time",
      text: "Each request that a key makes is counted here within a minute.",
      action: "Create a key",
      other: "Show 13 months",
    },
    rangeWrong: "The first day must be before the last one, and not in the future.",
  },

  /** Why a request was refused before it cost anything, by the reason that the API gives. */
  refusals: {
    RATE_LIMITED: { label: "Requests per minute", advice: "Raise the limit of the key, or wait." },
    CREDITS_EXHAUSTED: { label: "No credits left", advice: "Buy credits for this pool." },
    CREDITS_HELD: {
      label: "Credits held by running requests",
      advice: "Wait for running requests, or buy credits.",
    },
    BUDGET_REACHED: { label: "Budget", advice: "An owner can raise the limit." },
    TOO_MANY_RUNNING: { label: "Requests at once", advice: "Wait for running requests." },
    MONTHLY_CAP_REACHED: { label: "Monthly cap", advice: "Raise the cap of the key." },
    MODEL_NOT_ALLOWED: {
      label: "Model not allowed",
      advice: "Add the model to the key, or ask for another.",
    },
    REQUESTS_NOT_ALLOWED: { label: "Key may make no requests", advice: "Its limit is 0." },
    KEY_PAUSED: { label: "Key is paused", advice: "Resume the key." },
    ADDRESS_NOT_ALLOWED: {
      label: "Address not allowed",
      advice: "If it was nobody of yours, rotate the key. Else add the address to it.",
    },
    KEY_EXPIRED: { label: "Key has expired", advice: "Set a later expiry, or create a key." },
    REVOKED_KEY: { label: "Key is revoked", advice: "Use another key." },
    ACCOUNT_SUSPENDED: { label: "Account suspended", advice: "Ask the operator." },
    TOO_MANY_FAILED: {
      label: "Too many broken requests",
      advice: "Look at the client's requests.",
    },
    other: {
      label: (reason: string) =>
        `${reason.charAt(0)}${reason.slice(1).toLowerCase().replaceAll("_", " ")}`,
      advice: "",
    },
  },

  requests: {
    title: "Requests",
    key: "Key",
    model: "Model",
    outcome: "Outcome",
    outcomes: { "": "All", completed: "Completed", failed: "Failed", cut: "Cut off" },
    allKeys: "All keys",
    allModels: "All models",
    least: "From credits",
    tag: "Tag (team=a)",
    by: "Charged by",
    leastWrong: "Credits are a number, such as 0.5.",
    live: "Live",
    csv: "Export CSV",
    from: "From (UTC)",
    to: "To (UTC)",
    head: {
      time: "Time",
      key: "Key",
      model: "Model",
      cache: "Cache",
      credits: "Credits",
      outcome: "Outcome",
      firstToken: "First token",
      duration: "Duration",
    },
    categories: {
      input: "Input",
      output: "Output",
      thinking: "Thinking",
      cacheWrite5m: "Write 5 min",
      cacheWrite1h: "Write 1 h",
      cacheRead: "Read",
    } satisfies Record<TokenCategory, string>,
    caption: "Requests, newest first",
    more: "Show older requests",
    searchOn: "Look further back",
    searchedTo: (time: string) => `Looked at all requests since ${time}.`,
    searchedNone: (time: string) => `None of the requests since ${time} matches.`,
    leftOut: "More requests were settled than fit here. Some are missing.",
    readAgain: "Read again",
    all: "These are all.",
    archived: (time: string) => `Requests before ${time} were archived. Usage still counts them.`,
    empty: {
      title: "No requests yet",
      text: "Each request of a key stands here with its tokens and its cost, as soon as it has ended.",
      action: "Create a key",
    },
    noMatch: {
      title: "No request matches",
      text: "Another filter may show what you look for.",
      action: "Remove the filters",
    },
    open: (id: string) => `Receipt of ${id}`,
    none: "–",
  },

  running: {
    title: (pool: string) => `Running requests of ${pool}`,
    lead: "Each holds what it may cost until it ends. One that is ended here pays for what it got.",
    end: "End",
    endOf: (requestId: string) => `End ${requestId}`,
    ended: "The request ends now.",
    none: "No request runs any more.",
    more: "The oldest are listed. More are running.",
  },
  receipt: {
    title: "Receipt of a request",
    missing: "There is no such request in this account. The address may be old or mistyped.",
    back: "Requests",
    id: "Request",
    copyId: "Copy id",
    charged: "Charged",
    soFar: "Nothing yet",
    unit: "credits",
    webSearches: "Web searches",
    pool: "Paid by",
    key: "Key",
    model: "Model",
    admitted: "Began",
    tags: "Tags",
    madeBy: "Charged by",
    duration: "Took",
    firstToken: "First token after",
    basis: "Tokens counted",
    bases: {
      UNSPECIFIED: "not yet",
      REPORTED: "by the provider",
      PARTLY_COUNTED: "input by the provider, output by the gateway",
      COUNTED: "by the gateway",
      NONE: "nothing is charged",
    },
    outcomes,
    cost: "What it cost",
    costNote: "Tokens × price = credits",
    head: {
      category: "Category",
      tokens: "Tokens",
      reported: "Reported",
      price: "Credits per million",
      credits: "Credits",
    },
    sum: "Sum",
    overrun: "Beyond the hold, not charged",
    amount: "Charged",
    reportedNote: (price: string) =>
      "The provider reported more tokens than the request was granted. Only the granted ones are " +
      `charged; the operator bears the price of the others, ${price} credits.`,
    hold: "Held at the start",
    granted: "Output granted",
    tokens: (text: string) => `${text} tokens`,
    credits: (text: string) => `${text} credits`,
    released: "Released at the end",
    attempts: "Calls to providers",
    attemptsNote: "Only the delivered one is charged.",
    attemptsNone: "No provider was called.",
    attemptHead: {
      provider: "Provider",
      outcome: "How it ended",
      status: "Status",
      first: "First event",
    },
    attemptOutcomes: {
      UNSPECIFIED: "unknown",
      DELIVERED: "delivered",
      REFUSED: "refused the request",
      FAILED: "failed",
      BROKE: "broke off",
      ABORTED: "stopped",
      TIMED_OUT: "did not answer in time",
    },
    notFound: "No request of this account has this id.",
    priceVersion: "Price version",
    priceNote: "Price of",
  },

  credits: {
    title: "Credits",
    intro: "A pool pays for the keys of its kind. The two never mix, and credits do not expire.",
    pools: {
      v1: {
        name: "v1 pool",
        inText: "the v1 pool",
        keys: `Pays for keys that begin with ${prefix(1)}: editors, SDKs and your own programs.`,
      },
      v2: {
        name: "v2 pool",
        inText: "the v2 pool",
        keys: `Pays for keys that begin with ${prefix(2)}: the command-line coding assistant.`,
      },
    },
    held: (text: string) => `${text} held by running requests`,
    filledTo: (amount: string) => `${amount} when it was last filled`,
    orderNote: "Order",
    heldNone: "nothing held",
    left: (days: number) => {
      if (days > 365) return "more than a year at the pace of this week";
      if (days < 1) return "less than a day at the pace of this week";
      // Whole days, as on the other pages.
      const whole = Math.floor(days);
      return `about ${whole} ${plural(whole, "day", "days")} at the pace of this week`;
    },
    leftUnknown: "too early to say how long they last",
    leftUnused: "not used in the last week",
    debt: "A payment that was undone left this pool in debt. New requests are refused until it is paid.",
    buy: "Buy credits",
    buyFor: (pool: string) => `Buy credits for ${pool}`,
    waiting: "What waits",
    waitingFor: (order: string) => `Order of ${order}`,
    look: "Open the order",
    orders: "Orders",
    ordersNone: `No orders yet. Packs start at ${leastPackUsd} USD for ${leastPackCredits} credits.`,
    ordersHead: {
      order: "Order",
      pool: "Pool",
      pack: "Pack",
      paidBy: "Paid with",
      state: "State",
      granted: "Credits",
      receipt: "Receipt",
    },
    ordersCaption: "Orders, newest first",
    transfers: "History",
    transfersNote: "Everything but requests: what came in, and what was taken out.",
    transfersNone: "Nothing came in yet.",
    transfersHead: {
      at: "Time",
      kind: "What",
      pool: "Pool",
      amount: "Credits",
      after: "Balance after",
      reason: "Note",
    },
    transfersCaption: "Transfers, newest first",
    kinds: {
      UNSPECIFIED: "Transfer",
      PURCHASE: "Purchase",
      BONUS: "Bonus",
      REFUND: "Refund",
      CHARGEBACK: "Chargeback",
      ADJUSTMENT: "Adjustment",
      DEPOSIT: "Payment",
    },
    more: "Show older ones",
    receiptOf: (number: string) => `Receipt ${number}`,
    promotion: "Promotion code",
    promotionLabel: "Code",
    promotionHint: "Capitals, spaces and dashes do not matter.",
    promotionSubmit: "Redeem code",
    // Also for a code that the account has used before.
    promotionDone: (amount: string, pool: string) =>
      `${amount} credits of this code are in ${pool}.`,
    requestsCsv: "CSV of all requests",
    details: "On receipts",
    detailsLink: "Billing details",
    detailsText: "The name and address on the receipts of your next orders.",
    detailsNone: "Only the name of the account.",
    detailsChange: "Change",
    detailsTitle: "Name and address on receipts",
    detailsSubmit: "Save",
    detailsName: "Name",
    detailsAddress: "Address",
    detailsTaxId: "Tax number",
    detailsNote: "Receipts of earlier orders stay as they are.",
  },

  purchase: {
    title: "Buy credits",
    anOrder: "Order",
    missing: "There is no such order in this account. The address may be old or mistyped.",
    back: "Credits",
    steps: (at: number, of: number) => `Step ${at} of ${of}`,
    simulated:
      "No real money: this gateway pretends its payments. Nothing can be sent to its addresses.",
    pool: "Which keys should they pay for?",
    pack: "How many credits?",
    packOf: (amount: string) => `${amount} credits`,
    packFor: (usd: string) => `$${usd}`,
    another: "Another amount",
    anotherHint: (most: string) => `Any multiple of ${leastPackUsd} dollars up to $${most}.`,
    anotherLabel: "Dollars",
    anotherWrong: (most: string) => `Enter a multiple of 5, from 5 to ${most}.`,
    method: "Which coin, on which network?",
    methodName: (asset: string, network: string) => `${asset} on ${network}`,
    networks: {
      bitcoin: "Bitcoin",
      lightning: "Lightning",
      ethereum: "Ethereum",
      arbitrum: "Arbitrum",
      polygon: "Polygon",
      base: "Base",
      tron: "TRON",
      solana: "Solana",
      bsc: "BNB Smart Chain",
      ton: "TON",
      unknown: "an unknown network",
    },
    methodLeast: (usd: string) => `from $${usd}`,
    networkFee: "The network's fee is yours, on top of the amount.",
    next: "Continue",
    order: (usd: string) => `Order for $${usd}`,
    change: "Change",
    changeOf: (text: string) => `Change: ${text}`,
    rate: "The next page shows the exact amount. Its rate stands for some minutes.",
    none: {
      title: "Credits cannot be bought here",
      text: "The operator has set up no way to pay. Ask for credits instead.",
    },
    notForYou: "Your role in this account can look, and not buy. Ask an owner or a member.",
    permanent: "Without an order",
    permanentText: `Any amount from ${leastDepositUsd} USD, at any time: what arrives at your permanent address becomes credits at the rate of that moment.`,
    permanentShow: (network: string) => `Show my address on ${network}`,
    permanentFor: (network: string, pool: string) => `On ${network}, for ${pool}`,
    noMethod: "No coin can be used for so small an order. Choose a larger pack.",

    orderTitle: (credits: string) => `${credits} credits`,
    forPool: (usd: string, pool: string) => `$${usd} for ${pool}`,
    amount: "Send exactly",
    amountMissing: "Still to send",
    address: "To this address",
    invoice: "To this invoice",
    memo: "With this memo",
    copyAmount: "Copy the amount",
    copyAddress: "Copy the address",
    copyMemo: "Copy the memo",
    memoNote: "Without the memo the payment cannot be found.",
    onlyNetwork: (asset: string, network: string) =>
      `Send ${asset} on ${network} only. Another coin or network may be lost.`,
    exchangeFee:
      "Exchanges often take their fee from the amount that you enter: add it, so that this amount " +
      "arrives.",
    qr: (asset: string, address: string) => `QR code: ${asset} to ${address}`,
    checkout: "Open the processor's page",
    countdown: (time: string) => `This rate stands for ${time}`,
    until: (time: string) => `until ${time}`,
    lookedAt: (ago: string) => `Looked ${ago}.`,
    lookedNever: "Not looked yet.",
    secondsAgo: (seconds: number) => {
      if (seconds < 120) return `${seconds} ${plural(seconds, "second", "seconds")} ago`;
      const minutes = Math.round(seconds / 60);
      return minutes < 120 ? `${minutes} minutes ago` : `${Math.round(minutes / 60)} hours ago`;
    },
    stream: { waiting: "The connection is lost. Connecting again." },
    states: {
      UNSPECIFIED: "Unknown",
      OPEN: "Waiting for payment",
      SEEN: "Payment seen",
      PARTLY_PAID: "Partly paid",
      PAID: "Paid",
      EXPIRED: "Expired",
      CANCELLED: "Cancelled",
      CLOSED: "Closed",
    },
    seen: {
      nothing: "Nothing has arrived yet.",
      leave: "You can leave this page: payments are found without it.",
      nothingAtAll: "Nothing arrived.",
      other: "Something else arrived than was ordered.",
      seen: (seen: string, quoted: string, asset: string) =>
        `We see ${seen} of ${quoted} ${asset}.`,
      confirmations: (have: number, need: number) =>
        `${have} of ${need} ${plural(need, "confirmation", "confirmations")}.`,
      partly: (settled: string, missing: string, asset: string) =>
        `${settled} ${asset} arrived, ${missing} ${asset} are missing.`,
      paid: (credits: string, pool: string) => `Paid. ${credits} credits were added to ${pool}.`,
    },
    wrong: {
      partlyOpen: (until: string) =>
        `Less arrived than the pack costs, perhaps because an exchange took its fee. Send the rest ` +
        `to the same address until ${until}, and you get the whole pack. Otherwise what arrived is ` +
        `credited then.`,
      partlyOver: (credits: string) =>
        `Less arrived than the pack costs. ${credits} credits were added for it. What you still send ` +
        `to this address counts as well.`,
      partlyDust: `Less than ${leastDepositUsd} USD arrived, which is too little to be credited by itself.`,
      lateSeen:
        "This payment came after the rate had ended. It is not lost: it is valued at the rate of the " +
        "moment at which it was seen.",
      expired:
        "Nothing arrived while the rate stood. If you have sent something, it is still found here and " +
        "credited at the rate of its time. Otherwise order again.",
      cancelled:
        "This order was cancelled. What is sent to its address all the same is still found and " +
        "credited.",
      closed: "This order is no longer watched. Do not send anything to its address.",
      overpaid: (credits: string) =>
        `More arrived than the pack costs, and you get credits for it: ${credits} in all.`,
      refunding: (what: string) => `A refund is under way: ${what}. The operator sends it by hand.`,
    },
    waits: "a part waits",
    again: "Order again",
    cancel: "Cancel order",
    cancelTitle: "Cancel this order?",
    cancelText: "What is sent to its address all the same is still found and credited.",
    keep: "Keep order",
    receipt: "Receipt",
    toCredits: "To your credits",
    deposits: "What arrived",
    depositsHead: { at: "Seen", amount: "Amount", state: "State", value: "Value", id: "Id" },
    depositStates: { UNSPECIFIED: "unknown", SEEN: "seen", SETTLED: "settled", LOST: "gone again" },
    refunds: "What goes back",
    refundsHead: {
      at: "Time",
      amount: "Amount",
      state: "State",
      reason: "Reason",
      transaction: "Transaction",
    },
    refundStates: {
      UNSPECIFIED: "unknown",
      ASKED: "credits are being taken back",
      REFUSED: "refused: the credits were spent",
      REFUNDING: "to be sent",
      COMPLETED: "sent",
      CANCELLING: "credits are being returned",
      CANCELLED: "cancelled",
    },
    facts: { order: "Order", made: "Ordered", rate: "Rate", watched: "Watched until", by: "Pool" },
    rateOf: (asset: string, usd: string) => `1 ${asset} = $${usd}`,
    wholeDeposit: "whole payment",
    /** For operators, of an order of the simulated processor. */
    play: {
      title: "Play a payment",
      about: "Nobody pays a simulated order. Say what arrives for it.",
      cases: {
        exact: "Exact",
        tooLittle: "Too little",
        tooMuch: "Too much",
        late: "Late",
        wrongCoin: "Wrong coin",
        lost: "Lost",
      },
    },
  },

  document: {
    receipt: "Receipt",
    missing: "There is no such receipt: nothing was paid, or the address is mistyped.",
    creditNote: "Credit note",
    back: "Order",
    print: "Print",
    printHint: "Your browser can also save it as PDF.",
    number: "Number",
    issued: "Issued",
    order: "Order",
    corrects: "Corrects",
    seller: "From",
    buyer: "To",
    taxId: (id: string) => `Tax number ${id}`,
    lines: "What was credited",
    taken: "What is taken back",
    head: { at: "Date, UTC", what: "What", price: "USD" },
    credits: (amount: string, pool: string) => `${amount} credits for ${pool}`,
    total: "Total",
    paid: "Paid with",
    paidHead: { at: "Arrived, UTC", amount: "Amount and id", value: "USD" },
    nobody: "Not named",
    times: `All times are UTC. 1 credit is ${1 / creditsPerUsd} USD.`,
  },
};
