/** The output of `programs/hostile.ts`, and the output expected on every device. */
import { expect } from 'vitest';
import { compiledTest } from './kernel-peer/inner-suite.ts';

/** Names of `VerbsError` and of the native bridge's subclass. */
const OWN_ERROR = expect.stringMatching(/^(Verbs|Native)Error$/);

/** An error as a case got it. */
interface HostileError {
  readonly name: string;
  readonly code?: string | number;
  readonly kind?: string;
  readonly message: string;
}

/** A step of a case: its result or error. */
interface HostileStep {
  readonly step: string;
  readonly value?: unknown;
  readonly error?: HostileError;
}

/** The steps of a case, in order. */
export type HostileSteps = readonly HostileStep[];

/** The words that run a case of the program. */
export function hostileCommand(words: readonly string[]): string[] {
  return [process.execPath, compiledTest('interop/programs/hostile.js'), ...words];
}

export function hostileSteps(output: string): HostileSteps {
  const lines = output.split('\n').filter((line) => line.startsWith('{"step":'));
  return lines.map((line) => JSON.parse(line) as HostileStep);
}

/** The step called `name`. Throws if the case did not reach it. */
export function stepNamed(steps: HostileSteps, name: string): HostileStep {
  const found = steps.find(({ step }) => step === name);
  if (found === undefined) throw new Error(`no step ${name} in ${JSON.stringify(steps)}`);
  return found;
}

/** The errors of the steps that failed, by the name of the step. */
function failedSteps(steps: HostileSteps): Readonly<Record<string, HostileError>> {
  return Object.fromEntries(steps.flatMap(({ step, error }) => (error ? [[step, error]] : [])));
}

/** Judges the case `twice`: objects in use stay; all others close, twice. */
export function closed(steps: HostileSteps): void {
  expect(stepNamed(steps, 'before').value).toBe('success, success, 90');
  const inUse = { code: 'EBUSY', kind: 'inUse' };
  expect(failedSteps(steps)).toMatchObject({ 'domain in use': inUse, 'queue in use': inUse });
  expect(Object.keys(failedSteps(steps))).toEqual(['domain in use', 'queue in use']);
  expect(steps.filter(({ step }) => step.endsWith(' again'))).toHaveLength(12);
}

/** Judges the case `afterwards`: EINVAL for every call on a closed object, but `poll`, which never fails. */
export function untouched(steps: HostileSteps): void {
  expect(stepNamed(steps, 'before').value).toBe('success, success, 90');
  expect(stepNamed(steps, 'poll')).toMatchObject({ value: 0 });
  const onQueues = ['send', 'receive', 'modify', 'query', 'arm', 'wait'];
  for (const name of [...onQueues, 'register', 'create', 'ask', 'open', 'createId']) {
    const { error } = stepNamed(steps, name);
    expect(error, name).toMatchObject({ name: OWN_ERROR, code: 'EINVAL' });
    expect(error?.message, name).toMatch(/is closed/);
  }
}

/** Judges the case `freed`: registered memory stays, and memory that cannot stay is not registered. */
export function kept(steps: HostileSteps): void {
  const refused = { name: OWN_ERROR, code: 'EINVAL', kind: 'refused' };
  expect(failedSteps(steps)).toMatchObject({ resizable: refused, detached: refused });
  // Node refuses a transfer, or in older releases copies the bytes; either way they stay.
  for (const name of ['clone', 'post']) {
    expect(stepNamed(steps, name).error?.name ?? 'DataCloneError').toBe('DataCloneError');
  }
  expect(stepNamed(steps, 'length').value).toEqual([4096, 4096]);
  expect(stepNamed(steps, 'used').value).toBe('success, success, 90');
  expect(stepNamed(steps, 'written to what only the device knows').value).toBe('success');
}

/** Judges the case `disappears`: EIO for calls that need the device, and no leaks. */
export function lost(steps: HostileSteps): void {
  expect(stepNamed(steps, 'before').value).toBe('success, success, 90');
  for (const name of ['asyncEvents', 'send', 'receive', 'query', 'register']) {
    expect(stepNamed(steps, name).error, name).toMatchObject({ name: OWN_ERROR, code: 'EIO' });
  }
  for (const name of ['open', 'listen']) {
    const code = expect.stringMatching(/^(EIO|ENODEV)$/);
    expect(stepNamed(steps, name).error, name).toMatchObject({ name: OWN_ERROR, code });
  }
  for (const name of ['poll', 'close connections', 'close']) {
    expect(stepNamed(steps, name).error, name).toBeUndefined();
  }
}
