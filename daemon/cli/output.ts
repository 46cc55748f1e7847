/** Writing to the terminal, a file or a pipe whose reader may have gone. */

/** Where a command writes. */
export interface Output {
  /** One line of result, to standard output. */
  line(text: string): void;
  /** One line about the result, to standard error. */
  note(text: string): void;
}

/** Standard output and standard error of this process. */
export const STANDARD_OUTPUT: Output = {
  line: (text) => {
    process.stdout.write(`${text}\n`);
  },
  note: (text) => {
    process.stderr.write(`${text}\n`);
  },
};

/**
 * Ends the process without a word when the reader of its output has gone (`iwarpd status | head`),
 * as programs do that take SIGPIPE, which Node ignores.
 */
export function endOnClosedPipe(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') process.exit(0);
      throw error;
    });
  }
}

/** Prints `value` as JSON, indented for people, its keys in the order given. */
export function printJson(output: Output, value: unknown): void {
  output.line(JSON.stringify(value, undefined, 2));
}

/** Lines of a table whose columns are as wide as their widest cell; the first row is the head. */
export function tableLines(rows: readonly (readonly string[])[]): string[] {
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
