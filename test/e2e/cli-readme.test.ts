import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { runCommand } from '../support/cli-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const DAEMON = readFileSync(join(ROOT, 'daemon/README.md'), 'utf8');
const PAGES = ['daemon/TRACING.md', 'daemon/PEERS.md', 'daemon/TROUBLESHOOTING.md'];
const DOCUMENTS = [
  README,
  DAEMON,
  ...PAGES.map((page) => readFileSync(join(ROOT, page), 'utf8')),
].join('\n');

/** The fenced blocks of a language in a document, in order. */
function blocks(language: string, document = README): string[] {
  return [...document.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(
    ([, text]) => text ?? '',
  );
}

function node(...words: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, words, {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

describe('README.md and the pages of the daemon', () => {
  it.each([['the peer wrote "hello over iWARP"\n'], ['received "hello over RoCE"\n']])(
    'have a TypeScript example that compiles under strict and prints %j',
    (output) => {
      // Inside the package, so the example finds it by its name.
      mkdirSync(join(ROOT, '.cache'), { recursive: true });
      const folder = temporaryFolder(join(ROOT, '.cache'));
      const shown = output.slice(output.indexOf('hello')).replace(/["\n]+$/, '');
      const example = blocks('ts').find((text) => text.includes(shown)) ?? '';
      writeFileSync(join(folder, 'example.ts'), example);
      const options = {
        strict: true,
        target: 'ES2022',
        lib: ['ES2023', 'ESNext.Disposable'],
        module: 'NodeNext',
        types: ['node'],
        skipLibCheck: true,
        rootDir: '.',
      };
      const project = { compilerOptions: options, files: ['example.ts'] };
      writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(project));
      const compiled = node(join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', folder);
      expect(compiled).toEqual({ status: 0, stdout: '', stderr: '' });
      const printed = node(join(folder, 'example.js'));
      expect(printed).toEqual({ status: 0, stdout: output, stderr: '' });
      expect(blocks('text')).toContain(printed.stdout);
    },
  );

  it('name only existing commands and options', async () => {
    const { stdout: usage } = await runCommand(['--help']);
    const known = [...usage.matchAll(/^ {2}([a-z][a-z-]*) /gm)].map(([, name = '']) => name);
    const named = [...DOCUMENTS.matchAll(/(?:^\$ |`)iwarpd ([a-z-]+)\b/gm)].map(([, name]) => name);
    expect(new Set(known.filter((name) => name !== 'help' && !named.includes(name)))).toEqual(
      new Set(),
    );
    const unknown = named.filter((name) => name !== undefined && !known.includes(name));
    expect(unknown).toEqual([]);
    const asked = [
      ...known.map((name) => [name]),
      ['fault', 'add'],
      ['rail', 'down'],
      ['rail', 'play'],
      ['nfs', 'serve'],
    ];
    const help = await Promise.all(
      asked.map(async (words) => (await runCommand([...words, '--help'])).stdout),
    );
    // Options of other programs.
    const ours = DOCUMENTS.replaceAll(/^systemctl .*$|npm test -- --[a-z-]+/gm, '').replaceAll(
      /^## Programs that use verbs$.*?^## /gms,
      '## ',
    );
    for (const [option] of ours.matchAll(/(?<=[ `])--[a-z][a-z-]+/g)) {
      expect(help.join(''), option).toContain(option);
    }
  });

  it('show a configuration that the daemon accepts', async () => {
    const { parseDaemonConfig } = await import('#daemon/main/config');
    const [config = ''] = blocks('json', DAEMON);
    expect(parseDaemonConfig(JSON.parse(config)).devices).toMatchObject([
      { name: 'left' },
      { name: 'old', wire: { mpaRevision: 1 }, profile: { maxQp: 16 } },
    ]);
  });
});
