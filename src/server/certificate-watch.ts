// Reads the certificate of the gRPC listener again when its files change: a renewal needs no
// restart. It compares what is in the files: those of a cluster are replaced by their folder.

import { readFile } from "node:fs/promises";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { ServerTls } from "../config/environment.ts";
import type { ServerCertificate } from "../grpc/grpc.ts";

const everyMs = 10_000;

/** Starts to look. The result has to be stopped. */
export function watchCertificate(
  certificate: ServerCertificate,
  files: NonNullable<ServerTls["files"]>,
  { log, clock }: { log: Log; clock: Clock | undefined },
): Task {
  const task = new Task({
    async run() {
      const [pair, privateKey, authorities] = await Promise.all([
        readFile(files.certificate),
        readFile(files.privateKey),
        files.clientAuthorities === "" ? undefined : readFile(files.clientAuthorities),
      ]);
      const clientAuthorities = authorities && { clientAuthorities: authorities };
      if (certificate.replace({ certificate: pair, privateKey, ...clientAuthorities }))
        log.info({ endsAt: certificate.endsAt }, "new certificate of the gRPC listener in use");
    },
    firstMs: everyMs,
    everyMs,
    clock,
    report: warnOnce(log, {
      code: "certificate_rejected",
      failed:
        "the certificate of the gRPC listener cannot be taken from its files: the old one stays",
      recovered: "the files of the certificate are in order again",
    }),
  });
  task.start();
  return task;
}
