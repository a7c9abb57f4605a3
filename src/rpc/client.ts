// The gRPC binding of Core: the same clients as `localCore`, for a facade or an internal service in a process of its own.

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescService,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import type { CallOptions, Client } from "@connectrpc/connect";
import {
  Client as Channel,
  type ClientReadableStream,
  connectivityState,
  type Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import type { ClientTls } from "../config.ts";
import { type Core, serviceTypes } from "../core.ts";
import { implement } from "../service.ts";
import { decodeMessage, encodeMessage, pathOf } from "./messages.ts";
import { metadataOf } from "./metadata.ts";
import { Patience } from "./patience.ts";
import { ServerStream } from "./server-stream.ts";
import { clientCredentials } from "./tls.ts";

/**
 * A Core that calls the cores at `addresses` (`host:port`) in turn, those first that are connected. A name that stands for several
 * hosts is called on all of them. Connections are made when needed and made again when lost; a call that finds no core for a second
 * fails with `gateway_unavailable`.
 */
export function grpcCore(parts: { addresses: readonly string[]; tls?: ClientTls }): Core & { close(): void } {
  const channels = parts.addresses.map((address) => new Channel(address, clientCredentials(parts.tls), channelOptions));
  const pick = createPicker(channels);
  return {
    billing: grpcClient(serviceTypes.billing, pick),
    keys: grpcClient(serviceTypes.keys, pick),
    inference: grpcClient(serviceTypes.inference, pick),
    close: () => {
      for (const channel of channels) channel.close();
    },
  };
}

const channelOptions = {
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // Answers come from our own core: what bounds them is what it lets a provider send.
  "grpc.max_receive_message_length": -1,
  // Finds out about a core that vanished without a word.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 500,
  "grpc.enable_channelz": 0,
};

/** Chooses the channel of the next call. */
type Pick = () => Channel;

function createPicker(channels: readonly Channel[]): Pick {
  const [first] = channels;
  if (!first) throw new Error("no address of a core was given");
  if (channels.length === 1) return () => first;
  let turn = 0;
  return () => {
    turn = (turn + 1) % channels.length;
    const inTurn = [...channels.slice(turn), ...channels.slice(0, turn)];
    const states = inTurn.map((channel) => channel.getChannel().getConnectivityState(true));
    const ready = states.indexOf(connectivityState.READY);
    const hopeful = states.findIndex((state) => state !== connectivityState.TRANSIENT_FAILURE);
    return inTurn[ready >= 0 ? ready : Math.max(hopeful, 0)] ?? first;
  };
}

function grpcClient<S extends DescService>(service: S, pick: Pick): Client<S> {
  return implement<Client<S>>(service, (desc) =>
    desc.methodKind === "unary" ? callUnary(desc, pick) : callStream(desc, pick),
  );
}

/** One call on its way, the same for every attempt. */
type Outgoing = {
  readonly desc: DescMethod;
  readonly message: Message;
  readonly metadata: Metadata;
  readonly deadline: { deadline?: number };
  readonly signal: AbortSignal | undefined;
};

function prepare(desc: DescMethod, request: MessageInitShape<DescMessage>, options: CallOptions = {}): Outgoing {
  const { headers, signal, timeoutMs = 0 } = options;
  return {
    desc,
    message: create(desc.input, request),
    metadata: metadataOf(headers),
    deadline: timeoutMs > 0 ? { deadline: Date.now() + timeoutMs } : {},
    signal,
  };
}

/** What grpc-js wants to know of a call, in its order. */
function argumentsOf({ desc, message, metadata, deadline }: Outgoing) {
  const encode = (one: Message) => encodeMessage(desc.input, one);
  const decode = (bytes: Buffer) => decodeMessage(desc.output, bytes);
  return [pathOf(desc), encode, decode, message, metadata, deadline] as const;
}

function callUnary(desc: DescMethod, pick: Pick) {
  return async (request: MessageInitShape<DescMessage>, options?: CallOptions): Promise<Message> => {
    const outgoing = prepare(desc, request, options);
    const patience = new Patience(outgoing.signal);
    for (;;) {
      try {
        return await sendUnary(pick(), outgoing);
      } catch (error) {
        await patience.endure(error);
      }
    }
  };
}

function sendUnary(channel: Channel, outgoing: Outgoing): Promise<Message> {
  const { signal } = outgoing;
  return new Promise((resolve, reject) => {
    const call = channel.makeUnaryRequest(...argumentsOf(outgoing), (error: ServiceError | null, answer?: Message) => {
      signal?.removeEventListener("abort", cancel);
      if (answer) resolve(answer);
      else reject(error);
    });
    const cancel = () => call.cancel();
    if (signal?.aborted) cancel();
    signal?.addEventListener("abort", cancel, { once: true });
  });
}

function callStream(desc: DescMethod, pick: Pick) {
  return (request: MessageInitShape<DescMessage>, options?: CallOptions): AsyncIterable<Message> => {
    const outgoing = prepare(desc, request, options);
    const open = () => openStream(pick(), outgoing);
    return new ServerStream(open, new Patience(outgoing.signal), outgoing.signal);
  };
}

function openStream(channel: Channel, outgoing: Outgoing): ClientReadableStream<Message> {
  // grpc-js notes where every call came from, which takes as long as the rest of opening it, and which nobody reads.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return channel.makeServerStreamRequest(...argumentsOf(outgoing));
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}
