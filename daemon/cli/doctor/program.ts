/** The checks of `iwarpd doctor PROGRAM`: whether `iwarpd run` can serve a program. They execute nothing of it. */
import { readSync, statSync } from 'node:fs';
import { CommandFailure } from '#daemon/console/failure';
import { withFile } from '../elf-file.ts';
import { findProgram, interpreterOf, preloadObstacle } from '../program-file.ts';
import { broken, type Check, type Finding, info, ok, warn } from './finding.ts';
import { type LinkedFile, linkedLibraries } from './linked-libraries.ts';

/** Libraries by which programs reach RDMA, and how a sentence calls them. */
const REACH = /^lib(ibverbs|rdmacm|ibumad|ibmad|mlx4|mlx5|efa|fabric|ucp|uct|nccl|rccl)\.so/;
/** The same in the text of files that load libraries themselves. */
const REACH_TEXT =
  /lib(?:ibverbs|rdmacm|ibumad|ibmad|mlx4|mlx5|efa|fabric|ucp|uct|nccl|rccl)\.so[.0-9]*/g;
/** Calls of adapters' own interfaces, below the verbs. */
const DIRECT = /^(mlx5dv|mlx4dv|efadv|hnsdv|bnxt_re_dv|manadv)_/;
/** They load other files, but no library of RDMA: the C library defines dlopen; verbs load their drivers. */
const LOADERS = /^(libc|ld-linux\S*|libdl|libibverbs|librdmacm)\.so/;
const COLLECTIVES = /^lib(nccl|rccl)\.so/;
/** Files that are searched for names of libraries, and bytes of each: libraries of GPUs have gigabytes. */
const SEARCHED_MAX = 64;
const SEARCHED_MAX_BYTES = 1 << 30;
const PIECE_BYTES = 1 << 20;
/** No name of a library is longer; one may lie across two pieces. */
const NAME_MAX_BYTES = 64;

/** A program as the user named it. */
interface ExaminedProgram {
  readonly path: string;
  /** The program that runs it, if it is a script. */
  readonly interpreter: string | undefined;
  /** It, or its interpreter, first; then the libraries that are loaded with it. */
  readonly files: readonly LinkedFile[];
  /** Libraries that a file loads when it needs them, by the file's name. */
  readonly onDemand: ReadonlyMap<string, readonly string[]>;
  /** Why no library can be preloaded. */
  readonly obstacle: string | undefined;
}

/** Looks at a program, found as a shell finds it, or at a library. CommandFailure if there is none. */
export function examinedProgram(name: string, environment: NodeJS.ProcessEnv): ExaminedProgram {
  const searchPath = environment['PATH'] ?? '/usr/local/bin:/usr/bin:/bin';
  const path = pathOf(name, searchPath);
  const runner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const interpreter = interpreterOf(path, searchPath);
  const files = linkedLibraries(interpreter ?? path, environment['LD_LIBRARY_PATH'] ?? '');
  // A library runs in whatever program loads it.
  const isLibrary = interpreter === undefined && /\.so[.0-9]*$/.test(path);
  return {
    path,
    interpreter,
    files,
    onDemand: librariesOnDemand(files),
    obstacle: isLibrary ? undefined : preloadObstacle(path, runner),
  };
}

