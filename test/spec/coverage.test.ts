import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { binding, readCoverage } from './catalogue.ts';

const coverage = readCoverage(fileURLToPath(new URL('../../', import.meta.url)));

describe('requirement rows', () => {
  it('are all there', () => {
    expect(coverage.requirements.size).toBeGreaterThan(500);
  });

  it('are proven by a test or have a reason, as far as they bind', () => {
    const open = [...coverage.requirements.values()]
      .filter(binding)
      .map((requirement) => requirement.id)
      .filter((id) => !coverage.tests.has(id) && !coverage.reasons.has(id));
    expect(open).toEqual([]);
  });

  it('have a reason only where no test proves them', () => {
    const both = [...coverage.reasons.keys()].filter((id) => coverage.tests.has(id));
    expect(both).toEqual([]);
  });

  it('are the only ones that code, tests and reasons cite', () => {
    const cited = [...coverage.tests.keys(), ...coverage.code.keys(), ...coverage.reasons.keys()];
    const unknown = cited.filter((id) => !coverage.requirements.has(id));
    expect([...new Set(unknown)]).toEqual([]);
  });
});
