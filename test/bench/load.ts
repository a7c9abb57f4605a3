// The load of the benchmark, a process of its own: takes a job on stdin, sends its requests, and
// prints what came of them.

import { text } from "node:stream/consumers";
import { Pool } from "undici";

export type Job = {
  readonly url: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  /** One of these per request, in turn. */
  readonly bodies: readonly string[];
  readonly requests: number;
  readonly concurrency: number;
  /**
   * Requests per second, whether or not earlier ones have ended. Absent: as fast as `concurrency`
   * allows.
   */
  readonly perSecond?: number;
  /**
   * So many of the first requests are left out of the times: this process is new, and slow at
   * first. Absent: none.
   */
  readonly unmeasured?: number;
  /** Values that take turns in a header. */
  readonly turns?: Readonly<Record<string, readonly string[]>>;
};

export type Done = {
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
  /** The first body that was not 200, for the reader of a void run. */
  readonly odd?: string;
};

if (import.meta.main) console.log(JSON.stringify(await run(JSON.parse(await text(process.stdin)))));

async function run(job: Job): Promise<Done> {
  const pool = new Pool(job.url, { connections: job.concurrency, pipelining: 1 });
  const statuses: Record<string, number> = {};
  const firstMs: number[] = [];
  const totalMs: number[] = [];
  const refusedMs: number[] = [];
  const turns = Object.entries(job.turns ?? {});
  let odd: string | undefined;
  let next = 0;

  const send = async (index: number): Promise<void> => {
    const start = performance.now();
    let first = 0;
    const headers = { ...job.headers };
    for (const [name, values] of turns) headers[name] = values[index % values.length] ?? "";
    try {
      const { statusCode, body } = await pool.request({
        path: job.path,
        method: "POST",
        headers: turns.length > 0 ? headers : job.headers,
        body: job.bodies[index % job.bodies.length] ?? "",
      });
      const chunks: Buffer[] = [];
      for await (const chunk of body) {
        if (first === 0) first = performance.now() - start;
        if (statusCode !== 200) chunks.push(chunk);
      }
      statuses[statusCode] = (statuses[statusCode] ?? 0) + 1;
      const ms = performance.now() - start;
      if (index < (job.unmeasured ?? 0)) return;
      if (statusCode === 200) {
        firstMs.push(first);
        totalMs.push(ms);
      } else {
        odd ??= Buffer.concat(chunks).toString();
        refusedMs.push(ms);
      }
    } catch (error) {
      odd ??= String(error);
      statuses.error = (statuses.error ?? 0) + 1;
    }
  };

  const started = performance.now();
  if (job.perSecond === undefined) {
    const worker = async () => {
      while (next < job.requests) await send(next++);
    };
    await Promise.all(Array.from({ length: job.concurrency }, worker));
  } else {
    const sent: Promise<void>[] = [];
    while (next < job.requests) {
      const due = Math.min(
        job.requests,
        Math.floor(((performance.now() - started) / 1000) * job.perSecond) + 1,
      );
      while (next < due) sent.push(send(next++));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(sent);
  }
  const seconds = (performance.now() - started) / 1000;
  await pool.close();
  return { seconds, statuses, firstMs, totalMs, refusedMs, ...(odd !== undefined && { odd }) };
}
