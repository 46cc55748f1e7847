/** Positions in a JSON text, for messages about configuration files. */
import { createRequire } from 'node:module';
import type { ParseError } from 'jsonc-parser';

/** Loads the parser, which takes 10 ms, when a file is not JSON. */
const load = createRequire(import.meta.url);

/** Line and column, counted from 1: `3:14`. */
type Place = `${number}:${number}`;

/**
 * The position of the field at `path` in `text`, which is valid JSON. For a missing field, that of the
 * object or list that should contain it. Of a duplicate name, the last one counts, as for `JSON.parse`.
 */
export function placeOfField(text: string, path: readonly string[]): Place {
  return placeAt(text, new Scanner(text).find(path));
}

/** The first position at which `text` is not JSON, and the error; undefined if that is unknown. */
export function syntaxFault(
  text: string,
): { readonly place: Place; readonly reason: string } | undefined {
  const parser: typeof import('jsonc-parser') = load('jsonc-parser');
  const errors: ParseError[] = [];
  try {
    parser.parse(text, errors, { disallowComments: true, allowTrailingComma: false });
  } catch (error) {
    // The parser recurses into nested lists, and the stack is finite.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
  const [first] = errors;
  if (first === undefined) return undefined;
  const words = parser
    .printParseErrorCode(first.error)
    .replaceAll(/\B[A-Z]/g, (letter) => ` ${letter}`);
  return { place: placeAt(text, first.offset), reason: `not JSON: ${words.toLowerCase()}` };
}

function placeAt(text: string, offset: number): Place {
  const lines = text.slice(0, offset).split('\n');
  return `${lines.length}:${(lines.at(-1)?.length ?? 0) + 1}`;
}

const SPACE = /\s/;
const VALUE_END = /[\s,\]}]/;

class Scanner {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The offset of the field, or of the innermost object or list on the way to it. */
  find(path: readonly string[]): number {
    this.#skipSpace();
    let found = this.#at;
    for (const name of path) {
      this.#at = found;
      const next = this.#member(name);
      if (next === undefined) break;
      found = next;
    }
    return found;
  }

  /** The offset of the value with this name, or index, in the current object or list. */
  #member(name: string): number | undefined {
    const opened = this.#text[this.#at];
    if (opened !== '{' && opened !== '[') return undefined;
    this.#at += 1;
    let found: number | undefined;
    for (let index = 0; ; index += 1) {
      this.#skipSpace();
      const next = this.#text[this.#at];
      if (next === undefined || next === '}' || next === ']') return found;
      const own = opened === '[' ? String(index) : this.#name();
      this.#skipSpace();
      if (own === name) found = this.#at;
      this.#skipValue();
      this.#skipSpace();
      if (this.#text[this.#at] === ',') this.#at += 1;
    }
  }

  /** Reads a name and its colon. */
  #name(): string {
    const start = this.#at;
    this.#skipString();
    const name: unknown = JSON.parse(this.#text.slice(start, this.#at));
    this.#skipSpace();
    this.#at += 1;
    return String(name);
  }

  #skipSpace(): void {
    while (SPACE.test(this.#text[this.#at] ?? '')) this.#at += 1;
  }

  #skipString(): void {
    for (this.#at += 1; this.#at < this.#text.length; this.#at += 1) {
      const letter = this.#text[this.#at];
      if (letter === '\\') this.#at += 1;
      else if (letter === '"') break;
    }
    this.#at += 1;
  }

  /** Not recursive: a file may nest deeply. */
  #skipValue(): void {
    let depth = 0;
    do {
      const letter = this.#text[this.#at];
      if (letter === undefined) return;
      if (letter === '"') this.#skipString();
      else if (letter === '{' || letter === '[') depth += 1;
      else if (letter === '}' || letter === ']') depth -= 1;
      else if (depth === 0) {
        while (!VALUE_END.test(this.#text[this.#at] ?? ',')) this.#at += 1;
        return;
      }
      if (letter !== '"') this.#at += 1;
    } while (depth > 0);
  }
}
