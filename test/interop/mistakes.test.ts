/** programs/mistakes.c gets the reasons in daemon/MISTAKES.md. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type EndedProgram, type Environment, ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const DOCUMENT = join(repositoryRoot(), 'daemon/MISTAKES.md');
const ADDRESS = '127.0.72.41';
const ROCE_ADDRESS = '127.0.72.42';

let rig: RoceRig;
let program: string;

async function run(environment: Environment): Promise<EndedProgram> {
  // Over one pipe, so that each reason precedes the outcome of its step.
  const words = ['sh', '-c', 'exec "$0" "$@" 2>&1', program];
  const given = { ...rig.environment, ...environment };
  return await new ShimProgram([...words, 'roce0', 'iwarp0', ADDRESS], given).end();
}

/** A line without the parts that differ from run to run. */
function steady(line: string): string {
  return line
    .replaceAll(/0x[0-9a-f]+/g, '0x…')
    .replaceAll(ADDRESS, '127.0.0.1')
    .replaceAll(/port [1-9]\d{3,}/g, 'port …');
}

/** Rows of the table: each step with the reason that was printed before its outcome. */
function rows(output: string): string[] {
  const made: string[] = [];
  let reason = 'no reason';
  for (const line of output.trimEnd().split('\n')) {
    if (line.startsWith('iwarpd: ')) reason = steady(line.slice('iwarpd: '.length));
    else {
      const [step = ''] = line.split(': ');
      made.push(`| ${step} | \`${reason}\` |`);
      reason = 'no reason';
    }
  }
  return made;
}

/** The same rows as the document has them, without the padding of its columns. */
function documented(): string[] {
  const lines = readFileSync(DOCUMENT, 'utf8').split('\n');
  return lines
    .filter((line) => /^\| .*`.*` *\|$/.test(line))
    .map((line) => line.replaceAll(/ +\|/g, ' |').replaceAll(/\| +/g, '| '));
}

describeWith(['native'], 'the most frequent mistakes', () => {
  beforeAll(async () => {
    program = compileProgram('mistakes', ['-lrdmacm']);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: [ADDRESS] },
      { name: 'roce0', addresses: [ROCE_ADDRESS], transport: 'roce' },
    );
  });

  afterAll(() => rig.stop());

  it('have the documented reasons', async () => {
    const { status, output } = await run({ IWARPD_EXPLAIN: '1' });
    expect(rows(output)).toEqual(documented());
    expect(status).toBe(0);
    expect(documented().length).toBeGreaterThanOrEqual(20);
  });

  it('get the same results without reasons', async () => {
    const explained = await run({ IWARPD_EXPLAIN: '1' });
    const plain = await run({});
    const results = explained.output.split('\n').filter((line) => !line.startsWith('iwarpd: '));
    expect(plain.output.split('\n')).toEqual(results);
    expect(plain.status).toBe(explained.status);
  });
});
