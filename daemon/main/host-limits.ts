/** The system's limits for this process, and the part of them that clients may use. */
import { readdirSync, readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { VerbsError } from '#contract/verbs/errors';
import { CM_NUMBERS, type DaemonLimits } from '../clients/objects/daemon-budget.ts';
import { GROUPS_MAX } from '../host/roce/multicast-groups.ts';
import { EPHEMERAL_PORTS } from '../host/roce/service-ports.ts';
import { ASSOCIATIONS_MAX } from '../host/sctp/association.ts';
import { DEFAULT_IB_CM_LIMITS } from '../roce/cm/cm-types.ts';
import { DESCRIPTORS_MIN, openFilesLimit, openFilesRefusal } from './open-files.ts';

/** Descriptors reserved from clients, so status, reset and HTTP keep working. */
export const RESERVED_DESCRIPTORS = 64;
/** Part of vm.max_map_count reserved from clients: the heap also grows by mappings. */
const RESERVED_MAPPINGS = 1 / 4;
/**
 * Maximum mappings that programs have freed but the garbage collector has not unmapped: it runs once
 * their views, of at least a page each, have grown by 64 MiB.
 */
const UNCOLLECTED_MAX = 16_384;
/** Maximum part of all mappings to reserve for these. */
const UNCOLLECTED_PART = 1 / 3;
/** Share of the machine's memory that shared memory may use. */
const SHARED_MEMORY = 1 / 2;
/** Share of the machine's memory for answers and events that clients have not read. */
const UNREAD_MEMORY = 1 / 4;
/** Part of the machine's memory for client bytes not used yet: an agent stages 16 MiB. */
const INPUT_MEMORY = 1 / 8;
/** Linux's default of vm.max_map_count. */
const MAP_COUNT_DEFAULT = 65_530;
/** Objects of all clients, if the heap is large enough. */
const OBJECTS_MAX = 1_048_576;
/**
 * Bytes of heap budgeted for each object of clients, out of half the heap. A protection domain takes
 * 1 KiB, a region 3.2 KiB, a queue pair 4 KiB, but a device has few of the larger ones: regions alone
 * would fill four fifths of the heap.
 */
const HEAP_PER_OBJECT_BYTES = 2048;
/** The same budget for a connection id with a connect request and its events. */
const HEAP_PER_ID_BYTES = 10_240;
/** Part of the heap's old generation that objects, and likewise ids, may fill. */
const HEAP_PART = 1 / 2;
/**
 * Maximum young generation, which V8 counts in the heap's limit and where nothing stays: three semi-spaces
 * of 64 MiB since Node 24, of 16 MiB before.
 */
const YOUNG_GENERATION_MAX_BYTES = 192 * 2 ** 20;
/** Least part of the heap's limit that is old generation: a heap of `--max-old-space-size=64` on Node 24. */
const OLD_GENERATION_MIN = 1 / 4;

/** Limits of the configuration and of the process. */
interface GivenLimits extends Partial<DaemonLimits> {
  readonly connections: number;
  readonly descriptors: number;
}

/** Configured limits; defaults depend on the system. `descriptors` are all of the process. */
export function daemonLimits(given: GivenLimits): DaemonLimits {
  const memoryBytes = Math.min(totalmem(), process.constrainedMemory() || totalmem());
  const mapCount = systemNumber('/proc/sys/vm/max_map_count') ?? MAP_COUNT_DEFAULT;
  const heapBytes = oldGenerationBytes() * HEAP_PART;
  const { connectionsMax } = DEFAULT_IB_CM_LIMITS;
  const openFiles = Math.min(given.descriptors, Number.MAX_SAFE_INTEGER);
  const own = readLines('/proc/self/maps').length;
  return {
    sharedBytes: given.sharedBytes ?? Math.floor(memoryBytes * SHARED_MEMORY),
    mappings: given.mappings ?? Math.max(1, Math.floor(mapCount * (1 - RESERVED_MAPPINGS)) - own),
    objects: given.objects ?? Math.min(OBJECTS_MAX, Math.floor(heapBytes / HEAP_PER_OBJECT_BYTES)),
    // There cannot be more ids than numbers.
    ids: Math.min(given.ids ?? Math.floor(heapBytes / HEAP_PER_ID_BYTES), CM_NUMBERS),
    connections: given.connections,
    descriptors: openFiles - RESERVED_DESCRIPTORS,
    descriptorsInFlight: openFiles,
    ports: portCount(),
    groups: given.groups ?? GROUPS_MAX,
    associations: Math.min(given.associations ?? ASSOCIATIONS_MAX, ASSOCIATIONS_MAX),
    roceConnections: Math.min(given.roceConnections ?? connectionsMax, connectionsMax),
    inputBytes: given.inputBytes ?? Math.floor(memoryBytes * INPUT_MEMORY),
    unreadBytes: given.unreadBytes ?? Math.floor(memoryBytes * UNREAD_MEMORY),
  };
}

/** Size of the heap's old generation, at least: V8 reports only its sum with the young one. */
function oldGenerationBytes(): number {
  const { heap_size_limit: limit } = getHeapStatistics();
  return Math.max(limit * OLD_GENERATION_MIN, limit - YOUNG_GENERATION_MAX_BYTES);
}

/** Part of `mappings` to reserve for mappings that wait for the garbage collector. */
export function uncollectedMappings(mappings: number): number {
  return Math.min(UNCOLLECTED_MAX, Math.floor(mappings * UNCOLLECTED_PART));
}

/** Number of ephemeral ports, of the machine or of RoCE, whichever is smaller. */
function portCount(): number {
  const range = readLines('/proc/sys/net/ipv4/ip_local_port_range')[0] ?? '';
  const [first = 0, last = 0] = range.split(/\s+/).map(Number);
  return last > first ? Math.min(last - first + 1, EPHEMERAL_PORTS) : EPHEMERAL_PORTS;
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
