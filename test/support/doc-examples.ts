/**
 * Examples in Markdown files: fenced blocks, and the comment in front of one that describes it.
 *
 * ```
 *  <!-- given: a line of code that the reader need not see; one such comment for each
 *  continues: the previous block of its language, whose code comes first
 *  needs: names of packages in test/interop/packages
 *  not run: why not -->
 * ```
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** A fenced block. */
export interface DocExample {
  /** File below the repository, and the line at which the block begins. */
  readonly place: string;
  readonly language: string;
  readonly text: string;
  /** Hidden lines before it. */
  readonly given: readonly string[];
  readonly needs: readonly string[];
  /** Continues the previous block of its language. */
  readonly goesOn: boolean;
  readonly notRun: string | undefined;
}

/** A line of a console block that a reader types, and the output shown after it. */
export interface DocCommand {
  readonly command: string;
  readonly expected: readonly string[];
}

const SKIPPED_FOLDERS = new Set(['node_modules', 'dist', '.git', '.cache']);

/** All fenced blocks of all Markdown files below `root`. */
export function docExamples(root: string): DocExample[] {
  return markdownFiles(root).flatMap((path) =>
    examplesOf(relative(root, path), readFileSync(path, 'utf8')),
  );
}

function markdownFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return SKIPPED_FOLDERS.has(entry.name) ? [] : markdownFiles(path);
      return entry.name.endsWith('.md') ? [path] : [];
    })
    .sort();
}

/** The fenced blocks of one file. Throws when a block has no end, or a comment makes no sense. */
function examplesOf(file: string, text: string): DocExample[] {
  const found: DocExample[] = [];
  const fence =
    /((?:^<!--(?:(?!-->)[\s\S])*-->\n+)*)^( *)```([a-z]*)\n((?:(?!^ *```)[^\n]*\n)*)^ *```$/gm;
  for (const match of text.matchAll(fence)) {
    const [, comments = '', indent = '', language = '', body = ''] = match;
    const line = text.slice(0, match.index + comments.length).split('\n').length;
    found.push({
      place: `${file}:${line}`,
      language,
      text: body.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
      ...directivesOf(comments, `${file}:${line}`),
    });
  }
  const fences = text.match(/^ *```/gm)?.length ?? 0;
  if (fences !== 2 * found.length) throw new Error(`${file}: a block has no end`);
  return found;
}

function directivesOf(comments: string, place: string): Pick<DocExample, Directive> {
  const given: string[] = [];
  const needs: string[] = [];
  let notRun: string | undefined;
  let goesOn = false;
  for (const [, comment = ''] of comments.matchAll(/<!--\s*((?:(?!-->)[\s\S])*?)\s*-->/g)) {
    for (const line of comment.split('\n')) {
      const [, name, value = ''] = /^\s*(given|needs|not run|continues): (.+)$/.exec(line) ?? [];
      if (name === 'given') given.push(value);
      else if (name === 'needs') needs.push(...value.trim().split(/\s+/));
      else if (name === 'not run') notRun = value;
      else if (name === 'continues') goesOn = true;
      else throw new Error(`${place}: what is "${line}"?`);
    }
  }
  return { given, needs, goesOn, notRun };
}

type Directive = 'given' | 'needs' | 'goesOn' | 'notRun';

/** The commands of a console block, after `$ ` or `here$ `, without those of a peer. */
export function commandsOf(text: string): DocCommand[] {
  const commands: { command: string; expected: string[] }[] = [];
  let elsewhere = false;
  for (const line of text.trimEnd().split('\n')) {
    const [, host, typed] = /^(here|peer)?[$#] (.*)$/.exec(line) ?? [];
    if (typed !== undefined) elsewhere = host === 'peer';
    if (elsewhere) continue;
    const last = commands.at(-1);
    if (typed !== undefined) commands.push({ command: typed, expected: [] });
    else if (last?.command.endsWith('\\') === true) last.command = `${last.command}\n${line}`;
    else if (last === undefined) throw new Error(`no command stands before "${line}"`);
    else last.expected.push(line);
  }
  return commands;
}

/** Text that differs from run to run, on both sides of a comparison. */
const VARYING: readonly (readonly [RegExp, string])[] = [
  [/(?<![\w.])\/(?:home|run|tmp|var)\/[^\s,;:]+/g, '<path>'],
  [/\b\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<time>'],
  [/\b0x[0-9a-f]+\b/g, '<hex>'],
  [/\b[0-9a-f]{16}\b/g, '<guid>'],
  [/\d+(?:[.,]\d+)*/g, '<n>'],
  [/-{4,}/g, '<rule>'],
  [/\s+/g, ' '],
];

/** True when `actual` matches the `shown` output of a block: `…` matches any text. */
export function isAsShown(shown: string, actual: string): boolean {
  const parts = steady(shown).split('…');
  const pattern = parts.map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('.*');
  return new RegExp(`^${pattern}$`).test(steady(actual));
}

function steady(line: string): string {
  return VARYING.reduce((text, [varying, name]) => text.replaceAll(varying, name), line).trim();
}
