// Texts that must not stand in the address of a page, which browsers keep and people send on.

/** True for a text that may have a secret in it, of ours or of a provider, or a sign-in link. */
export function hasSecret(text: string): boolean {
  return /(?<![A-Za-z0-9])(sk|mk|adm)-[\w-]{12,}|\/welcome#./i.test(text);
}

/** The text with no more of its secret than a hint has. */
export function withoutSecret(text: string): string {
  return hasSecret(text) ? `${text.slice(0, 12)}…` : text;
}
