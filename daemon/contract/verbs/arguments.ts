/**
 * Checks arguments of public functions, for programs that no compiler checks. A table of kinds
 * describes the parameters of each function; a wrong argument is refused with EINVAL that names it,
 * its value and the accepted values. For calls that create or change something; calls that post or
 * poll have their own checks.
 */
import { invalid, VerbsError } from './errors.ts';

/** The required type and range of a value. */
export interface Kind {
  /** In words: `a whole number from 0 to 65535`. */
  readonly wants: string;
  /** True if undefined stands for a default. */
  readonly optional: boolean;
  /** Returns why `value`, which is called `name`, is wrong; undefined if it is right. */
  refusal(value: unknown, name: string): string | undefined;
}

/** A kind that permits undefined. */
export interface OptionalKind extends Kind {
  readonly optional: true;
}

/** The kinds of all fields of `T`; an optional field has an optional kind. */
type KindsOf<T> = {
  readonly [K in keyof T]-?: undefined extends T[K] ? OptionalKind : Kind;
};

/** Longest part of a program's text in a message. */
const QUOTED_MAX = 40;
const LONG_END = 1n << 64n;

/** A kind whose values pass `test`. */
export function kind(wants: string, test: (value: unknown) => boolean): Kind {
  return {
    wants,
    optional: false,
    refusal: (value, name) => (test(value) ? undefined : mismatch(name, wants, value)),
  };
}

/** `inner` under a name that the program's author knows. */
export function called(wants: string, inner: Kind): Kind {
  return kind(wants, (value) => inner.refusal(value, '') === undefined);
}

/** `inner`, or undefined. */
export function optional(inner: Kind): OptionalKind {
  return {
    wants: inner.wants,
    optional: true,
    refusal: (value, name) => (value === undefined ? undefined : inner.refusal(value, name)),
  };
}

/** One of two kinds. */
export function either(one: Kind, other: Kind): Kind {
  return {
    wants: `${one.wants} or ${other.wants}`,
    optional: false,
    refusal(value, name) {
      const refused = one.refusal(value, name);
      if (refused === undefined || other.refusal(value, name) === undefined) return undefined;
      // An object was meant for the kind that has fields.
      if (isObject(value)) return other.refusal(value, name);
      return mismatch(name, `${one.wants} or ${other.wants}`, value);
    },
  };
}

export function wholeNumber(min: number, max: number = Number.MAX_SAFE_INTEGER): Kind {
  const range = max === Number.MAX_SAFE_INTEGER ? `from ${min} on` : `from ${min} to ${max}`;
  const fits = (value: number): boolean =>
    Number.isSafeInteger(value) && value >= min && value <= max;
  return kind(`a whole number ${range}`, (value) => typeof value === 'number' && fits(value));
}

/** A number, which its receiver checks further. */
export const NUMBER = kind(
  'a number',
  (value) => typeof value === 'number' && !Number.isNaN(value),
);
/** 32 bits without a sign. */
export const UINT32 = wholeNumber(0, 0xffff_ffff);
/** A TCP or UDP port. */
export const PORT = wholeNumber(0, 65_535);
/** Milliseconds of a Node timer, which is limited to 24 days. */
export const MILLISECONDS = kind(
  'a number of milliseconds from 0 to 2147483647',
  (value) => typeof value === 'number' && value >= 0 && value <= 2 ** 31 - 1,
);
/** 64 bits without a sign, as a number or a bigint. */
export const LONG = kind('a whole number from 0 on or a bigint of 64 bits', (value) =>
  typeof value === 'bigint'
    ? value >= 0n && value < LONG_END
    : typeof value === 'number' && Number.isSafeInteger(value) && value >= 0,
);
/** A whole number of any sign, as a number or a bigint: operands wrap at 64 bits. */
export const OPERAND = kind(
  'a whole number or a bigint',
  (value) => typeof value === 'bigint' || Number.isSafeInteger(value),
);
export const TEXT = kind('a string', (value) => typeof value === 'string');
/** True or false. */
export const FLAG = kind('true or false', (value) => typeof value === 'boolean');
/** Bytes; a `Buffer` is such an array. */
export const BYTES = kind('a Uint8Array', (value) => value instanceof Uint8Array);
/** True for bytes whose memory was transferred, to a worker for example: they look empty. */
export function isTransferred({ buffer, byteLength }: Uint8Array): boolean {
  if (byteLength > 0) return false;
  try {
    new Uint8Array(buffer);
    return false;
  } catch {
    return true;
  }
}

