// The settings of a gateway, as it reads them.

import { readCatalogPath, readConfig } from "../../src/config/environment.ts";

/** The names of all environment variables that a gateway reads. */
export function readSettingNames(): Set<string> {
  const names = new Set<string>();
  const recording = new Proxy<NodeJS.ProcessEnv>(
    {},
    {
      get(_, name) {
        if (typeof name === "string") names.add(name);
        return undefined;
      },
    },
  );
  readConfig(recording);
  readCatalogPath(recording);
  return names;
}
