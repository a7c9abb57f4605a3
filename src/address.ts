// Addresses as clients write them.

/** `host:port`, an IPv6 host in brackets. */
export function hostAndPort(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
