/** Every TypeScript block in the documentation compiles against the package under strict. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { type DocExample, docExamples } from '../support/doc-examples.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Compiles the files, by name; returns the compiler's errors. */
function complaintsOf(files: ReadonlyMap<string, string>): string {
  // Inside the package, so the examples find it by its name.
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  const folder = temporaryFolder(join(ROOT, '.cache'));
  for (const [name, text] of files) writeFileSync(join(folder, name), text);
  const compilerOptions = {
    strict: true,
    noEmit: true,
    allowJs: true,
    checkJs: true,
    target: 'ES2022',
    lib: ['ES2023', 'ESNext.Disposable'],
    module: 'NodeNext',
    types: ['node'],
    skipLibCheck: true,
  };
  const project = { compilerOptions, files: [...files.keys()] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(project));
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  const { stdout } = spawnSync(process.execPath, [compiler, '-p', folder], {
    cwd: folder,
    encoding: 'utf8',
  });
  return stdout;
}

/** The code of a block, with its preamble. */
function codeOf(examples: readonly DocExample[], index: number): string {
  const example = examples[index];
  if (example === undefined) throw new Error('there is no block to continue');
  const before = example.goesOn ? codeOf(examples, index - 1) : '';
  return [before, ...example.given, example.text].join('\n');
}

it('TypeScript blocks compile', () => {
  const examples = docExamples(ROOT).filter(({ language }) => /^[jt]s$/.test(language));
  expect(examples.length).toBeGreaterThan(8);
  const files = examples.map(({ place, language, notRun }, index) => {
    expect(notRun, place).toBeUndefined();
    const name = `${place.replaceAll(/[/:]/g, '-')}.${language}`;
    return [name, `${codeOf(examples, index)}export {};\n`] as const;
  });
  expect(complaintsOf(new Map(files))).toBe('');
});

it('a block that names a missing export does not', () => {
  const text = "import { nothing } from 'iwarpd';\nnothing();\n";
  expect(complaintsOf(new Map([['wrong.ts', text]]))).toMatch(/wrong\.ts\(1,10\): error TS2305/);
});
