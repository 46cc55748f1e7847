/** Writes to the terminal, a file or a pipe whose reader may have closed it. */
import { fstatSync, readlinkSync, type Stats, writeSync } from 'node:fs';
import { WriteFailure } from './failure.ts';

export interface Output {
  /** Writes one line of the result to standard output. */
  line(text: string): void;
  /** Writes one line about the result to standard error. */
  note(text: string): void;
  /** Clears the terminal, if standard output is one. */
  clear?(): void;
  /** Writes a line with a colored first word, if the reader wants colors. Default: `line`. */
  colored?(color: Color, word: string, rest: string): void;
}

/** Color numbers of ECMA-48. */
const COLORS = { red: 31, green: 32, yellow: 33, blue: 34 } as const;
export type Color = keyof typeof COLORS;

/** Clears a terminal and moves to the first line. */
const CLEAR = '\u001b[2J\u001b[H';
/** Control characters other than the line feed and the tab. */
const CONTROL = /(?![\n\t])\p{Cc}/gu;

/**
 * Removes characters that move a terminal's cursor, change its title or worse: programs choose their
 * names, and peers their data.
 */
function printable(text: string): string {
  return text.replace(CONTROL, '?');
}

/** Standard output and standard error of this process. */
export const STANDARD_OUTPUT: Output = {
  line: (text) => print(`${printable(text)}\n`),
  note: (text) => {
    process.stderr.write(`${printable(text)}\n`);
  },
  clear: () => {
    if (process.stdout.isTTY) process.stdout.write(CLEAR);
  },
  colored: (color, word, rest) => {
    const { isTTY } = process.stdout;
    const text = wantsColors(isTTY, process.env)
      ? painted(color, printable(word))
      : printable(word);
    print(`${text}${printable(rest)}\n`);
  },
};

const STANDARD_OUTPUT_FD = 1;
let outputIsFile: boolean | undefined;

/**
 * Writes to standard output. Throws WriteFailure on a full disk: Node would write as much as fits and
 * report nothing.
 */
function print(text: string): void {
  outputIsFile ??= isFile(fstatSync(STANDARD_OUTPUT_FD));
  if (!outputIsFile) {
    process.stdout.write(text);
    return;
  }
  const bytes = Buffer.from(text);
  try {
    for (let done = 0; done < bytes.length; ) done += writeSync(STANDARD_OUTPUT_FD, bytes, done);
  } catch (error) {
    throw new WriteFailure(outputName(), error);
  }
}

/** A file, or a device such as /dev/full. */
function isFile(stats: Stats): boolean {
  return stats.isFile() || (stats.isCharacterDevice() && !process.stdout.isTTY);
}

function outputName(): string {
  try {
    return readlinkSync(`/proc/self/fd/${STANDARD_OUTPUT_FD}`);
  } catch {
    return 'standard output';
  }
}

/** Whether to print colors: on a terminal that supports them, unless `NO_COLOR` is set (no-color.org). */
export function wantsColors(isTerminal: boolean, environment: NodeJS.ProcessEnv): boolean {
  const { NO_COLOR = '', TERM } = environment;
  return isTerminal && NO_COLOR === '' && TERM !== 'dumb';
}

function painted(color: Color, text: string): string {
  return `\u001b[${COLORS[color]}m${text}\u001b[0m`;
}

/**
 * Calls `onClosed` when the reader of the output has closed it (`iwarpd status | head`), as SIGPIPE ends
 * other programs; Node ignores SIGPIPE. By default, ends the process silently.
 */
export function endOnClosedPipe(onClosed: () => void = () => process.exit(0)): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      onClosed();
    });
  }
}

/**
 * Version of every `--json` output without its own version. Within a version, fields may be added; none
 * is removed, renamed or changed in meaning or type.
 */
const JSON_FORMAT = 1;

/** Prints an object as JSON with its `format` first, indented. */
export function printJson(output: Output, value: object): void {
  output.line(escaped(JSON.stringify({ format: JSON_FORMAT, ...value }, undefined, 2)));
}

/** An object as JSON on one line, for a stream of objects. */
export function jsonLine(value: object): string {
  return escaped(JSON.stringify({ format: JSON_FORMAT, ...value }));
}

/** Escapes control characters that JSON does not escape and a terminal would act on. */
/** `1 client`, `2 clients`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

function escaped(json: string): string {
  return json.replace(/[\u007f-\u009f]/g, (each) => `\\u00${each.charCodeAt(0).toString(16)}`);
}

/** Lines of a table with columns as wide as their widest cell; the first row is the header. */
export function tableLines(given: readonly (readonly string[])[]): string[] {
  // A line feed in a name must not look like another row.
  const rows = given.map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, '?')));
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
