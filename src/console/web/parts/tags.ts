// Tags in addresses and fields, as `team=a,env=ci`.

/** Values by key. What is no tag has an empty value, which the service refuses with its reason. */
export function parseTags(text: string): Record<string, string> {
  const parts = [...text.matchAll(/([^,=]+)=?([^,]*)/g)];
  return Object.fromEntries(parts.map(([, key = "", value = ""]) => [key.trim(), value.trim()]));
}

/** Tags as people read and write them, in the order of their keys. */
export function tagsText(tags: Readonly<Record<string, string>>): string {
  return Object.entries(tags)
    .map((tag) => tag.join("="))
    .sort()
    .join(", ");
}
