/** Parses C constants and structs, in the forms that the preload library uses. */

/** A struct of C: the offset and the size of each field, and the size of all, in bytes. */
export interface CStruct {
  readonly fields: ReadonlyMap<string, { readonly offset: number; readonly bytes: number }>;
  readonly bytes: number;
  readonly alignment: number;
}

/** The result of `declarationsOf`, by name; an unknown name throws. */
interface CDeclarations {
  constant(name: string): number;
  struct(name: string): CStruct;
  /** The constants of an enum. */
  members(name: string): ReadonlyMap<string, number>;
}

const INTEGER = /^u?int(8|16|32|64)_t$/;
const OPERATION = /^\(?(\w+)(?: (\*|<<|\|) (\w+))?\)?$/;

/** Reads `text`: constants are literals or one operation, fields are integers, arrays and structs. */
export function declarationsOf(text: string): CDeclarations {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '');
  const constants = new Map<string, number>();
  const enums = new Map<string, Map<string, number>>();
  const structs = new Map<string, CStruct>();

  const operand = (word: string): number | undefined =>
    /^\d/.test(word) ? Number(word.replace(/[uUlL]+$/, '')) : constants.get(word);
  const evaluate = (expression: string): number | undefined => {
    const [, word = '', operator, other = ''] = OPERATION.exec(expression.trim()) ?? [];
    const [left, right] = [operand(word), operand(other)];
    if (left === undefined || operator === undefined) return left;
    if (right === undefined) return undefined;
    if (operator === '*') return left * right;
    return operator === '<<' ? left * 2 ** right : (left | right) >>> 0;
  };
  const shapeOf = (type: string): { bytes: number; alignment: number } | undefined => {
    const [, bits] = INTEGER.exec(type) ?? [];
    if (bits !== undefined) return { bytes: Number(bits) / 8, alignment: Number(bits) / 8 };
    return structs.get(type.replace('struct ', ''));
  };
  /** Undefined for a struct with fields of other types, which never leaves its process. */
  const structOf = (body: string): CStruct | undefined => {
    const fields = new Map<string, { offset: number; bytes: number }>();
    let end = 0;
    let largest = 1;
    for (const [, type = '', names = ''] of body.matchAll(/((?:struct )?\S+) ([^;]+);/g)) {
      const shape = shapeOf(type);
      if (shape === undefined) return undefined;
      const { bytes, alignment } = shape;
      largest = Math.max(largest, alignment);
      for (const declarator of names.split(',')) {
        const [, name = '', count] = /(\w+)(?:\[(\w+)\])?/.exec(declarator) ?? [];
        const offset = Math.ceil(end / alignment) * alignment;
        end = offset + bytes * (count === undefined ? 1 : (operand(count) ?? Number.NaN));
        fields.set(name, { offset, bytes: end - offset });
      }
    }
    return { fields, bytes: Math.ceil(end / largest) * largest, alignment: largest };
  };

  const DECLARATION = /^#define (\w+) (.+)$|^enum (\w+) \{([^}]*)\}|^struct (\w+) \{([^}]*)\}/gm;
  for (const found of code.matchAll(DECLARATION)) {
    const [, name = '', expression, kind, members = '', structure, body = ''] = found;
    if (expression !== undefined) {
      const value = evaluate(expression);
      if (value !== undefined) constants.set(name, value);
    } else if (kind !== undefined) {
      const pairs = [...members.matchAll(/(\w+) = (\w+)/g)];
      const own = new Map(pairs.map(([, member = '', value = '']) => [member, Number(value)]));
      enums.set(kind, own);
      for (const [member, value] of own) constants.set(member, value);
    } else if (structure !== undefined) {
      const struct = structOf(body);
      if (struct !== undefined) structs.set(structure, struct);
    }
  }
  return {
    constant: (name) => expectKnown(constants, name),
    struct: (name) => expectKnown(structs, name),
    members: (name) => expectKnown(enums, name),
  };
}

function expectKnown<T>(known: ReadonlyMap<string, T>, name: string): T {
  const found = known.get(name);
  if (found === undefined) throw new Error(`no ${name} in the C sources`);
  return found;
}
