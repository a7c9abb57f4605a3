// Text as HTML and back.

const entities: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" },
};
const characters = new Map(Object.entries(entities).map(([one, entity]) => [entity, one]));

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (one) => entities[one] ?? one);
}

/** The text of rendered HTML, on one line. */
export function textOf(html: string): string {
  return html
    .replace(/<[^>]*>/g, (tag) => (/^<\/?(code|em|strong|a|del)\b/.test(tag) ? "" : " "))
    .replace(/&(?:amp|lt|gt|quot|#39);/g, (entity) => characters.get(entity) ?? entity)
    .replace(/\s+/g, " ")
    .trim();
}
