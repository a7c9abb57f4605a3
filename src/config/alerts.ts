// The section `alerts` of the configuration file.

import type { Section } from "./section.ts";

export type AlertsConfig = {
  /** Hosts of webhooks that may have private addresses, in small letters. */
  readonly allowHosts: readonly string[];
};

/** Webhooks reach public addresses only. */
export const publicAlerts: AlertsConfig = { allowHosts: [] };

/** Reads the section. Adds its problems. */
export function readAlerts(section: Section | undefined): AlertsConfig {
  if (!section) return publicAlerts;
  const allowHosts = section.texts("allow_hosts").map((host) => host.toLowerCase());
  for (const host of allowHosts)
    if (URL.parse(`https://${host}/`)?.hostname.replace(/^\[|\]$/g, "") !== host)
      section.problem("allow_hosts", `must be host names such as hooks.internal, not ${host}`);
  section.rejectUnknown();
  return { allowHosts };
}
