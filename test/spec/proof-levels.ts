/**
 * The proof level of a test file, derived from its imports and never declared: a test against the
 * real objects names none of the stubs that stand for a layer, and a test of the daemon starts one.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { importPaths } from '../support/import-paths.ts';

/** From strongest to weakest; `test/spec/README.md` defines each. */
export const PROOF_LEVELS = ['kernel', 'real', 'engine', 'codec'] as const;
export type ProofLevel = (typeof PROOF_LEVELS)[number];

/** Interfaces between layers: a class of a test that implements one is a stub of that layer. */
const STUB =
  /\bimplements\s[^{]*\b(?:WireUser|DeferringUser|PacketWire|ProgramWire|StreamPort|CmStream|ConnectableQP|UlpduSink|LinkUser|HostNetwork)\b|\bextends ModelUser\b/;

/** Modules that start a host: queue pairs, connection manager and conduits over sockets. */
const HOSTS = [
  'daemon/host/rnic-host.ts',
  'daemon/embedded/embedded-provider.ts',
  'daemon/main/daemon.ts',
];
/** The daemon as a process, by its path. */
const DAEMON_PROGRAM = /dist\/daemon\/cli\/main\.js/;

/** A real kernel in a guest, and recordings of one. */
const KERNELS = [
  'test/interop/kernel-peer/kernel-peer.ts',
  'test/support/pcap-reader.ts',
  'test/support/roce-recordings.ts',
];

/** Folders of state machines, as opposed to pure functions of bytes. */
const MACHINES = [
  'daemon/iwarp/engine/',
  'daemon/iwarp/sctp/',
  'daemon/rnic/',
  'daemon/iwarp/cm/',
  'daemon/roce/transport/',
  'daemon/roce/cm/',
  'daemon/host/roce/',
  'verbs-api/rpcrdma/core/re',
];

/** An import or export of values from a file here; types alone prove nothing. */
const IMPORT = /^(?:import|export)\s(?!type\b)[^;]*?from '([.#][^']+)'/gms;

/** Levels of test files below `root`, the top of a checkout. */
export class ProofLevels {
  readonly #root: string;
  readonly #resolved: (file: string, specifier: string) => string;
  readonly #levels = new Map<string, ProofLevel>();

  constructor(root: string) {
    this.#root = root;
    this.#resolved = importPaths(root);
  }

  /** The level of a test file, by its path from the root. */
  of(file: string): ProofLevel {
    const known = this.#levels.get(file) ?? this.#derive(file);
    this.#levels.set(file, known);
    return known;
  }

  #derive(file: string): ProofLevel {
    const tests = new Set<string>();
    const products = new Set<string>();
    let stubbed = false;
    let spawned = false;
    const waiting = [file];
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      if (tests.has(path)) continue;
      tests.add(path);
      const text = readFileSync(join(this.#root, path), 'utf8');
      stubbed ||= STUB.test(text);
      spawned ||= DAEMON_PROGRAM.test(text);
      for (const [, target = ''] of text.matchAll(IMPORT)) {
        const imported = this.#resolved(path, target);
        if (!imported.startsWith('test/')) products.add(imported);
        else if (existsSync(join(this.#root, imported))) waiting.push(imported);
      }
    }
    if (KERNELS.some((kernel) => tests.has(kernel))) return 'kernel';
    if (stubbed) return 'engine';
    if (spawned || HOSTS.some((host) => products.has(host))) return 'real';
    const machine = [...products].some((path) =>
      MACHINES.some((folder) => path.startsWith(folder)),
    );
    return machine ? 'engine' : 'codec';
  }
}