export const FUNCTION = kind('a function', (value) => typeof value === 'function');
export const ANYTHING = kind('a value', () => true);
/** An object; its receiver checks the fields. */
export const OBJECT = kind('an object', isObject);

/** An object of text, numbers and booleans, whose fields a daemon checks. */
export const PLAIN_FIELDS: Kind = {
  wants: 'an object',
  optional: false,
  refusal(value, name) {
    if (!isObject(value) || Array.isArray(value)) return mismatch(name, 'an object', value);
    for (const [field, each] of Object.entries(value)) {
      const refused = PLAIN.refusal(each, `${name}.${field}`);
      if (refused !== undefined) return refused;
    }
    return undefined;
  },
};
const PLAIN = optional(
  kind('a string, a number or a boolean', (value) =>
    ['string', 'number', 'boolean'].includes(typeof value),
  ),
);

/** The kind of a partial copy of `sample`: each field has the type of the same field in `sample`. */
export function partOf(sample: object): Kind {
  const entries = Object.entries(sample).map(([name, value]): [string, Kind] => {
    const type = typeof value;
    const wants = type === 'object' ? 'an object' : `a ${type}`;
    return [name, optional(kind(wants, (given) => typeof given === type && given !== null))];
  });
  return recordOf(Object.fromEntries(entries), true);
}

/** One of these values, which `names` lists. */
export function oneOf(values: readonly unknown[], names = values.map(quoted).join(', ')): Kind {
  return kind(`one of ${names}`, (value) => values.includes(value));
}

/** A member of a set of numbers such as `QPState`. */
export function memberOf(set: Readonly<Record<string, number>>, name: string): Kind {
  const values: ReadonlySet<unknown> = new Set(Object.values(set));
  return kind(`a member of ${name}`, (value) => values.has(value));
}

/** An object with these methods, which messages call `wants`. */
export function objectWith(wants: string, ...methods: readonly string[]): Kind {
  return kind(
    wants,
    (value) =>
      isObject(value) &&
      methods.every((method) => typeof Reflect.get(value, method) === 'function'),
  );
}

/** An array of elements of a kind. */
export function listOf(element: Kind): Kind {
  return {
    wants: 'an array',
    optional: false,
    refusal(value, name) {
      if (!Array.isArray(value)) return mismatch(name, `an array, each ${element.wants}`, value);
      const index = value.findIndex((each) => element.refusal(each, name) !== undefined);
      return index < 0 ? undefined : element.refusal(value[index], `${name}[${index}]`);
    },
  };
}

/** An object with these fields, and perhaps with others. */
export function fields<T extends object>(kinds: KindsOf<T>): Kind {
  return recordOf(kinds, false);
}

/** Like `fields`, but a plain object may have no others: they are misspelt options. */
export function options<T extends object>(kinds: KindsOf<T>): Kind {
  return recordOf(kinds, true);
}

/**
 * A check of a function's arguments against the names and kinds of its parameters, in order. Throws
 * EINVAL.
 */
export function takes(
  call: string,
  parameters: Readonly<Record<string, Kind>>,
): (...values: readonly unknown[]) => void {
  const kinds = Object.entries(parameters);
  return (...values) => {
    for (let index = 0; index < kinds.length; index += 1) {
      const [name, parameter] = kinds[index] ?? ['', ANYTHING];
      const refused = parameter.refusal(values[index], name);
      if (refused !== undefined) throw invalid(`${call}: ${refused}`);
    }
  };
}

/** The error of such a check, for calls that reject instead of throwing; undefined for valid arguments. */
export function refusalBy(
  check: (...values: readonly unknown[]) => void,
  ...values: readonly unknown[]
): VerbsError | undefined {
  try {
    check(...values);
    return undefined;
  } catch (error) {
    if (error instanceof VerbsError) return error;
    throw error;
  }
}

