/**
 * Bundles the compiled command into a few files: loading its 500 modules one by one takes longer
 * than a short job itself. Modules resolve paths relative to their own location, which works in the
 * bundle because `dist/daemon/command` is as deep as every folder with such modules.
 */
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Plugin, rolldown } from 'rolldown';

/** The bundle's entry. Its static imports share a file that is loaded first. */
const ENTRY = 'cli/command';

/** Compiled files, relative to `dist/daemon/cli/bundler`. */
const DIST = fileURLToPath(new URL('../../../', import.meta.url));
const COMMANDS = join(DIST, 'daemon/cli');
const TARGET = join(DIST, 'daemon/command');

/** Packages that load native code or other files by path. */
const UNBUNDLED = ['koffi', '@node-rs/crc32', 'fast-crc32c'];

/**
 * Modules that share a file: those needed by each list and by no earlier one. So a start reads only
 * what it uses, and modules that only a rare command uses stay in separate files.
 */
const FILES: readonly { readonly name: string; readonly entries: readonly string[] }[] = [
  { name: 'entry', entries: [ENTRY] },
  { name: 'words', entries: ['cli/program'] },
  {
    name: 'client',
    entries: [
      'cli/control/explain',
      'cli/control/reset',
      'cli/control/wait',
      'cli/environment',
      'cli/instances/list',
      'cli/instances/stop',
      'cli/page-link',
      'cli/status',
    ],
  },
  {
    // What the next ones share with the daemon.
    name: 'parts',
    entries: [
      '../native-bridge/libc/watched-descriptor',
      'contract/protocol/control',
      'contract/protocol/fault-argument',
      'contract/verbs/gid',
      'contract/verbs/id-lifecycle',
      'contract/verbs/qp-attributes',
      'contract/verbs/qp-state',
      'host/crc-engine',
      'ipc/socket-place',
      'iwarp/faults/stream-faults',
    ],
  },
  { name: 'verbs', entries: ['cli/rping/rping-command', '../verbs-api/native/native-provider'] },
  { name: 'doctor', entries: ['cli/doctor/doctor'] },
  { name: 'decode', entries: ['cli/traffic/decode'] },
  { name: 'run', entries: ['cli/run/run-command'] },
  { name: 'daemon', entries: ['main/daemon'] },
];

/** Records the static imports of each module. */
class ModuleGraph {
  readonly #imports = new Map<string, readonly string[]>();
  readonly plugin: Plugin = {
    name: 'module-graph',
    moduleParsed: ({ id, importedIds }) => {
      this.#imports.set(id, importedIds);
    },
  };

  /** All modules that `entries` need, themselves included. */
  closure(entries: readonly string[]): ReadonlySet<string> {
    const found = new Set<string>();
    const open = [...entries];
    for (let id = open.pop(); id !== undefined; id = open.pop()) {
      if (found.has(id)) continue;
      found.add(id);
      open.push(...(this.#imports.get(id) ?? []));
    }
    return found;
  }

  /** Third-party modules, which have licenses. */
  get libraries(): string[] {
    return [...this.#imports.keys()].filter((id) => id.includes('/node_modules/'));
  }
}

/** Replaces the bundle. Throws if a compiled module is missing or does not parse. */
export async function bundleCommand(): Promise<void> {
  const graph = new ModuleGraph();
  const bundle = await rolldown({
    input: { command: compiledModule(ENTRY) },
    platform: 'node',
    tsconfig: false,
    external: [...UNBUNDLED, /^node:/],
    // Prefer the ES module form of packages: bundlers handle it better.
    resolve: { mainFields: ['module', 'main'] },
    preserveEntrySignatures: false,
    plugins: [graph.plugin],
    onLog: (level, log) => {
      // A module used by two commands is in a shared file, however one of them imports it.
      if (level === 'warn' && log.code !== 'INEFFECTIVE_DYNAMIC_IMPORT')
        throw new Error(log.message);
    },
  });
  const fresh = `${TARGET}.new`;
  rmSync(fresh, { recursive: true, force: true });
  const closures = new Map<string, ReadonlySet<string>>();
  await bundle.write({
    dir: fresh,
    format: 'es',
    chunkFileNames: '[name]-[hash].js',
    // Names appear in errors.
    keepNames: true,
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: FILES.map(({ name, entries }, index) => ({
        name,
        priority: FILES.length - index,
        test: (id: string) => {
          // By the first call, all modules are parsed.
          if (!closures.has(name)) closures.set(name, graph.closure(entries.map(compiledModule)));
          return id !== compiledModule(ENTRY) && closures.get(name)?.has(id) === true;
        },
      })),
    },
  });
  await bundle.close();
  writeFileSync(join(fresh, 'LICENSES.txt'), licenses(graph.libraries));
  writeFileSync(join(fresh, 'compiled.json'), JSON.stringify(compilerMarks()));
  const stale = `${TARGET}.old`;
  rmSync(stale, { recursive: true, force: true });
  if (existsSync(TARGET)) renameSync(TARGET, stale);
  renameSync(fresh, TARGET);
  rmSync(stale, { recursive: true, force: true });
}

function compiledModule(name: string): string {
  return join(DIST, 'daemon', `${name}.js`);
}

/** The licenses of the packages that contain these modules; they must accompany the bundle. */
function licenses(modules: readonly string[]): string {
  const roots = new Set(
    modules.map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0] ?? id),
  );
  return [...roots].sort().map(licenseOf).join('\n');
}

function licenseOf(root: string): string {
  const { name, version, license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const file = readdirSync(root).find((each) => /^licen[cs]e/i.test(each));
  const text = file === undefined ? license : readFileSync(join(root, file), 'utf8').trim();
  return `${name} ${version}\n\n${text}\n`;
}

/** Files that the compiler writes with each build of a project, relative to the command's folder. */
function compilerMarks(): string[] {
  return readdirSync(DIST, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.tsbuildinfo') && !path.startsWith('test'))
    .map((path) => relative(COMMANDS, join(DIST, path)))
    .sort();
}
