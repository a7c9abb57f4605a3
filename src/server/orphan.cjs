// Loaded in a worker before all else. Node itself writes to the parent from the first moment on; if
// the parent is gone by then, the failure ends the worker with a dump before any module is there to
// listen. `disconnect` reports the parent's end. It is plain JavaScript, because Node runs no
// TypeScript where packages are.

const { worker } = process.getBuiltinModule("node:cluster");
worker?.on("error", () => {});
