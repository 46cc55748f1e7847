/** Reads the requirement rows and finds where code and tests cite them. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Who can observe whether a requirement is kept; `inside`: nothing outside the daemon can. */
export const SEEN_BY = ['peer', 'consumer', 'inside'] as const;
type SeenBy = (typeof SEEN_BY)[number];

/** Subjects of rows, each with separate totals. */
export const GROUPS = ['RFCs', 'RoCE'] as const;
type Group = (typeof GROUPS)[number];

/** One normative statement. */
export interface Requirement {
  readonly id: string;
  /** The number of an RFC, or another source that states it. */
  readonly source: string;
  readonly section: string;
  readonly level: string;
  readonly seen: SeenBy;
  /** The requirement, in our own words. */
  readonly text: string;
}

/** A place that cites a requirement. */
interface Citation {
  readonly id: string;
  readonly file: string;
  readonly line: number;
}

/** All requirements and their proofs. */
export interface Coverage {
  readonly requirements: ReadonlyMap<string, Requirement>;
  /** Why a row lacks the proof that it should have, by id. */
  readonly reasons: ReadonlyMap<string, string>;
  /** Citations in titles of tests, by id. */
  readonly tests: ReadonlyMap<string, readonly Citation[]>;
  /** Citations in code, by id. */
  readonly code: ReadonlyMap<string, readonly Citation[]>;
}

const ID =
  /\b(?:E?MPA|DDP|RDMAPX?|IANA|SEC|RPCR2?|RPCB|NFSR|CMPD|ARCH|SCTPE?|ROCE|IBV|IBCM)-[0-9A-Za-z.]+-\d{2,3}[a-z]?\b/g;
/** A test's title: the string that opens it. */
const TITLE = /\b(?:it|test|describe)(?:\.each\([^)]*\))?\(\s*(['"`])((?:\\.|(?!\1).)*)\1/gs;
/** A title in a table of cases: a string that opens with ids and a colon. */
const TABLE_TITLE =
  /(['"`])((?:[A-Z]+2?-[0-9A-Za-z.]+-\d{2,3}[a-z]?(?:, )?)+: (?:\\.|(?!\1).)*)\1/g;
/** The same in a string that ends with its ids in brackets. */
const TABLE_TITLE_BRACKETS =
  /(['"`])((?:\\.|(?!\1).)*? \[(?:[A-Z]+2?-[0-9A-Za-z.]+-\d{2,3}[a-z]?(?:, )?)+\])\1/g;
/** The id of a vector, which its test has in its title. */
const VECTOR_ID = /"id": "([^"]+)()"/g;

function rows(path: string): string[][] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .slice(1)
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split('\t'));
}

function sources(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name));
}

function lineAt(text: string, index: number): number {
  return text.slice(0, index).split('\n').length;
}

function cite(into: Map<string, Citation[]>, citation: Citation): void {
  const list = into.get(citation.id);
  if (list === undefined) into.set(citation.id, [citation]);
  else list.push(citation);
}

/** Records the ids in the text that group 2, or else group 1, of each pattern matches. */
function citeAll(
  into: Map<string, Citation[]>,
  file: string,
  text: string,
  patterns: readonly RegExp[],
): void {
  for (const pattern of patterns) {
    for (const match of text.matchAll(pattern)) {
      for (const [id] of (match[2] || match[1] || '').matchAll(ID)) {
        cite(into, { id, file, line: lineAt(text, match.index) });
      }
    }
  }
}

/** Reads catalogue, reasons and every citation below `root`, the top of a checkout. */
export function readCoverage(root: string): Coverage {
  const requirements = new Map<string, Requirement>();
  for (const row of rows(join(root, 'test/spec/requirements.tsv'))) {
    const [id = '', source = '', section = '', level = '', seen = '', text = ''] = row;
    requirements.set(id, { id, source, section, level, seen: seen as SeenBy, text });
  }
  const reasons = new Map<string, string>();
  for (const [id = '', reason = ''] of rows(join(root, 'test/spec/reasons.tsv'))) {
    reasons.set(id, reason);
  }
  const tests = new Map<string, Citation[]>();
  const code = new Map<string, Citation[]>();
  for (const file of sources(join(root, 'test'))) {
    if (!file.endsWith('.test.ts') && !file.includes('/compliance/')) continue;
    const text = readFileSync(file, 'utf8');
    citeAll(tests, relative(root, file), text, [TITLE, TABLE_TITLE, TABLE_TITLE_BRACKETS]);
  }
  for (const entry of readdirSync(join(root, 'test/vectors'), { withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join('test/vectors', entry.name);
    citeAll(tests, path, readFileSync(join(root, path), 'utf8'), [VECTOR_ID]);
  }
  for (const folder of ['daemon', 'verbs-api', 'native-bridge']) {
    for (const file of sources(join(root, folder))) {
      const text = readFileSync(file, 'utf8');
      for (const match of text.matchAll(ID)) {
        cite(code, { id: match[0], file: relative(root, file), line: lineAt(text, match.index) });
      }
    }
  }
  return { requirements, reasons, tests, code };
}

/** The ids in a test's title. */
export function idsIn(title: string): string[] {
  return [...new Set(title.match(ID) ?? [])];
}

/** Whether a requirement is one of the RFCs or of RoCE. */
export function groupOf({ source }: Requirement): Group {
  return /^\d+$/.test(source) ? 'RFCs' : 'RoCE';
}

/** True for a row that must be proven or have a reason. */
export function binding(requirement: Requirement): boolean {
  return requirement.level === 'MUST' || requirement.level === 'MUST NOT';
}
