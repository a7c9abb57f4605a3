// The sink that writes files: one for each UTC day of settlement, in a folder that all processes
// share. Every line has its position: what a process wrote and did not record is written again at
// the same place, so no line is in a file twice.

import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { SinkWriter } from "./sink-writer.ts";

/** The writer of a folder, which it makes. */
export function filesWriter(folder: string): SinkWriter {
  /** The file of the moment. Its lines behind the recorded position were removed. */
  let trimmed = "";
  return {
    async write({ day, lines }, position) {
      await mkdir(folder, { recursive: true });
      const file = `charges-${day}.ndjson`;
      const start = position.file === file ? Number(position.bytes) : 0;
      const path = join(folder, file);
      const text = Buffer.from(lines);
      const handle = await open(path, "a+", 0o640).then(async (made) => {
        await made.close();
        return open(path, "r+");
      });
      try {
        const { size } = await handle.stat();
        if (size < start)
          throw new Error(
            `${path} has ${size} bytes of the ${start} that were written: all processes must share the folder, and leave the file of the day where it is`,
          );
        if (start === 0 && size > 0) {
          const first = text.subarray(0, text.indexOf(10) + 1);
          const found = Buffer.alloc(Math.min(first.length, size));
          await handle.read(found, 0, found.length, 0);
          if (!first.subarray(0, found.length).equals(found))
            throw new Error(`${path} is there already, with other charges: move it away`);
        }
        if (trimmed !== file && size > start) await handle.truncate(start);
        trimmed = file;
        await writeAll(handle, text, start);
        await handle.datasync();
      } finally {
        await handle.close();
      }
      if (start === 0) await syncFolder(folder);
      return { file, bytes: BigInt(start + text.length) };
    },
  };
}

async function writeAll(
  handle: Awaited<ReturnType<typeof open>>,
  text: Buffer,
  start: number,
): Promise<void> {
  for (let done = 0; done < text.length; ) {
    const { bytesWritten } = await handle.write(text, done, text.length - done, start + done);
    done += bytesWritten;
  }
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path);
  await handle.sync().finally(() => handle.close());
}
