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
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { type Core, serviceTypes } from "../core.ts";
import { Refusal } from "../errors.ts";
import { abortRefusal, implement } from "../service.ts";
import { decodeMessage, encodeMessage, pathOf } from "./messages.ts";
import { metadataOf } from "./metadata.ts";
import { fromStatus } from "./status.ts";
import { type ClientTls, clientCredentials } from "./tls.ts";

/**
 * A Core that calls the cores at `addresses` (`host:port`) in turn, those first that are connected. A name that stands for several
 * hosts is called on all of them. Connections are made when needed and made again when lost; a call that finds no core fails with
 * `gateway_unavailable`.
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
  // Finds out about a core that vanished without a word. The server's own limit on pings is looser.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
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

type Ask = MessageInitShape<DescMessage>;

function callUnary(desc: DescMethod, pick: Pick) {
  return (request: Ask, options: CallOptions = {}) =>
    new Promise<Message>((resolve, reject) => {
      const { signal } = options;
      if (signal?.aborted) return reject(abortRefusal(signal));
      const call = pick().makeUnaryRequest(
        pathOf(desc),
        (message: Message) => encodeMessage(desc.input, message),
        (bytes: Buffer) => decodeMessage(desc.output, bytes),
        create(desc.input, request),
        metadataOf(options.headers),
        deadlineOf(options),
        (error: ServiceError | null, answer?: Message) => {
          signal?.removeEventListener("abort", cancel);
          if (answer) resolve(answer);
          else reject(failureOf(error, signal));
        },
      );
      const cancel = () => call.cancel();
      signal?.addEventListener("abort", cancel, { once: true });
    });
}

function callStream(desc: DescMethod, pick: Pick) {
  return async function* (request: Ask, options: CallOptions = {}): AsyncGenerator<Message> {
    const { signal } = options;
    if (signal?.aborted) throw abortRefusal(signal);
    const call: ClientReadableStream<Message> = pick().makeServerStreamRequest(
      pathOf(desc),
      (message: Message) => encodeMessage(desc.input, message),
      (bytes: Buffer) => decodeMessage(desc.output, bytes),
      create(desc.input, request),
      metadataOf(options.headers),
      deadlineOf(options),
    );
    const cancel = () => call.cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      yield* call;
    } catch (error) {
      throw failureOf(error, signal);
    } finally {
      signal?.removeEventListener("abort", cancel);
      // A caller that stops reading is not interested any more.
      call.cancel();
    }
  };
}

function deadlineOf({ timeoutMs = 0 }: CallOptions): { deadline?: number } {
  return timeoutMs > 0 ? { deadline: Date.now() + timeoutMs } : {};
}

function failureOf(error: unknown, signal: AbortSignal | undefined): Refusal {
  if (!isServiceError(error)) return new Refusal("internal", { cause: error });
  return signal?.aborted && error.code === status.CANCELLED ? abortRefusal(signal) : fromStatus(error);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "metadata" in error && error.metadata instanceof Metadata;
}
