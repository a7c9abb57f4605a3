// `npm run dev:console`: the gateway, whose console follows its sources and reloads its pages. Node
// loads this file before the program.

import cluster from "node:cluster";
import { watchSources } from "./bundle.ts";

// The parent of several workers serves nothing itself.
if (cluster.isWorker || process.env.WORKERS === undefined) await watchSources();
