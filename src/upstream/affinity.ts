// Which way a conversation goes. Rendezvous hashing: the same conversation finds the same upstream on every node without shared
// state, weights share conversations out, and when one upstream leaves only its own conversations move.

import { hash } from "node:crypto";
import type { Route } from "../catalog-file/catalog-file.ts";

/** All routes of a model in the order in which a conversation tries them. */
export function orderRoutes(groups: readonly (readonly Route[])[], affinity: string): readonly Route[] {
  return groups.flatMap((group) => (group.length === 1 ? group : orderGroup(group, affinity)));
}

function orderGroup(group: readonly Route[], affinity: string): Route[] {
  return group
    .map((route) => ({ route, score: scoreRoute(route, affinity) }))
    .sort((one, other) => other.score - one.score)
    .map(({ route }) => route);
}

// -weight / ln(u) with u even in (0, 1): the highest score falls on a route with a probability in proportion to its weight.
function scoreRoute({ upstream, model, weight }: Route, affinity: string): number {
  const digest = hash("sha1", `${affinity}\0${upstream}\0${model}`, "buffer");
  const even = (digest.readUIntBE(0, 6) + 0.5) / 2 ** 48;
  return -weight / Math.log(even);
}