function pathOf(name: string, searchPath: string): string {
  const found = findProgram(name, searchPath);
  if ('path' in found) return found.path;
  if (name.includes('/') && found.error === 'EACCES' && /\.so[.0-9]*$/.test(name)) return name;
  if (name === '') throw new CommandFailure('the name of the program is empty');
  if (isDirectory(name)) throw new CommandFailure(`${name} is a directory: name a program in it`);
  throw new CommandFailure(
    found.error === 'ENOENT' ? `no such program: ${name}` : `${name} is not executable`,
  );
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** The checks of a program, in the order of the report. */
export function programChecks(program: ExaminedProgram): readonly Check[] {
  const judged = (name: string, judge: (program: ExaminedProgram) => Finding | undefined) => {
    const finding = judge(program);
    return finding === undefined ? [] : [{ name, examine: () => finding }];
  };
  return [
    ...judged('program', judgeProgram),
    ...judged('preload', judgePreload),
    ...judged('libraries', judgeLibraries),
    ...judged('rdma', judgeReach),
    ...judged('adapters', judgeDirect),
    ...judged('management', judgeManagement),
    ...judged('system calls', judgeSystemCalls),
    ...judged('collectives', judgeCollectives),
  ];
}

function judgeProgram({ path, interpreter, files }: ExaminedProgram): Finding {
  if (interpreter !== undefined) {
    const text = `${path}, a script that ${interpreter} runs: the libraries that its modules load do not show here`;
    return info(text, 'name a library, too: iwarpd doctor PATH/libnccl.so.2');
  }
  if (files.length === 0) return info(`${path}: neither an ELF file nor a script`);
  return ok(path);
}

const BUILD = 'build it for this machine, linked dynamically to glibc';
/** By words of an obstacle. */
const FIXES: readonly (readonly [cause: string, fix: string])[] = [
  ['another user', 'run a copy without the set-user-ID bit'],
  ['capabilities', 'run a copy without file capabilities, or run it as root'],
  ['damaged', 'install or build it again'],
  [
    'statically linked',
    `${BUILD}; \`run --mount-sysfs\` shows it the devices in /sys, but gives it no verbs`,
  ],
];

function judgePreload({ obstacle, files }: ExaminedProgram): Finding | undefined {
  if (files.length === 0) return undefined;
  if (obstacle === undefined) return ok('its loader accepts the preload library of `iwarpd run`');
  const [, fix = BUILD] = FIXES.find(([cause]) => obstacle.includes(cause)) ?? [];
  return broken(`it ${obstacle}: it sees no emulated device`, fix);
}

function judgeLibraries({ files }: ExaminedProgram): Finding | undefined {
  const libraries = files.slice(1);
  if (libraries.length === 0) return undefined;
  const missing = libraries.filter(({ path }) => path === undefined);
  if (missing.length === 0) return ok(`${libraries.length}, all of them found`);
  const names = missing.map(({ name, by }) =>
    by.length === 0 ? name : `${name} (by ${by.at(-1)})`,
  );
  return broken(
    `not found: ${names.join(', ')}`,
    'install their packages, or name their folders in LD_LIBRARY_PATH',
  );
}

/** Libraries of RDMA, each with the way it is loaded. */
function reached({ path, files, onDemand }: ExaminedProgram): ReadonlyMap<string, string> {
  const ways = new Map<string, string>();
  if (REACH.test(basenameOf(path))) ways.set(basenameOf(path), 'itself');
  for (const { name, by } of files.slice(1)) {
    if (REACH.test(name)) ways.set(name, by.length === 0 ? 'linked' : `by ${by.at(-1)}`);
  }
  for (const [file, names] of onDemand) {
    for (const name of names) if (!ways.has(name)) ways.set(name, `loaded on demand by ${file}`);
  }
  return ways;
}

function judgeReach(program: ExaminedProgram): Finding | undefined {
  if (program.files.length === 0) return undefined;
  const ways = [...reached(program)].map(([name, way]) => `${name} (${way})`);
  if (ways.length > 0) {
    return ok(`${ways.join(', ')}: the preload library serves the device files that they open`);
  }
  const text = 'no library of RDMA is linked or named; a plugin may load one';
  return program.interpreter === undefined
    ? info(text, 'if it has plugins, check these: iwarpd doctor PATH/PLUGIN.so')
    : info(text);
}

function judgeDirect({ files }: ExaminedProgram): Finding | undefined {
  const users = files.filter(({ name, names }) => !REACH.test(name) && hasDirect(names));
  if (users.length === 0) return undefined;
  const calls = users.flatMap(({ names }) => [...names].filter((name) => DIRECT.test(name)));
  const kinds = [...new Set(calls.map((call) => call.split('_')[0]))];
  return info(
    `calls ${kinds.join(' and ')}, for one vendor's adapters: devices here have none of it, whatever their identity, so options that need it fail`,
  );
}

function hasDirect(names: ReadonlySet<string>): boolean {
  for (const name of names) if (DIRECT.test(name)) return true;
  return false;
}

function judgeManagement(program: ExaminedProgram): Finding | undefined {
  const names = [...reached(program).keys()].filter((name) => /^lib(ibumad|ibmad)\./.test(name));
  if (names.length === 0) return undefined;
  return info(
    `${names.join(' and ')}: management datagrams, by /dev/infiniband/umad0, which no device here has; states and counters in sysfs work`,
  );
}

function judgeSystemCalls({ files: [program] }: ExaminedProgram): Finding | undefined {
  if (program?.isGo !== true) return undefined;
  return warn(
    'a Go program: its own file calls do not pass through libc, so it reads the sysfs of the host; verbs that it calls in C work',
  );
}

function judgeCollectives(program: ExaminedProgram): Finding | undefined {
  const names = [...reached(program).keys(), basenameOf(program.path)];
  if (!names.some((name) => COLLECTIVES.test(name))) return undefined;
  return info(
    '`iwarpd run` sets NCCL_GIN_TYPE=0 unless you do; several rails: --rails 8; see daemon/PEERS.md',
  );
}

function basenameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Names of RDMA libraries in files that load libraries themselves. */
function librariesOnDemand(files: readonly LinkedFile[]): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>();
  const loaded = new Set(files.map(({ name }) => basenameOf(name)));
  let searched = 0;
  for (const { name, path, names, isGo } of files) {
    const loads = isGo || names.has('dlopen') || names.has('dlmopen');
    const skipped = LOADERS.test(basenameOf(name));
    if (path === undefined || !loads || skipped || searched === SEARCHED_MAX) continue;
    searched += 1;
    const named = [...namesIn(path)].filter((each) => !loaded.has(each));
    if (named.length > 0) found.set(basenameOf(name), named);
  }
  return found;
}

function namesIn(path: string): ReadonlySet<string> {
  const names = new Set<string>();
  const piece = Buffer.alloc(PIECE_BYTES + NAME_MAX_BYTES);
  withFile(path, (file) => {
    for (let at = 0; at < SEARCHED_MAX_BYTES; at += PIECE_BYTES) {
      const bytes = piece.subarray(0, readSync(file, piece, 0, piece.length, at));
      if (bytes.includes('.so')) {
        for (const [name] of bytes.toString('latin1').matchAll(REACH_TEXT)) {
          names.add(name.replace(/\.$/, ''));
        }
      }
      if (bytes.length < piece.length) break;
    }
  });
  return names;
}
