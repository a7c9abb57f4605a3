// Calls `Authenticate` over gRPC from a process of its own: reads a job from stdin and prints the
// duration of its calls as JSON.

import { text } from "node:stream/consumers";
import { grpcCore } from "../../src/grpc/client.ts";

export type AuthenticateJob = {
  readonly address: string;
  readonly key: string;
  readonly calls: number;
  readonly concurrency: number;
};

const { address, key, calls, concurrency }: AuthenticateJob = JSON.parse(await text(process.stdin));
const core = grpcCore({ addresses: [address] });
const call = { headers: { authorization: `Bearer ${key}` } };
await core.keys.authenticate({}, call);

let left = calls;
const started = performance.now();
const worker = async () => {
  while (left-- > 0) await core.keys.authenticate({}, call);
};
await Promise.all(Array.from({ length: concurrency }, worker));
console.log(JSON.stringify({ seconds: (performance.now() - started) / 1000 }));
core.close();
