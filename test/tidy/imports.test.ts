/** Imports: which way they go, and that projects reference what they use and nothing more. */
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  files,
  importCircles,
  importsOf,
  loadedWith,
  readSource,
  readSources,
} from './source-graph.ts';

const texts = readSources();

function graphOf(sources: ReadonlyMap<string, string>): Map<string, string[]> {
  const targets = (file: string, text: string) =>
    importsOf(file, text)
      .map(({ target }) => target)
      .filter((target) => sources.has(target));
  return new Map([...sources].map(([file, text]) => [file, targets(file, text)]));
}

describe('imports', () => {
  it('form no circle, types included: each file can be read before the files that use it', () => {
    expect(importCircles(graphOf(texts))).toEqual([]);
  });

  it('climb one folder at most: from further away, #… of package.json names the place', () => {
    const climbing = [...texts].filter(
      ([file, text]) =>
        !file.startsWith('test/examples/') && /^(?:import|\}).* from '\.\.\/\.\.\//m.test(text),
    );
    expect(climbing.map(([file]) => file)).toEqual([]);
    const nearer = [...texts].flatMap(([file, text]) =>
      [...text.matchAll(/^.* from '#verbs-api\/contract\/.*$/gm)].map(
        ([line]) => `${file}: ${line}`,
      ),
    );
    expect(nearer).toEqual([]);
  });

  it('are found to form circles across folders, through types, and of one file with itself', () => {
    const example = new Map([
      ['a/x.ts', "import { y } from '../b/y.ts';\n"],
      ['b/y.ts', "import type { Z } from './z.ts';\nimport { free } from './free.ts';\n"],
      ['b/z.ts', "export {\n  x,\n} from '../a/x.ts';\n"],
      ['b/free.ts', "// import { y } from './y.ts';\nimport { own } from './free.ts';\n"],
      ['c.ts', "import { x } from './a/x.ts';\n"],
    ]);
    expect(importCircles(graphOf(example))).toEqual([
      ['b/free.ts'],
      ['a/x.ts', 'b/y.ts', 'b/z.ts'],
    ]);
  });
});

/** Packages that a file imports at once. */
function librariesOf(text: string): string[] {
  const imports = text.matchAll(/^(?:import|export)(?! type)[^;]*? from '([^.#'][^']*)';/gms);
  return [...imports].map(([, name = '']) => name).filter((name) => !name.startsWith('node:'));
}

describe('the code loaded at startup, which delays the ready line,', () => {
  const foldersWith = (file: string) =>
    new Set([...loadedWith(file, texts)].map((loaded) => dirname(loaded)));

  it('is small for the command line: each command loads its own code', () => {
    const folders = foldersWith('daemon/cli/program.ts');
    expect(folders).toContain('daemon/cli');
    for (const later of [
      'daemon/rnic',
      'daemon/http',
      'verbs-api/rpcrdma',
      'verbs-api/nfs/client',
    ]) {
      expect(folders).not.toContain(later);
    }
  });

  it.each([
    'daemon/cli/environment.ts',
    'daemon/cli/run/run-command.ts',
    'daemon/cli/rping/rping-command.ts',
    'daemon/cli/nfs/nfs-provider.ts',
  ])('has no daemon and no RNIC if another process has them: %s', (file) => {
    const loaded = loadedWith(file, texts);
    expect(loaded.size).toBeGreaterThan(10);
    expect(loaded).not.toContain('daemon/main/daemon.ts');
    const folders = foldersWith(file);
    for (const later of ['daemon/embedded', 'daemon/iwarp/engine', 'daemon/ipc/verbs']) {
      expect(folders).not.toContain(later);
    }
  });

  it('excludes for the daemon HTTP and everything for clients and real devices', () => {
    const folders = foldersWith('daemon/main/daemon.ts');
    expect(folders).toContain('daemon/rnic');
    for (const later of [
      'daemon/http',
      'daemon/kernel/cm',
      'daemon/ipc/verbs',
      'daemon/roce/transport',
      'native-bridge/rdma',
      'verbs-api/rpcrdma',
    ]) {
      expect(folders).not.toContain(later);
    }
    const loaded = loadedWith('daemon/main/daemon.ts', texts);
    expect(loaded).not.toContain('daemon/control/operations.ts');
  });

  it('excludes for RoCE devices the transport and the connection manager', () => {
    const folders = foldersWith('daemon/host/rnic-host.ts');
    for (const later of ['daemon/roce/transport', 'daemon/roce/cm']) {
      expect(folders).not.toContain(later);
    }
  });

  it('excludes for HTTP routing and routes', () => {
    const loaded = loadedWith('daemon/http/control-http.ts', texts);
    expect(loaded).toContain('daemon/http/http-server.ts');
    const libraries = [...loaded].flatMap((file) => librariesOf(texts.get(file) ?? ''));
    expect(libraries).toEqual([]);
  });

  it('is found through files, but not through types, comments and deferred imports', () => {
    const example = new Map([
      ['a/x.ts', "import { y } from '../b/y.ts';\nimport type { T } from './t.ts';\n"],
      [
        'b/y.ts',
        "import {\n  z,\n} from './z.ts';\nexport { v } from './v.ts';\n// import './n.ts';\n",
      ],
      ['b/z.ts', "import './side.ts';\nconst later = await import('./later.ts');\n"],
    ]);
    expect([...loadedWith('a/x.ts', example)].sort()).toEqual([
      'a/x.ts',
      'b/side.ts',
      'b/v.ts',
      'b/y.ts',
      'b/z.ts',
    ]);
  });
});

