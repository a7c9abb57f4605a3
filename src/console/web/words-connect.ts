// Texts of the page that connects tools, which is loaded by need. As `words.ts`.

export const connectWords = {
  intro:
    "What a tool needs: an address, a key, and the name of a model, which are on the page Models.",
  addresses: "Addresses",
  native: "Messages format",
  nativeHint: "For Anthropic's SDKs and tools. No /v1 at its end.",
  openai: "OpenAI format",
  openaiHint: "For OpenAI's SDKs and tools: Chat Completions and Responses.",
  grpc: "gRPC",
  grpcHint:
    "Where the gateway listens. A proxy may have another port; with TLS, open a secure channel.",
  grpcClosed:
    "As far as the gateway knows, it is not reached from here. Its operator can open it: GRPC_HOST.",
  copy: (what: string) => `Copy the address: ${what}`,
  key: "Key",
  keyHint: "Put its secret where its hint stands: no page shows a secret twice.",
  noKey: "No key: YOUR_KEY stands for it",
  create: "Create a key",
  tools: "Tools",
  groups: {
    "command line": "Command line",
    SDK: "SDKs",
    "coding tool": "Coding tools",
    framework: "Frameworks",
    gRPC: "gRPC",
  },
  needs: (programs: string) => `It needs ${programs}.`,
  mode: "Answer",
  plain: "Plain",
  stream: "Streaming",
  last: "Last request",
  lastOfAll: "of any key",
  waiting: "None so far. This line changes when one ends.",
  unread: "It could not be read. This page tries again.",
  completed: (model: string, amount: string) => `${model}, ${amount} credits.`,
  receipt: "Receipt",
  refused: (count: string, since: string, label: string, advice: string) =>
    `${count} refused since ${since}: ${label}. ${advice}`,
} as const;
