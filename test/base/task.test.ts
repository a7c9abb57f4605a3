import { expect, onTestFinished, test, vi } from "vitest";
import { every, pause } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { Task, type TaskSettings, warnOnce } from "../../src/base/task.ts";
import { ManualClock, runPendingTasks } from "../support/clock.ts";

/** A task whose runs end when the test says so. */
function startTask(settings: Partial<TaskSettings> = {}) {
  const clock = new ManualClock();
  const report = { failed: vi.fn(), recovered: vi.fn() };
  const runs: PromiseWithResolvers<boolean>[] = [];
  let stopping: AbortSignal | undefined;
  const task = new Task({
    run(signal) {
      stopping = signal;
      const run = Promise.withResolvers<boolean>();
      runs.push(run);
      return run.promise;
    },
    everyMs: 1_000,
    jitter: 0,
    report,
    clock,
    ...settings,
  });
  task.start();
  return {
    task,
    clock,
    report,
    runs,
    stopping: () => stopping,
    /** Ends the last run. */
    async end(isMore = false) {
      runs.at(-1)?.resolve(isMore);
      await runPendingTasks();
    },
    async fail(error: Error) {
      runs.at(-1)?.reject(error);
      await runPendingTasks();
    },
  };
}

test("a run begins at the start, and the next one a while after its end", async () => {
  const { clock, runs, end } = startTask();
  await clock.advance(5_000);
  expect(runs).toHaveLength(1);
  await end();
  await clock.advance(999);
  expect(runs).toHaveLength(1);
  await clock.advance(1);
  expect(runs).toHaveLength(2);
});

test("the first run may come later", async () => {
  const { clock, runs } = startTask({ firstMs: 60_000 });
  await clock.advance(59_999);
  expect(runs).toHaveLength(0);
  await clock.advance(1);
  expect(runs).toHaveLength(1);
});

test("a run that left something to do is followed at once by another", async () => {
  const { runs, end } = startTask();
  await runPendingTasks();
  await end(true);
  expect(runs).toHaveLength(2);
  await end();
  expect(runs).toHaveLength(2);
});

test("who is woken runs at once, and once more if a run was active", async () => {
  const { task, clock, runs, end } = startTask();
  await runPendingTasks();
  await end();
  task.wake();
  await runPendingTasks();
  expect(runs).toHaveLength(2);
  task.wake();
  task.wake();
  await end();
  expect(runs).toHaveLength(3);
  await end();
  expect(runs).toHaveLength(3);
  await clock.advance(1_000);
  expect(runs).toHaveLength(4);
});

test("a pause between two runs holds for a task that is woken, too", async () => {
  const { task, clock, runs, end } = startTask({ pauseMs: 100 });
  await runPendingTasks();
  // Woken during a run: another one follows, but not at once.
  task.wake();
  await end();
  expect(runs).toHaveLength(1);
  await clock.advance(60);
  task.wake();
  task.wake();
  await clock.advance(39);
  expect(runs).toHaveLength(1);
  await clock.advance(1);
  expect(runs).toHaveLength(2);
  await end();
  await clock.advance(500);
  task.wake();
  await runPendingTasks();
  expect(runs).toHaveLength(3);
});

test("failures in a row double the pause, up to its limit", async () => {
  const { clock, runs, fail, end } = startTask({ everyMsMax: 5_000 });
  await runPendingTasks();
  for (const ms of [2_000, 4_000, 5_000, 5_000]) {
    const before = runs.length;
    await fail(new Error("away"));
    await clock.advance(ms - 1);
    expect(runs).toHaveLength(before);
    await clock.advance(1);
    expect(runs).toHaveLength(before + 1);
  }
  await end();
  await clock.advance(1_000);
  expect(runs).toHaveLength(6);
});

test("chance makes a pause shorter by at most its share, and never longer", async () => {
  const random = vi.spyOn(Math, "random");
  onTestFinished(() => random.mockRestore());
  const { clock, runs, end } = startTask({ jitter: 0.1 });
  await runPendingTasks();
  for (const [chance, ms] of [
    [0, 1_000],
    [0.5, 950],
    [1, 900],
  ] as const) {
    random.mockReturnValueOnce(chance);
    const before = runs.length;
    await end();
    await clock.advance(ms - 1);
    expect(runs).toHaveLength(before);
    await clock.advance(1);
    expect(runs).toHaveLength(before + 1);
  }
});

