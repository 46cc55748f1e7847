/** Advice to programs under `run`, as text. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '#daemon/console/preload-library';
import type { Findings, LintFinding } from '#daemon/lint/findings';

export const LINT_MODES = ['print', 'error'] as const;
export type LintMode = (typeof LINT_MODES)[number];

const DOCUMENT = 'daemon/LINT.md';

/** A line for each finding: the rule, the advice, and the object concerned. */
export function lintLines(findings: Findings): string[] {
  const lines = findings.list().map(lintLine);
  const { left } = findings;
  return left === 0 ? lines : [...lines, `and ${left} more`];
}

function lintLine({ rule, sentence, program, pid, device, times }: LintFinding): string {
  const such = times === 1 ? '' : `; ${times} such objects`;
  return `${rule}: ${sentence} (${program}[${pid}] on ${device}${such})`;
}

/** The heading of the findings: their number, and where the rules are explained. */
export function lintTitle(findings: Findings): string {
  const count = findings.list().length;
  return `lint has ${count === 1 ? '1 finding' : `${count} findings`}; see ${documentName()}`;
}

/** The document about the rules, where it is installed. */
function documentName(): string {
  const path = join(packageRoot(), DOCUMENT);
  return existsSync(path) ? path : DOCUMENT;
}
