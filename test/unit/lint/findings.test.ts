import { expect, it } from 'vitest';
import { FINDINGS_MAX, Findings, type LintedProgram } from '#daemon/lint/findings';

function linted(pid: number): LintedProgram {
  return { pid, program: 'prog', device: 'roce0', script: false, usesCm: false };
}

it('the same advice to a process on a device is one finding, about the first object', () => {
  const findings = new Findings();
  findings.note(linted(1), { rule: 'mr-unused', sentence: 'first' });
  findings.note(linted(2), { rule: 'mr-unused', sentence: 'of another process' });
  findings.note(linted(1), { rule: 'mr-unused', sentence: 'second' });
  findings.note({ ...linted(1), device: 'roce1' }, { rule: 'mr-unused', sentence: 'elsewhere' });
  findings.note(linted(1), { rule: 'qp-in-init', sentence: 'another rule' });
  const found = findings.list().map(({ pid, sentence, times }) => [pid, sentence, times]);
  expect(found).toEqual([
    [1, 'first', 2],
    [2, 'of another process', 1],
    [1, 'elsewhere', 1],
    [1, 'another rule', 1],
  ]);
});

it('a bounded number of findings is kept, and the others are counted', () => {
  const findings = new Findings();
  for (let pid = 1; pid <= FINDINGS_MAX + 3; pid += 1) {
    findings.note(linted(pid), { rule: 'mr-unused', sentence: 'unused' });
  }
  findings.note(linted(1), { rule: 'mr-unused', sentence: 'again' });
  expect(findings.list()).toHaveLength(FINDINGS_MAX);
  expect(findings.list()[0]?.times).toBe(2);
  expect(findings.left).toBe(3);
});