test("the pause of a task may change from run to run", async () => {
  let everyMs = 500;
  const { clock, runs, end } = startTask({ everyMs: () => everyMs });
  await runPendingTasks();
  await end();
  await clock.advance(500);
  expect(runs).toHaveLength(2);
  everyMs = 100;
  await end();
  await clock.advance(100);
  expect(runs).toHaveLength(3);
});

test("the first of several failures is told apart, and so is the recovery", async () => {
  const { task, clock, report, fail, end } = startTask();
  await runPendingTasks();
  const error = new Error("away");
  // To be woken does not make a failed run shorter.
  task.wake();
  await fail(error);
  await clock.advance(1_000);
  await fail(error);
  expect(report.failed.mock.calls).toEqual([
    [error, true],
    [error, false],
  ]);
  await clock.advance(1_000);
  expect(report.recovered).not.toHaveBeenCalled();
  await end();
  await clock.advance(1_000);
  await end();
  expect(report.recovered).toHaveBeenCalledTimes(1);
  await clock.advance(1_000);
  await fail(error);
  expect(report.failed).toHaveBeenLastCalledWith(error, true);
});

test("a log has one warning for several failures, with the code and the first error", () => {
  const log = createLog("silent");
  const warn = vi.spyOn(log, "warn");
  const info = vi.spyOn(log, "info");
  const messages = { code: "orders_unread", failed: "cannot", recovered: "can" } as const;
  const { failed, recovered } = warnOnce(log, messages);
  const err = new Error("away");
  failed(err, true);
  failed(new Error("still away"), false);
  recovered?.();
  expect(warn.mock.calls).toEqual([[{ code: "orders_unread", err }, "cannot"]]);
  expect(info.mock.calls).toEqual([["can"]]);
});

test("a paused task runs no more until it is started again", async () => {
  const { task, clock, runs, end } = startTask();
  await runPendingTasks();
  task.pause();
  await end();
  task.wake();
  await clock.advance(10_000);
  expect(runs).toHaveLength(1);
  task.start();
  await runPendingTasks();
  expect(runs).toHaveLength(2);
  // Paused and started during a run: that one counts.
  task.pause();
  task.start();
  await end();
  expect(runs).toHaveLength(2);
  await clock.advance(1_000);
  expect(runs).toHaveLength(3);
});

test("a stop tells the active run, waits for it, and is no failure", async () => {
  const { task, clock, report, runs, stopping, fail } = startTask();
  await runPendingTasks();
  const stopped = vi.fn();
  const stop = task.stop().then(stopped);
  expect(stopping()?.aborted).toBe(true);
  await runPendingTasks();
  expect(stopped).not.toHaveBeenCalled();
  await fail(new Error("cut off"));
  await stop;
  expect(report.failed).not.toHaveBeenCalled();
  task.start();
  task.wake();
  await clock.advance(10_000);
  expect(runs).toHaveLength(1);
  expect(clock.pending).toBe(0);
});

test("what is done every second is done until it is stopped", async () => {
  const clock = new ManualClock();
  const callback = vi.fn();
  const stop = every(clock, 1_000, callback);
  expect(callback).not.toHaveBeenCalled();
  await clock.advance(3_000);
  expect(callback).toHaveBeenCalledTimes(3);
  stop();
  await clock.advance(10_000);
  expect(callback).toHaveBeenCalledTimes(3);
});

test("a pause ends with its time, or as soon as its signal fires", async () => {
  const clock = new ManualClock();
  const stopping = new AbortController();
  const ended: string[] = [];
  void pause(clock, 1_000).then(() => ended.push("time"));
  void pause(clock, 5_000, stopping.signal).then(() => ended.push("signal"));
  await clock.advance(999);
  expect(ended).toEqual([]);
  await clock.advance(1);
  stopping.abort();
  await pause(clock, 5_000, stopping.signal);
  await runPendingTasks();
  expect(ended).toEqual(["time", "signal"]);
  expect(clock.pending).toBe(0);
});
