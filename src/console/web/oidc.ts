// The way to a company's sign-in and back: the whole page goes there, or a window beside it, so
// that what was typed stays. Both come back to `/console/welcome?oidc=…`.

const channelName = "gateway-oidc";
const nextKey = "gateway-next";

/** Goes to the provider. Afterwards the page continues at `next`, an address of the console. */
export function leaveFor(url: string, next: string): void {
  sessionStorage.setItem(nextKey, next);
  location.assign(url);
}

/** Where to continue after the provider. Undefined: this is a window beside the page. */
export function takeNext(): string | undefined {
  const next = sessionStorage.getItem(nextKey) ?? undefined;
  sessionStorage.removeItem(nextKey);
  return next;
}

/** Reports the outcome to the page beside which this window was opened. */
export function reportOutcome(outcome: string): void {
  const channel = new BroadcastChannel(channelName);
  channel.postMessage(outcome);
  channel.close();
}

/**
 * Opens the provider in a window of its own. Resolves with the outcome: `signed-in`, `confirmed`,
 * or the reason of an error. The window cannot be watched: it leaves for another origin.
 */
export function openBeside(
  provider: string,
  purpose: "confirm" | "sign-in",
  signal: AbortSignal,
): Promise<string> {
  const query = purpose === "confirm" ? "?purpose=confirm" : "";
  const path = `/console/oidc/${encodeURIComponent(provider)}/start${query}`;
  const channel = new BroadcastChannel(channelName);
  signal.addEventListener("abort", () => channel.close());
  open(path, "gateway-sign-in", "popup,width=520,height=720");
  return new Promise((resolve) => {
    channel.onmessage = ({ data }) => {
      channel.close();
      resolve(String(data));
    };
  });
}
