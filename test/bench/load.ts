// The load of the bench, a process of its own: reads a job from stdin, sends its requests and
// prints the result as JSON.

import { text } from "node:stream/consumers";
import { Pool } from "undici";

export type LoadJob = {
  readonly url: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  /** One of these per request, in turn. */
  readonly bodies: readonly string[];
  readonly requests: number;
  /** No request begins after this time. Default: no limit. */
  readonly secondsMax?: number;
  readonly concurrency: number;
  /**
   * Requests per second in an open loop, at random gaps. Default: as fast as `concurrency` allows.
   */
  readonly perSecond?: number;
  /** The first requests, left out of the times: a new process is slow at first. Default: 0. */
  readonly warmUps?: number;
  /** Values of a header that alternate from request to request. */
  readonly rotatedHeaders?: Readonly<Record<string, readonly string[]>>;
};

export type LoadResult = {
  readonly seconds: number;
  readonly statuses: Record<string, number>;
  /**
   * Milliseconds to the first byte of the body, and to its end, where the status was 200; in the
   * order of their ends.
   */
  readonly firstMs: readonly number[];
  readonly totalMs: readonly number[];
  /** Milliseconds to the end of every other answer. */
  readonly refusedMs: readonly number[];
  /** The first body whose status was not 200, or the first error: it explains a void run. */
  readonly firstError?: string;
};

if (import.meta.main) console.log(JSON.stringify(await run(JSON.parse(await text(process.stdin)))));

async function run(job: LoadJob): Promise<LoadResult> {
  const pool = new Pool(job.url, { connections: job.concurrency, pipelining: 1 });
  const statuses: Record<string, number> = {};
  const firstMs: number[] = [];
  const totalMs: number[] = [];
  const refusedMs: number[] = [];
  const rotated = Object.entries(job.rotatedHeaders ?? {});
  let firstError: string | undefined;
  let next = 0;

  const send = async (index: number): Promise<void> => {
    const start = performance.now();
    let first = 0;
    const headers = { ...job.headers };
    for (const [name, values] of rotated) headers[name] = values[index % values.length] ?? "";
    try {
      const { statusCode, body } = await pool.request({
        path: job.path,
        method: "POST",
        headers: rotated.length > 0 ? headers : job.headers,
        body: job.bodies[index % job.bodies.length] ?? "",
      });
      const chunks: Buffer[] = [];
      for await (const chunk of body) {
        if (first === 0) first = performance.now() - start;
        if (statusCode !== 200) chunks.push(chunk);
      }
      statuses[statusCode] = (statuses[statusCode] ?? 0) + 1;
      const ms = performance.now() - start;
      if (index < (job.warmUps ?? 0)) return;
      if (statusCode === 200) {
        firstMs.push(first);
        totalMs.push(ms);
      } else {
        firstError ??= Buffer.concat(chunks).toString();
        refusedMs.push(ms);
      }
    } catch (error) {
      firstError ??= String(error);
      statuses.error = (statuses.error ?? 0) + 1;
    }
  };

  const started = performance.now();
  const endMs = started + (job.secondsMax ?? Number.POSITIVE_INFINITY) * 1000;
  if (job.perSecond === undefined) {
    const worker = async () => {
      while (next < job.requests && performance.now() < endMs) await send(next++);
    };
    await Promise.all(Array.from({ length: job.concurrency }, worker));
  } else {
    const sent: Promise<void>[] = [];
    const gapsMs = randomGapsMs(job.requests, job.perSecond);
    let dueMs = started;
    while (next < job.requests && performance.now() < endMs) {
      while (next < job.requests && dueMs <= performance.now()) {
        dueMs += gapsMs[next] ?? 0;
        sent.push(send(next++));
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(sent);
  }
  const seconds = (performance.now() - started) / 1000;
  await pool.close();
  return {
    seconds,
    statuses,
    firstMs,
    totalMs,
    refusedMs,
    ...(firstError !== undefined && { firstError }),
  };
}

/**
 * Times from each request to the next, of callers that know nothing of each other. Even gaps of 10
 * ms keep time with a provider that takes 20: each request then meets the answer to another one.
 * Together they take as long as even gaps, so that runs can be compared.
 */
function randomGapsMs(requests: number, perSecond: number): number[] {
  const gaps = Array.from({ length: requests }, () => -Math.log(1 - Math.random()));
  const sum = gaps.reduce((total, gap) => total + gap, 0);
  return gaps.map((gap) => (gap * requests * 1000) / perSecond / sum);
}
