/**
 * Matches FPDUs, packets and completions of a trace sample to work requests, by the same rules as the two
 * ends: a queue pair sends the messages of its send queue in order, one receive takes one Send, and
 * Read Responses answer Read Requests in order.
 *
 * A sample may begin with events of earlier work requests: these stay unmatched.
 */
import type { TraceRecord } from '#contract/protocol/trace-sample';

/** A record as seen from one queue pair. Traffic between two queue pairs is seen from both. */
export interface Sighting {
  readonly record: TraceRecord;
  readonly lane: string;
  /** Received or sent; undefined if it is not wire traffic. */
  readonly direction: 'in' | 'out' | undefined;
}

/** A work request and the events that resulted from it. */
export interface WorkGroup {
  readonly wqe: Sighting;
  readonly fpdus: readonly Sighting[];
  readonly cqe: Sighting | undefined;
}

interface OpenGroup {
  readonly wqe: Sighting;
  readonly fpdus: Sighting[];
  cqe: Sighting | undefined;
  readonly work: Work;
}

/** The wire operation of a work request. */
type Work = 'send' | 'write' | 'read' | 'atomic' | 'receive' | 'local';

/** The message that an FPDU or a packet carries. */
type Message =
  | 'send'
  | 'write'
  | 'readRequest'
  | 'readResponse'
  | 'atomicRequest'
  | 'atomicResponse'
  | 'immediate'
  | 'acknowledge'
  | 'terminate'
  | 'other';

/**
 * Work requests and messages that a lane waits for. Requests leave a queue once all their messages
 * were seen.
 */
class LaneState {
  /** Send work whose message has not been fully sent. */
  readonly sending: OpenGroup[] = [];
  /** Reads and atomics whose response has not fully arrived. */
  readonly asking: OpenGroup[] = [];
  /** Sends that arrived without a known receive. */
  readonly arrived: Sighting[][] = [];
  /** A partially received Send, and its receive. */
  arriving: Sighting[] | undefined = undefined;
  receiving: OpenGroup | undefined = undefined;
  readonly incomplete: OpenGroup[] = [];
}

export function laneOf(device: string, qpn: number): string {
  return `${device} QP ${qpn}`;
}

/** The queue pairs from which to show a record: one, or both ends of a link. */
export function sightingsOf(record: TraceRecord): Sighting[] {
  const { device, qpn, peerDevice, peerQpn, link, by } = record;
  const out = by === 'us';
  const direction = by === undefined ? undefined : out ? 'out' : 'in';
  const sightings: Sighting[] = [];
  if (device !== undefined && qpn !== undefined) {
    sightings.push({ record, lane: laneOf(device, qpn), direction });
  }
  if (peerDevice !== undefined && peerQpn !== undefined) {
    const theirs = direction === undefined ? undefined : out ? 'in' : 'out';
    sightings.push({ record, lane: laneOf(peerDevice, peerQpn), direction: theirs });
  }
  if (sightings.length === 0) {
    const lane = link === undefined ? (device ?? 'daemon') : `link ${link}`;
    sightings.push({ record, lane, direction });
  }
  return sightings;
}

/** The work requests of a sample. `sightings` are in order of time. */
export function groupWork(sightings: readonly Sighting[]): WorkGroup[] {
  const lanes = new Map<string, LaneState>();
  const groups: OpenGroup[] = [];
  for (const sighting of sightings) {
    const state = lanes.get(sighting.lane) ?? new LaneState();
    lanes.set(sighting.lane, state);
    switch (sighting.record.kind) {
      case 'wqe':
        groups.push(takeWqe(state, sighting));
        break;
      case 'fpdu':
      case 'packet':
        takeFpdu(state, sighting);
        break;
      case 'cqe':
        takeCqe(state, sighting);
        break;
      default:
        break;
    }
  }
  return groups;
}

function takeWqe(state: LaneState, wqe: Sighting): OpenGroup {
  const group: OpenGroup = { wqe, fpdus: [], cqe: undefined, work: workOf(wqe.record.opcode) };
  state.incomplete.push(group);
  if (group.work === 'receive') {
    // A receive is taken when its Send arrives, so that Send was recorded, or began, before it.
    const arrived = state.arrived.shift();
    if (arrived !== undefined) group.fpdus.push(...arrived);
    else if (state.arriving !== undefined && state.receiving === undefined) {
      group.fpdus.push(...state.arriving);
      state.receiving = group;
    }
  } else if (group.work !== 'local') {
    state.sending.push(group);
  }
  return group;
}

