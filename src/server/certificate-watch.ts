// Reads the certificate of the gRPC listener, or of the client of a core, again when its files
// change: a renewal needs no restart. It compares what is in the files: those of a cluster are
// replaced by their folder.

import { readFile } from "node:fs/promises";
import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { TlsFiles } from "../config/environment.ts";
import type { Certificate } from "../grpc/grpc.ts";

const everyMs = 10_000;

/** Starts to look. The result has to be stopped. */
export function watchCertificate(
  certificate: Certificate,
  files: TlsFiles,
  { log, clock, of }: { log: Log; clock: Clock | undefined; of: "gRPC listener" | "client" },
): Task {
  const task = new Task({
    async run() {
      const read = (path: string) => (path === "" ? undefined : readFile(path));
      const [pair, privateKey, authorities] = await Promise.all([
        read(files.certificate),
        read(files.privateKey),
        read(files.authorities),
      ]);
      if (certificate.replace({ certificate: pair, privateKey, authorities }))
        log.info({ endsAt: certificate.endsAt }, `new certificate of the ${of} in use`);
    },
    firstMs: everyMs,
    everyMs,
    clock,
    report: warnOnce(log, {
      code: "certificate_rejected",
      failed: `the certificate of the ${of} cannot be taken from its files: the old one stays`,
      recovered: "the files of the certificate are in order again",
    }),
  });
  task.start();
  return task;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * the files of GRPC_TLS_CERT, GRPC_TLS_KEY or GRPC_TLS_CLIENT_CA, or of CORE_TLS_CERT,
     * CORE_TLS_KEY or CORE_TLS_CA, cannot be read, or do not fit together, and the certificate of
     * before is in use; correct them
     */
    certificate_rejected: true;
  }
}
