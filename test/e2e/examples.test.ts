/** The example programs in TypeScript compile against the package and print what their README says. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDER = join(ROOT, 'test/examples/typescript');
const COMPILED = join(ROOT, '.cache/examples');
/** Examples that `node --test` runs. */
const TESTS = new Set(['faults']);

const README = readFileSync(join(ROOT, 'test/examples/README.md'), 'utf8');
const PROGRAMS = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.replace(/\.ts$/, ''));

interface Finished {
  readonly status: number | null;
  readonly output: string;
}

function run(...words: string[]): Promise<Finished> {
  // A test runner inside another one takes its parent's settings from these variables.
  const inherited = Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_)/.test(name));
  return new Promise((done) => {
    const child = spawn(process.execPath, words, {
      cwd: ROOT,
      env: Object.fromEntries(inherited),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (part: string) => {
        output += part;
      });
    }
    child.on('close', (status) => done({ status, output }));
  });
}

/** The block that shows a program's output: the first one after the link to it. */
function shownFor(program: string): string {
  const [, shown = ''] =
    new RegExp(`\\]\\(typescript/${program}\\.ts\\)[\\s\\S]*?\`\`\`text\n([\\s\\S]*?)\`\`\``).exec(
      README,
    ) ?? [];
  return shown;
}

describe('test/examples/typescript', () => {
  beforeAll(async () => {
    const compiled = await run(join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', FOLDER);
    expect(compiled).toEqual({ status: 0, output: '' });
  });

  it('has the programs that README.md links to', () => {
    expect(PROGRAMS.length).toBeGreaterThan(2);
    for (const name of PROGRAMS) expect(README).toContain(`](typescript/${name}.ts)`);
  });

  it.each(PROGRAMS.filter((name) => !TESTS.has(name)))(
    '%s prints what README.md shows',
    async (name) => {
      const ran = await run(join(COMPILED, `${name}.js`));
      expect(ran).toEqual({ status: 0, output: shownFor(name) });
      expect(ran.output).not.toBe('');
    },
  );

  it.each(PROGRAMS.filter((name) => TESTS.has(name)))('%s passes', async (name) => {
    const { status, output } = await run('--test', join(COMPILED, `${name}.js`));
    expect(status, output).toBe(0);
    expect(output).toMatch(/(?:#|ℹ) pass [1-9]/);
  });
});