function takeFpdu(state: LaneState, sighting: Sighting): void {
  const message = messageOf(sighting.record.opcode);
  if (sighting.direction === 'out') takeOutbound(state, sighting, message);
  else if (takesReceive(sighting, message)) takeInboundSend(state, sighting);
  else if (message === 'readResponse' || message === 'atomicResponse') {
    const work = message === 'readResponse' ? 'read' : 'atomic';
    const group = state.asking.find((each) => each.work === work);
    group?.fpdus.push(sighting);
    if (group !== undefined && isLast(sighting)) remove(state.asking, group);
  }
}

/** On RoCE, immediate data is part of the last packet of a Write. */
function takesReceive({ record }: Sighting, message: Message): boolean {
  if (message === 'write') return /Immediate/.test(record.opcode ?? '');
  return message === 'send' || message === 'immediate';
}

function takeOutbound(state: LaneState, sighting: Sighting, message: Message): void {
  const [group] = state.sending;
  if (group === undefined || !becomes(group.work, message)) return;
  group.fpdus.push(sighting);
  if (group.work === 'read' || group.work === 'atomic') {
    state.sending.shift();
    state.asking.push(group);
  } else if (isLast(sighting)) {
    state.sending.shift();
  }
}

function takeInboundSend(state: LaneState, sighting: Sighting): void {
  const { receiving } = state;
  receiving?.fpdus.push(sighting);
  const arriving = [...(state.arriving ?? []), sighting];
  if (!isLast(sighting)) {
    state.arriving = arriving;
    return;
  }
  if (receiving === undefined) state.arrived.push(arriving);
  state.arriving = undefined;
  state.receiving = undefined;
}

function takeCqe(state: LaneState, cqe: Sighting): void {
  const { wrId, opcode } = cqe.record;
  const receive = workOf(opcode) === 'receive';
  const group = state.incomplete.find((each) => {
    return each.wqe.record.wrId === wrId && (each.work === 'receive') === receive;
  });
  if (group === undefined) return;
  group.cqe = cqe;
  remove(state.incomplete, group);
}

/** The operation for the opcode of a WQE or CQE: 'RDMA_WRITE', 'RECV_RDMA_WITH_IMM' …. */
function workOf(opcode = ''): Work {
  if (/recv/i.test(opcode)) return 'receive';
  if (/read/i.test(opcode)) return 'read';
  if (/write/i.test(opcode)) return 'write';
  if (/send/i.test(opcode)) return 'send';
  if (/atomic|cmp|fetch|swap/i.test(opcode)) return 'atomic';
  return 'local';
}

/** The content of an FPDU or a packet, by the name of its opcode. */
export function messageOf(opcode = ''): Message {
  if (/^terminate/i.test(opcode)) return 'terminate';
  if (/^immediate/i.test(opcode)) return 'immediate';
  if (/atomic re(?:quest|q)|cmpswap|fetchadd/i.test(opcode)) return 'atomicRequest';
  if (/atomic/i.test(opcode)) return 'atomicResponse';
  if (/acknowledge/i.test(opcode)) return 'acknowledge';
  if (/read request/i.test(opcode)) return 'readRequest';
  if (/read response/i.test(opcode)) return 'readResponse';
  if (/write/i.test(opcode)) return 'write';
  if (/send/i.test(opcode)) return 'send';
  return 'other';
}

function becomes(work: Work, message: Message): boolean {
  switch (work) {
    case 'send':
      return message === 'send' || message === 'immediate';
    case 'write':
      return message === 'write' || message === 'immediate';
    case 'read':
      return message === 'readRequest';
    case 'atomic':
      return message === 'atomicRequest';
    default:
      return false;
  }
}

/**
 * The DDP segment with the Last flag ends its message (RFC 5041 §5.2), and so does a packet whose
 * opcode says Last or Only.
 */
export function isLast({ record }: Sighting): boolean {
  if (record.kind === 'packet') return /\b(?:Last|Only|Acknowledge)\b/.test(record.opcode ?? '');
  return record.text.endsWith(', last');
}

function remove(groups: OpenGroup[], group: OpenGroup): void {
  const index = groups.indexOf(group);
  if (index >= 0) groups.splice(index, 1);
}
