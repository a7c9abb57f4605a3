// Texts of the page that sends one message, which is loaded by need. As `words.ts`.

export const tryWords = {
  intro:
    "One message through the public path, as your programs send theirs. Your account pays for it. " +
    "Nothing of it is kept: a new page begins empty.",
  viewer:
    "Members and owners of this account can send a message. Ask an owner to make you a member.",
  noModelsTitle: "No models",
  noModels: "The operator of this gateway sells none yet.",
  message: "Your message",
  model: "Model",
  pool: "Paid by",
  system: "System text",
  systemHint: "What the model is to be, or to keep to. May be empty.",
  text: "Message",
  textHint: "Ctrl+Enter or ⌘+Enter sends it.",
  limit: "Most tokens of the answer",
  limitHint: "An answer ends there. Credits for so many are set aside until it does.",
  limitWrong: "A whole number from 1 on.",
  textMissing: "Write something to send.",
  stream: "Show the answer as it comes",
  send: "Send",
  stop: "Stop",
  stopHint: "Stop hangs up, as a program does: what the model wrote until then is charged.",
  answer: "Answer",
  none: "It stands here.",
  states: {
    key: "Making a key",
    waiting: "Waiting for the model",
    coming: "The answer comes",
    whole: "The answer is whole.",
    limit: "The answer ended at its most tokens. A larger number has more of it.",
    stopped: "Stopped. What the model wrote until then is charged.",
    cut: "Cut off: more was to come. What the model wrote until then is charged.",
    lost: "No answer came. Whether it is charged is looked up.",
    refused: "No answer",
  },
  receipt: "Receipt",
  receiptComes: "It comes when the request is charged.",
  receiptMissing: "None so far. If something was charged, Requests has it.",
  receiptFree: "Nothing was charged.",
  charged: "Charged",
  amount: (credits: string, dollars: string) => `${credits} credits, ${dollars}`,
  tokens: (count: string) => `${count} tokens`,
  whole: "The whole receipt",
  keyName: "Try it, in the console",
  keyNone:
    "The first message makes an ordinary key with a budget of 1 credit. It ends within an hour, " +
    "or when you leave this page, and only this page knows its secret.",
  keyMade: (used: string, time: string) =>
    `Its key has spent ${used} of 1 credit. It ends at ${time}.`,
  keyLink: "The key",
  newKey: "Send with a new key",
  snippet: "The same call",
  snippetAbout: "With a key of your own in place of YOUR_KEY.",
  snippetLong: "The text is too long to be pasted into a shell.",
  otherTools: "In other tools",
  /** By reason: the next step. Of others the console knows one, or the sentence is enough. */
  advice: {
    offline: "The connection to the gateway broke, or it does not answer. Check your network.",
    other:
      "Something else answered: the models are not served at the address of this console. Ask the " +
      "operator where they are, and send from there with a key of your own.",
    spent: "A new key has another credit.",
    tooLarge:
      "The message may cost more than 1 credit, or a limit of yours is reached. Take fewer tokens, " +
      "a shorter text or a cheaper model; Overview has your limits.",
    keyEnded: "The key of this page was ended. Send again: a new one is made.",
    model: "Choose another model: the list was read again.",
    long: "Shorten the text.",
    later: "Try again in a moment.",
    in: (seconds: number) => `Try again in ${seconds} s.`,
  },
} as const;
