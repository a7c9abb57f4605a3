// Words of the values of enums.

/**
 * What `texts` has for a value of `values`, an enum of a service. A value that a newer gateway has,
 * and this page does not know, is UNSPECIFIED.
 */
export function textOf<Text>(
  values: Readonly<Record<string, number>>,
  texts: Readonly<Record<string, Text>> & { readonly UNSPECIFIED: Text },
  value: number,
): Text {
  const name = Object.keys(values).find((one) => values[one] === value) ?? "";
  return texts[name] ?? texts.UNSPECIFIED;
}
