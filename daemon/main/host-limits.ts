/** The system's limits for this process, and the share of them that clients may use. */
import { readdirSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import type { DaemonLimits } from '../ipc/objects/daemon-budget.ts';
import { DESCRIPTORS_MIN, openFilesLimit, openFilesRefusal } from './open-files.ts';

/** Descriptors reserved from clients, so status, reset and HTTP keep working. */
export const RESERVED_DESCRIPTORS = 64;
/** Share of vm.max_map_count reserved from clients: the heap also grows by mappings. */
const RESERVED_MAPPINGS = 1 / 4;
/** Share of the machine's memory that shared memory may use. */
const SHARED_MEMORY = 1 / 2;
/** Linux's default of vm.max_map_count. */
const MAP_COUNT_DEFAULT = 65_530;
/** The daemon uses a few hundred bytes per object, so this many fit its heap. */
const OBJECTS = 1_048_576;

/** Configured limits; defaults depend on the system. */
export function daemonLimits(given: Partial<DaemonLimits>): DaemonLimits {
  const memoryBytes = Math.min(totalmem(), process.constrainedMemory() || totalmem());
  const mapCount = systemNumber('/proc/sys/vm/max_map_count') ?? MAP_COUNT_DEFAULT;
  const own = readLines('/proc/self/maps').length;
  return {
    sharedBytes: given.sharedBytes ?? Math.floor(memoryBytes * SHARED_MEMORY),
    mappings: given.mappings ?? Math.max(1, Math.floor(mapCount * (1 - RESERVED_MAPPINGS)) - own),
    objects: given.objects ?? OBJECTS,
  };
}

/** The process's descriptor limit. EMFILE if it is too low to serve. */
export function descriptorLimit(): number {
  const limit = openFilesLimit();
  if (limit < DESCRIPTORS_MIN) throw new VerbsError('EMFILE', openFilesRefusal(limit));
  return limit;
}

/** Descriptors in use; 0 if unknown. */
export function descriptorsUsed(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}

function systemNumber(path: string): number | undefined {
  const value = Number(readLines(path)[0]);
  return Number.isSafeInteger(value) && value > 0 ? value : undefined;
}

function readLines(path: string): readonly string[] {
  try {
    return readFileSync(path, 'latin1').split('\n');
  } catch {
    return [];
  }
}
