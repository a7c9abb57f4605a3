// One upstream as the router sees it: its provider, whether it may be called, and how many calls it carries.

import type { UpstreamSettings } from "../catalog-file/catalog-file.ts";
import { Breaker } from "./breaker.ts";
import type { Clock } from "./clock.ts";
import { CoolDowns } from "./cool-downs.ts";
import type { Provider } from "./provider.ts";
import { Slots } from "./slots.ts";

export type Channel = {
  readonly name: string;
  readonly settings: UpstreamSettings;
  readonly provider: Provider;
  readonly breaker: Breaker;
  readonly coolDowns: CoolDowns;
  readonly slots: Slots;
};

export function createChannel(name: string, settings: UpstreamSettings, provider: Provider, clock: Clock): Channel {
  const [breaker, coolDowns] = [new Breaker(clock), new CoolDowns(clock)];
  return { name, settings, provider, breaker, coolDowns, slots: new Slots(settings, clock) };
}
