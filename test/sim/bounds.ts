/**
 * How much a host may hold between two turns: the rule `bounded`. Each bound follows from how many
 * connections, ids and queue pairs there are, or is a limit of the product.
 */
import type { RnicHost } from '#daemon/host/rnic-host';
import { CHUNK_MIN_BYTES } from '#daemon/iwarp/engine/chunk-pool';
import type { QP } from '#daemon/rnic/queue-pair';
import { must } from './rules.ts';
import type { SimMemory } from './sim-memory.ts';

/** Maximum chunks in use per connection: for input, and for the output that waits for it. */
const CHUNKS_PER_CONNECTION = 16;
/** Timers of a host: the loop's, and the one that flushes queue pairs in error. */
const HOST_ALARMS = 2;
/** Timers of a connection: that of a fault which delays it. */
const ALARMS_PER_CONNECTION = 1;
/** Timers of an association of SCTP: for its end without a session, and for an acknowledgement. */
const ALARMS_PER_ASSOCIATION = 2;
/** Timers of a host whose notifications a fault delays: each ends with the fault's delay. */
const DELAYED_WAKES = 256;
/**
 * The input that a faulty link holds back before it stops reading, one more read, and a stream's
 * output.
 */
const FAULT_HELD_BYTES = 1_048_576 + 262_144 + CHUNKS_PER_CONNECTION * 262_144;
/** Requests that an agent may have pending: writes until connections stop reading, plus those already read. */
const AGENT_REQUESTS = 8192;
const AGENT_REQUESTS_PER_CONNECTION = 8192;
/** Bound of fetches from a program's memory: the limit, and one message for each queue pair. */
const STAGED_BYTES = 16 * 2 ** 20;
const STAGED_PER_QP_BYTES = 1_048_576;

/** Counts kept outside the host. */
interface Around {
  readonly name: string;
  readonly chunks: number;
  readonly alarms: number;
  /** Connection ids that its programs have. */
  readonly ids: number;
  /** A fault delays notifications. */
  readonly wakesLate: boolean;
}

/** Checks everything that a host holds. */
export function checkHostBounds(
  host: RnicHost,
  { name, chunks, alarms, ids, wakesLate }: Around,
): void {
  const conduits = [...host.conduits()];
  const connections = conduits.length;
  const held = host.heldCounts();
  const most: Readonly<Record<keyof typeof held, number>> = {
    // A turn ends with all work done, and nothing waits for the next.
    queued: 0,
    deferred: 0,
    nicEffects: 0,
    cmEvents: 0,
    unsettledQPs: 0,
    waitingQPs: host.devices.reduce((sum, { nic }) => sum + (nic.liveCounts()['qp'] ?? 0), 0),
    timed: connections,
    // The ids of programs, and those of requests that a program dropped with its listener.
    ids: ids + held.endpoints,
    endpoints: connections + held.ids,
    dials: held.ids,
    starting: connections,
    // Ports are kept for programs on the preload library only.
    ports: 0,
  };
  for (const what in held) {
    const count = held[what as keyof typeof held];
    const bound = most[what as keyof typeof held];
    must(count <= bound, 'bounded', () => `${count} ${what} of ${name}, at most ${bound}`);
  }
  const chunksMost = CHUNKS_PER_CONNECTION * (connections + 1);
  must(chunks <= chunksMost, 'bounded', () => `${chunks} chunks for ${connections} connections`);
  const late = wakesLate ? DELAYED_WAKES : 0;
  const alarmsMost =
    HOST_ALARMS +
    ALARMS_PER_CONNECTION * connections +
    ALARMS_PER_ASSOCIATION * host.associationCount +
    late;
  must(alarms <= alarmsMost, 'bounded', () => `${alarms} alarms for ${connections} connections`);
  for (const { stream, link } of conduits) {
    const input = stream.heldInput.length;
    must(input <= CHUNK_MIN_BYTES, 'bounded', () => `${input} bytes of a partial FPDU`);
    const faulty = link.heldBytes ?? 0;
    must(faulty <= FAULT_HELD_BYTES, 'bounded', () => `${faulty} bytes held by a fault`);
  }
  for (const { nic } of host.devices) for (const qp of nic.listQPs()) checkQP(qp);
}

/** Completions wait for slow memory: at most one for each work request that is posted. */
function checkQP({ qpn, heldCompletions, sqCount, rqCount, srq }: QP): void {
  const posted = sqCount + (srq?.count ?? rqCount);
  must(heldCompletions <= posted, 'bounded', () => {
    return `QP ${qpn} holds ${heldCompletions} completions of ${posted} work requests`;
  });
}

/** Checks the state held for the memory of one program. */
export function checkMemoryBounds(memory: SimMemory, connections: number, qps: number): void {
  const { pendingRequests, stagedBytes } = memory;
  const requests = AGENT_REQUESTS + AGENT_REQUESTS_PER_CONNECTION * connections;
  must(pendingRequests <= requests, 'bounded', () => `${pendingRequests} requests to an agent`);
  const staged = STAGED_BYTES + STAGED_PER_QP_BYTES * qps;
  must(stagedBytes <= staged, 'bounded', () => `${stagedBytes} bytes fetched and not used`);
}
