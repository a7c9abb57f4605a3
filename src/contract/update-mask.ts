// Update masks: which fields of a message a call changes. One rule for every method that has one.

import { type DescMessage, isFieldSet, type MessageShape } from "@bufbuild/protobuf";
import type { FieldMask } from "@bufbuild/protobuf/wkt";
import { invalidField } from "../base/errors.ts";

/** What a method's mask may name, and how its request calls the fields. */
export type MaskRule<Type extends DescMessage> = {
  readonly type: Type;
  /** The fields that may be changed. */
  readonly changeable: readonly string[];
  /** Before the names of fields in errors, such as `settings.`. */
  readonly values: string;
  /** The name of the mask in errors. Default: `update_mask`. */
  readonly mask?: string;
};

/**
 * The fields that a mask names, each once. One that is named and not set is to be cleared. Throws
 * `invalid_request` for a mask that is empty or names any other field, and for a field that is set
 * and that the mask does not name: the caller would take it for changed.
 */
export function readMask<Type extends DescMessage>(
  { type, changeable, values, mask: name = "update_mask" }: MaskRule<Type>,
  message: MessageShape<Type> | undefined,
  mask: FieldMask | undefined,
): string[] {
  const paths = [...new Set(mask?.paths)];
  if (paths.length === 0) throw invalidField(name, "has to name at least one field");
  // A `*` too: it would clear the fields that the caller's version does not know.
  if (!paths.every((path) => changeable.includes(path)))
    throw invalidField(name, "names a field that cannot be changed", changeable);
  const stray = type.fields.find(
    (field) => message && isFieldSet(message, field) && !paths.includes(field.name),
  );
  if (stray) throw invalidField(`${values}${stray.name}`, `is set, and ${name} does not name it`);
  return paths;
}
