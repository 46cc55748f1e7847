/** Attributes of queue pairs in structs of the kernel, at the places that the verbs' table says. */
import { QP_ATTRIBUTES, QP_FIELDS, type QPField } from '#contract/verbs/qp-attributes';

/** Writes the attributes to a struct whose fields begin at `start`; 0 for those not given. */
export function putAttributes(
  fields: DataView,
  start: number,
  struct: 'uverbs' | 'cm',
  values: Readonly<Partial<Record<QPField, number | undefined>>>,
): void {
  for (const name of QP_FIELDS) {
    const { at, bytes } = QP_ATTRIBUTES[name][struct];
    const value = values[name] ?? 0;
    if (bytes === 1) fields.setUint8(start + at, value);
    else if (bytes === 2) fields.setUint16(start + at, value, true);
    else fields.setUint32(start + at, value, true);
  }
}

/** The attributes of a MODIFY_QP, given or not. */
export function readAttributes(fields: DataView, start: number): Readonly<Record<QPField, number>> {
  const values = QP_FIELDS.map((name) => {
    const { at, bytes } = QP_ATTRIBUTES[name].uverbs;
    if (bytes === 1) return [name, fields.getUint8(start + at)];
    if (bytes === 2) return [name, fields.getUint16(start + at, true)];
    return [name, fields.getUint32(start + at, true)];
  });
  return Object.fromEntries(values) as Record<QPField, number>;
}
