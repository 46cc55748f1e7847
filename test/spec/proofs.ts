/** Which tests of a run prove which requirement, and how well. */
import { binding, type Coverage, idsIn, type Requirement } from './catalogue.ts';
import { PROOF_LEVELS, type ProofLevel, type ProofLevels } from './proof-levels.ts';
import type { TestResult } from './results.ts';

/** A test that cites a requirement, with the level of its file. */
interface Proof extends TestResult {
  readonly level: ProofLevel;
}

/** A requirement with its evidence. */
export interface Judged {
  readonly requirement: Requirement;
  /** Tests that cite it, including failed and skipped ones. */
  readonly tests: readonly Proof[];
  /** The strongest level at which a test passed; undefined when none did or one failed. */
  readonly proven: ProofLevel | undefined;
  readonly reason: string | undefined;
}

/** Judges every requirement by the tests of a run. */
export function judge(
  coverage: Coverage,
  tests: readonly TestResult[],
  levels: ProofLevels,
): Judged[] {
  const proofs = new Map<string, Proof[]>();
  for (const test of tests) {
    for (const id of idsIn(test.title)) {
      const list = proofs.get(id) ?? [];
      list.push({ ...test, level: levels.of(test.file) });
      proofs.set(id, list);
    }
  }
  return [...coverage.requirements.values()].map((requirement) => {
    const citing = proofs.get(requirement.id) ?? [];
    return {
      requirement,
      tests: citing,
      proven: strongest(citing),
      reason: coverage.reasons.get(requirement.id),
    };
  });
}

function strongest(proofs: readonly Proof[]): ProofLevel | undefined {
  if (proofs.some(({ state }) => state === 'failed')) return undefined;
  const passed = proofs.filter(({ state }) => state === 'passed').map(({ level }) => level);
  return PROOF_LEVELS.find((level) => passed.includes(level));
}

/**
 * True if a row has the proof that its kind requires: behaviour that others can see, against real
 * objects.
 */
export function suffices({ requirement, proven }: Judged): boolean {
  if (proven === undefined) return false;
  return requirement.seen === 'inside' || proven === 'real' || proven === 'kernel';
}

/** Binding rows that lack both a sufficient proof and a reason. */
export function openRows(judged: readonly Judged[]): Judged[] {
  return judged.filter(
    (row) => binding(row.requirement) && row.reason === undefined && !suffices(row),
  );
}

/** Rows that have a reason although they are proven. */
export function idleReasons(judged: readonly Judged[]): Judged[] {
  return judged.filter((row) => row.reason !== undefined && suffices(row));
}