/** Folders by the projects that own them: the nearest `tsconfig.json` upwards. */
function projectsOf(paths: readonly string[]): string[] {
  return (
    paths
      // Example programs are projects of their users.
      .filter((file) => file.endsWith('/tsconfig.json') && !file.startsWith('test/examples/'))
      .map((file) => dirname(file))
      .sort((a, b) => b.length - a.length)
  );
}

/** The projects that `project` references, and those that its files import. */
function referencesOf(project: string, config: string): string[] {
  const [, list = ''] = /"references": \[([\s\S]*?)\]/.exec(config) ?? [];
  return [...list.matchAll(/"path": "([^"]+)"/g)]
    .map(([, path = '']) => normalize(join(project, path)))
    .sort();
}

function importedProjects(
  project: string,
  projects: readonly string[],
  sources: ReadonlyMap<string, string>,
): string[] {
  const owner = (file: string) => projects.find((each) => file.startsWith(`${each}/`));
  const imported = [...sources]
    .filter(([file]) => owner(file) === project)
    .flatMap(([file, text]) => importsOf(file, text).map(({ target }) => owner(target)))
    .filter((each) => each !== undefined && each !== project);
  return [...new Set(imported as string[])].sort();
}

describe('project references', () => {
  const projects = projectsOf(files);

  it('are all built by the solution', () => {
    expect(projects.length).toBeGreaterThan(20);
    expect(referencesOf('', readSource('tsconfig.json'))).toEqual([...projects].sort());
  });

  it('are those that imports need, none unused and none missing', () => {
    const wrong = projects.flatMap((project) => {
      const references = referencesOf(project, readSource(`${project}/tsconfig.json`));
      const imported = importedProjects(project, projects, texts);
      return [
        ...references.filter((each) => !imported.includes(each)).map((each) => `unused ${each}`),
        ...imported.filter((each) => !references.includes(each)).map((each) => `missing ${each}`),
      ].map((fault) => `${project}: ${fault}`);
    });
    expect(wrong).toEqual([]);
  });

  it('are read from the nearest project of both ends of an import', () => {
    const example = new Map([['a/inner/x.ts', "import { y } from '../../b/y.ts';\n"]]);
    const own = projectsOf(['a/tsconfig.json', 'a/inner/tsconfig.json', 'b/tsconfig.json']);
    expect(importedProjects('a/inner', own, example)).toEqual(['b']);
    expect(importedProjects('a', own, example)).toEqual([]);
    expect(referencesOf('a/inner', '"references": [\n{ "path": "../../b" }\n]')).toEqual(['b']);
  });
});
