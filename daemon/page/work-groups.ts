/**
 * Which FPDUs and which completion belong to a work request, read from a sample of a trace as its
 * ends would: a queue pair sends the messages of its send queue in order, one receive takes one
 * Send, and Read Responses answer Read Requests in order.
 *
 * A sample begins somewhere, so some of it may belong to work requests before it: that stays alone.
 */
import type { TraceRecord } from '../../verbs-api/contract/trace-sample.ts';

/** A record, seen from one queue pair. What passes between two of them is seen from both. */
export interface Sighting {
  readonly record: TraceRecord;
  /** Whose lane it is in. */
  readonly lane: string;
  /** It came, or it left; undefined for what is on no wire. */
  readonly direction: 'in' | 'out' | undefined;
}

/** A work request with what came of it. */
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

/** What a work request becomes on the wire. */
type Work = 'send' | 'write' | 'read' | 'atomic' | 'receive' | 'local';

/** What an FPDU carries. */
export type Message =
  | 'send'
  | 'write'
  | 'readRequest'
  | 'readResponse'
  | 'atomicRequest'
  | 'atomicResponse'
  | 'immediate'
  | 'terminate'
  | 'other';

/** What a lane waits for. Requests leave a queue once all of their messages are seen. */
interface LaneState {
  /** Send work whose message has not left yet, or not all of it. */
  readonly sending: OpenGroup[];
  /** Reads and atomics whose response has not come yet, or not all of it. */
  readonly asking: OpenGroup[];
  /** Sends that came and that no receive was seen for. */
  readonly arrived: Sighting[][];
  /** A Send that has not come to its end, and the receive that it has. */
  arriving: Sighting[] | undefined;
  receiving: OpenGroup | undefined;
  readonly incomplete: OpenGroup[];
}

/** The lane of a queue pair. */
export function laneOf(device: string, qpn: number): string {
  return `${device} QP ${qpn}`;
}

/** From whose side a record is to be shown: from one, or from both ends of a link. */
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

/** The work requests of a sample. `sightings` are in the order of time. */
export function groupWork(sightings: readonly Sighting[]): WorkGroup[] {
  const lanes = new Map<string, LaneState>();
  const groups: OpenGroup[] = [];
  for (const sighting of sightings) {
    const state = lanes.get(sighting.lane) ?? newLane();
    lanes.set(sighting.lane, state);
    switch (sighting.record.kind) {
      case 'wqe':
        groups.push(takeWqe(state, sighting));
        break;
      case 'fpdu':
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

function newLane(): LaneState {
  return {
    sending: [],
    asking: [],
    arrived: [],
    arriving: undefined,
    receiving: undefined,
    incomplete: [],
  };
}

function takeWqe(state: LaneState, wqe: Sighting): OpenGroup {
  const group: OpenGroup = { wqe, fpdus: [], cqe: undefined, work: workOf(wqe.record.opcode) };
  state.incomplete.push(group);
  if (group.work === 'receive') {
    // A receive is taken for a Send that comes, so that was told before it, or began before it.
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
  else if (message === 'send' || message === 'immediate') takeInboundSend(state, sighting);
  else if (message === 'readResponse' || message === 'atomicResponse') {
    const work = message === 'readResponse' ? 'read' : 'atomic';
    const group = state.asking.find((each) => each.work === work);
    group?.fpdus.push(sighting);
    if (group !== undefined && isLast(sighting)) remove(state.asking, group);
  }
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

/** The work of a WQE's or CQE's opcode: 'RDMA_WRITE', 'RECV_RDMA_WITH_IMM' …. */
function workOf(opcode = ''): Work {
  if (/recv/i.test(opcode)) return 'receive';
  if (/read/i.test(opcode)) return 'read';
  if (/write/i.test(opcode)) return 'write';
  if (/send/i.test(opcode)) return 'send';
  if (/atomic|cmp|fetch|swap/i.test(opcode)) return 'atomic';
  return 'local';
}

/** What an FPDU carries, by the name of its RDMAP message. */
export function messageOf(opcode = ''): Message {
  if (/^terminate/i.test(opcode)) return 'terminate';
  if (/^immediate/i.test(opcode)) return 'immediate';
  if (/atomic re(?:quest|q)/i.test(opcode)) return 'atomicRequest';
  if (/atomic/i.test(opcode)) return 'atomicResponse';
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

/** The DDP segment with the Last flag ends its message (RFC 5041 §5.2). */
export function isLast({ record }: Sighting): boolean {
  return record.text.endsWith(', last');
}

function remove(groups: OpenGroup[], group: OpenGroup): void {
  const index = groups.indexOf(group);
  if (index >= 0) groups.splice(index, 1);
}
