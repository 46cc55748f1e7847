/** Generated parts of a README, between two comments that name them. */
import { CommandFailure } from '#daemon/console/failure';

/**
 * `text` with `lines` between the comments of the block `name`. Throws CommandFailure if there is
 * no such block.
 */
export function replaceBlock(text: string, name: string, lines: readonly string[]): string {
  const [begin, end] = [`<!-- begin ${name} -->`, `<!-- end ${name} -->`];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) {
    throw new CommandFailure(`README.md has no block ${name}; add the lines ${begin} and ${end}`);
  }
  const body = ['', '', ...lines, '', ''].join('\n');
  return text.slice(0, from + begin.length) + body + text.slice(to);
}

/** A table in Markdown whose columns are as wide as their widest cell; the first row is the header. */
export function markdownTable(rows: readonly (readonly string[])[]): string[] {
  const [head = []] = rows;
  const cells = rows.map((row) =>
    head.map((_, column) => (row[column] ?? '').replaceAll('|', '\\|')),
  );
  const widths = head.map((_, column) =>
    Math.max(3, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  const line = (row: readonly string[], fill: string) =>
    `| ${widths.map((width, column) => (row[column] ?? '').padEnd(width, fill)).join(' | ')} |`;
  const [first = [], ...others] = cells;
  return [line(first, ' '), line([], '-'), ...others.map((row) => line(row, ' '))];
}
