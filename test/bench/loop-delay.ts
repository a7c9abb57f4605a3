// Loaded into a gateway with `--import`: reports the longest turn of its event loop.

import { createServer } from "node:http";
import { monitorEventLoopDelay } from "node:perf_hooks";

const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();

// Each request answers the longest turn since the previous one, in milliseconds.
createServer((_request, response) => {
  response.end(JSON.stringify({ longestMs: delay.max / 1e6 }));
  delay.reset();
}).listen(Number(process.env.LOOP_DELAY_PORT), "127.0.0.1");
