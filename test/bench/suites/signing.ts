// What the signature of a request to AWS costs, beside the hash of its body alone.

import { createHash, randomBytes } from "node:crypto";
import { systemClock } from "../../../src/base/clock.ts";
import { awsAuthenticator } from "../../../src/providers/aws.ts";
import { spreadOf } from "../measure.ts";
import type { Result } from "../report.ts";

const bytes = 100_000;
const times = 1_000;
const rounds = 9;

export async function signing(): Promise<Result> {
  // The first source of AWS's chain. Nothing is sent.
  process.env.AWS_ACCESS_KEY_ID = "AKIABENCH";
  process.env.AWS_SECRET_ACCESS_KEY = "bench";
  const baseUrl = "https://bedrock-runtime.us-east-1.amazonaws.com";
  const authenticator = awsAuthenticator(
    { region: "us-east-1", service: "bedrock", baseUrl },
    {
      clock: systemClock,
      call: () => Promise.reject(new Error("nothing is asked for")),
      report() {},
    },
  );
  const body = randomBytes(bytes);
  const request = { method: "POST", path: "/model/any/invoke", headers: [], body } as const;
  const microsOf = async (work: () => unknown): Promise<number> => {
    const { user, system } = process.cpuUsage();
    for (let index = 0; index < times; index++) await work();
    const used = process.cpuUsage({ user, system });
    return (used.user + used.system) / times;
  };
  const sign = () => microsOf(() => authenticator.headers(request));
  const hash = () => microsOf(() => createHash("sha256").update(body).digest());
  await sign();
  await hash();
  const micros: number[] = [];
  const ratios: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const [signed, hashed] = [await sign(), await hash()];
    micros.push(signed);
    ratios.push(signed / hashed);
  }
  return {
    rows: [
      {
        measure: "CPU of a signature of 100 KB",
        value: spreadOf(micros),
        ...{ unit: "µs", must: "≤ 150" },
      },
      { measure: "the same ÷ SHA-256 of the body alone", value: spreadOf(ratios) },
    ],
    faults: [],
  };
}
