// Bundles the console as a start does, and prints as a line of JSON what that took in this process.

import { loadBundle } from "../../src/console/bundle.ts";

const collect = () => {
  global.gc?.();
  return process.memoryUsage().rss;
};
const before = collect();
const started = performance.now();
const { assets } = await loadBundle();
const ms = performance.now() - started;
for (const asset of assets.values())
  while (!asset.compressed) await new Promise((resolve) => setTimeout(resolve, 5));
console.log(JSON.stringify({ ms, bytes: collect() - before }));
process.exit();
