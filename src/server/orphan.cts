// Loaded in a worker before all else. Node itself writes to the parent from the first moment on; if
// the parent is gone by then, the failure ends the worker with a dump before any module is there to
// listen. `disconnect` reports the parent's end.

const cluster = process.getBuiltinModule("node:cluster");
if ("worker" in cluster && cluster.worker instanceof cluster.Worker)
  cluster.worker.on("error", () => {});
