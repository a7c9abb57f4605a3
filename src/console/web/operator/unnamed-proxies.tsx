// On the page of a key, for operators: the proxies that the deployment has not named. They keep the
// key's list of addresses from its clients.

import type { ComponentChildren, JSX } from "preact";
import { OperationsService } from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { useCall } from "../api.ts";
import { Notice } from "../parts/small.tsx";
import { words } from "./words.ts";

type ProxiesProps = {
  /** Shown while no peer looks like a proxy. */
  readonly children: ComponentChildren;
};

/** Every peer that looks like a proxy. Some are clients who make the header up. */
export function UnnamedProxies({ children }: ProxiesProps): JSX.Element {
  const status = useCall(OperationsService.method.getStatus, {});
  const peers = status.data?.nodes.flatMap(({ report }) => report?.unnamedProxies ?? []) ?? [];
  if (peers.length === 0) return <>{children}</>;
  const names = [...new Set(peers)].sort().join(", ");
  return <Notice tone="warn">{words.health.unnamedProxies(names)}</Notice>;
}