/** The entry of `known` that was probably meant by `word`; undefined if none is near. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const [best] = known
    .map((each) => ({ each, steps: stepsBetween(word.toLowerCase(), each.toLowerCase()) }))
    .filter(({ each, steps }) => steps <= Math.max(each.length, word.length) / 2)
    .sort((one, other) => one.steps - other.steps);
  return best?.each ?? onlyStart(word, known);
}

/** The only entry that starts with `word`, if that has more than one letter. */
function onlyStart(word: string, known: readonly string[]): string | undefined {
  const started = known.filter((each) => each.toLowerCase().startsWith(word.toLowerCase()));
  return word.length >= 3 && started.length === 1 ? started[0] : undefined;
}

function recordOf(kinds: Readonly<Record<string, Kind>>, strict: boolean): Kind {
  const known = Object.entries(kinds);
  const needed = known.filter(([, { optional: isOptional }]) => !isOptional);
  const wants =
    needed.length === 0 ? 'an object' : `an object with ${needed.map(([name]) => name).join(', ')}`;
  return {
    wants,
    optional: false,
    refusal(value, name) {
      if (!isObject(value) || Array.isArray(value)) return mismatch(name, wants, value);
      if (strict && value instanceof Promise) return mismatch(name, wants, value);
      const unknown =
        strict && isPlain(value) ? unknownField(value, kinds, 'option', placeOf(name)) : undefined;
      if (unknown !== undefined) return unknown;
      for (const [field, each] of known) {
        const given: unknown = Reflect.get(value, field);
        // Most are valid: a field's name is built only for an invalid one.
        if (each.refusal(given, field) !== undefined)
          return each.refusal(given, `${name}.${field}`);
      }
      return undefined;
    },
  };
}

/** Prefix of the names of options in `options.wire`: `wire.`. */
function placeOf(name: string): string {
  const at = name.indexOf('.');
  return at < 0 ? '' : `${name.slice(at + 1)}.`;
}

/** The first field of `value` that `known` lacks, in words, with a suggestion; undefined if none. */
export function unknownField(
  value: object,
  known: object,
  noun: 'field' | 'option',
  place = '',
): string | undefined {
  const unknown = Object.keys(value).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return undefined;
  const names = Object.keys(known);
  const near = nearest(unknown, names);
  const advice = near === undefined ? `there are ${names.join(', ')}` : `did you mean '${near}'?`;
  return `unknown ${noun} ${quoted(`${place}${unknown}`)}; ${advice}`;
}

function mismatch(name: string, wants: string, value: unknown): string {
  return value === undefined
    ? `${name} is required: ${wants}`
    : `${name} must be ${wants}, not ${described(value)}`;
}

/** A value in words, for a message. */
export function described(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return `the string ${quoted(value)}`;
    case 'bigint':
      return `${clipped(String(value))}n`;
    case 'function':
      return 'a function';
    case 'object':
      return value === null ? 'null' : describedObject(value);
    default:
      return String(value);
  }
}

function describedObject(value: object): string {
  if (Array.isArray(value)) return 'an array';
  if (value instanceof Promise) return 'a Promise: `await` it';
  if (isPlain(value)) return 'an object';
  const { constructor: type } = value;
  const name = typeof type === 'function' ? clipped(type.name) : '';
  return name === '' ? 'an object' : `an object of class ${name}`;
}

function quoted(value: unknown): string {
  return typeof value === 'string' ? `'${clipped(value)}'` : String(value);
}

function clipped(text: string): string {
  return text.length <= QUOTED_MAX ? text : `${text.slice(0, QUOTED_MAX)}…`;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** True for an object literal, not for one of a class. */
export function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Insertions, deletions and replacements that turn one word into another (Levenshtein). */
function stepsBetween(one: string, other: string): number {
  const [short, long] = [one.slice(0, QUOTED_MAX), other.slice(0, QUOTED_MAX)];
  let row = Array.from({ length: long.length + 1 }, (_, index) => index);
  for (let at = 1; at <= short.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= long.length; to += 1) {
      const replaced = (row[to - 1] ?? 0) + (short[at - 1] === long[to - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[to] ?? 0) + 1, (next[to - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
