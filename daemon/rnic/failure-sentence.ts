/**
 * The only place that turns causes into sentences: what a completion or an event means, in the words
 * of the verbs.
 *
 * A program sees details of its own memory only. Of its peer's memory it sees only what it sent
 * itself: the rest belongs to another user, unless the host says that both users are the same.
 */
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, QPState } from '#contract/verbs/enums';
import { qpStateName } from '#contract/verbs/qp-state';
import type { Cause, FailedWork, FlushedWork, RefusedAccess } from './failure-cause.ts';
import { quirkText } from './failure-event.ts';
import {
  AccessRefusal,
  MessageFailure,
  type NamedRange,
  type WireCause,
  type WireFailure,
} from './wire-port.ts';

/** Facts about the other end of a connection. */
export interface PeerFacts {
  /** Number of its queue pair, if this end knows it. */
  readonly qpn: number | undefined;
  /** Its address, if it has one. */
  readonly address: string | undefined;
  /** The queue pair itself, if it belongs to this host. */
  readonly here:
    | {
        /** Its last error, or why its own work fails. */
        readonly cause: Cause | undefined;
        /** True if it belongs to the same user, who may see all of its memory. */
        readonly sameUser: boolean;
      }
    | undefined;
  /** The state of its receiver; only for RoCE devices of this host. */
  readonly reception?: Reception | undefined;
}

/**
 * Undefined fields: the user has no queue pair with this number. Queue pairs of other users look the
 * same, or their numbers could be probed.
 */
interface Reception {
  readonly qp:
    | {
        readonly state: QPState;
        /** Number of the queue pair whose packets it accepts. */
        readonly destQpNum: number;
        /** The PSN that it expects. */
        readonly psn: number;
      }
    | undefined;
  readonly senderQpn: number;
}

/** The names of a completion's status: in sentences, in rdma-core, in TypeScript. */
interface Name {
  readonly text: string;
  readonly c: string;
  readonly script: string;
}

const MICROS_PER_MILLI = 1000;
const MICROS_PER_SECOND = 1_000_000;

const STATUSES: ReadonlyMap<number, Name> = new Map(
  (
    [
      [CQEStatus.locLenErr, 'local length error', 'locLenErr'],
      [CQEStatus.locProtErr, 'local protection error', 'locProtErr'],
      [CQEStatus.locQpOpErr, 'local QP operation error', 'locQpOpErr'],
      [CQEStatus.wrFlushErr, 'flushed', 'wrFlushErr'],
      [CQEStatus.badRespErr, 'bad response error', 'badRespErr'],
      [CQEStatus.locAccessErr, 'local access error', 'locAccessErr'],
      [CQEStatus.remAccessErr, 'remote access error', 'remAccessErr'],
      [CQEStatus.remInvReqErr, 'remote invalid request error', 'remInvReqErr'],
      [CQEStatus.generalErr, 'general error', 'generalErr'],
      [CQEStatus.mwBindErr, 'memory window bind error', 'mwBindErr'],
      [CQEStatus.remOpErr, 'remote operation error', 'remOpErr'],
      [CQEStatus.retryExcErr, 'transport retry counter exceeded', 'retryExcErr'],
      [CQEStatus.rnrRetryExcErr, 'RNR retry counter exceeded', 'rnrRetryExcErr'],
    ] as const
  ).map(([status, text, script]) => [status, { text, script, c: `IBV_WC_${snake(script)}` }]),
);

const OPERATIONS: ReadonlyMap<number, Name> = new Map(
  (
    [
      [SQOpcode.write, 'IBV_WR_RDMA_WRITE', 'rdmaWrite'],
      [SQOpcode.read, 'IBV_WR_RDMA_READ', 'rdmaRead'],
      [SQOpcode.readLocalInv, 'IBV_WR_RDMA_READ', 'rdmaRead'],
      [SQOpcode.send, 'IBV_WR_SEND', 'send'],
      [SQOpcode.sendWithImm, 'IBV_WR_SEND_WITH_IMM', 'sendWithImm'],
      [SQOpcode.sendRemoteInv, 'IBV_WR_SEND_WITH_INV', 'sendWithInv'],
      [SQOpcode.fetchAndAdd, 'IBV_WR_ATOMIC_FETCH_AND_ADD', 'atomicFetchAndAdd'],
      [SQOpcode.compAndSwap, 'IBV_WR_ATOMIC_CMP_AND_SWP', 'atomicCmpAndSwap'],
      [SQOpcode.immediate, 'IBV_WR_SEND_WITH_IMM', 'sendWithImm'],
      [SQOpcode.writeWithImm, 'IBV_WR_RDMA_WRITE_WITH_IMM', 'rdmaWriteWithImm'],
      [SQOpcode.bindMW, 'IBV_WR_BIND_MW', 'bindMW'],
      [SQOpcode.localInv, 'IBV_WR_LOCAL_INV', 'localInv'],
    ] as const
  ).map(([opcode, c, script]) => [opcode, { text: c, c, script }]),
);

const RIGHTS: readonly (readonly [number, string])[] = [
  [Access.localWrite, 'LOCAL_WRITE'],
  [Access.remoteWrite, 'REMOTE_WRITE'],
  [Access.remoteRead, 'REMOTE_READ'],
  [Access.remoteAtomic, 'REMOTE_ATOMIC'],
  [Access.mwBind, 'MW_BIND'],
];

const NEEDS: Readonly<Record<RefusedAccess['operation'], string>> = {
  'RDMA Write': 'REMOTE_WRITE',
  'RDMA Read': 'REMOTE_READ',
  atomic: 'REMOTE_ATOMIC',
  'Send with Invalidate': 'remote rights',
};

/** Meaning of a peer's refusal when nothing but its answer is known. */
const REFUSALS: Readonly<Partial<Record<MessageFailure, string>>> = {
  [MessageFailure.remoteAccess]:
    'its rkey is not valid there, does not grant this access, or the range ends outside of its memory',
  [MessageFailure.remoteInvalidRequest]:
    'its queue pair does not permit this operation (qp_access_flags, max_dest_rd_atomic), the length is impossible, or the address of an atomic is not a multiple of 8',
  [MessageFailure.remoteOperation]:
    'its receive is too short or names memory that it may not use, or its memory is gone',
  [MessageFailure.badResponse]: 'its response does not match the request',
};

/** The call and the result, as spelt in the program's language. */
interface FailureNames {
  readonly verb: string;
  readonly step: string;
  readonly code: string;
}

/** The names of a failed work request, for programs in C or TypeScript. */
export function failureNames(work: FailedWork, qpn: number, script: boolean): FailureNames {
  const key = script ? 'script' : 'c';
  const code = STATUSES.get(work.status)?.[key] ?? String(work.status);
  const operation = OPERATIONS.get(work.opcode)?.[key];
  const id = script ? `wrId ${work.wrId}` : `wr_id ${work.wrId}`;
  const step = [operation, id, 'on QP', qpn].filter((part) => part !== undefined).join(' ');
  return { verb: postVerb(work.queue, script), step, code };
}

export function flushNames(qpn: number, script: boolean): FailureNames {
  const code = STATUSES.get(CQEStatus.wrFlushErr)?.[script ? 'script' : 'c'] ?? '';
  return { verb: script ? 'CQ.poll' : 'ibv_poll_cq', step: `of QP ${qpn}`, code };
}

export function failureSentence(work: FailedWork, peer?: PeerFacts): string {
  const status = STATUSES.get(work.status)?.text ?? `status ${work.status}`;
  return `${status}: ${causeText(work.cause, peer)}`;
}

/** Why, and how much, work of a queue pair was flushed. */
export function flushSentence(work: FlushedWork, qpn: number, peer?: PeerFacts): string {
  const counts = [counted(work.sends, 'send'), counted(work.receives, 'receive')];
  const what = counts.filter((part) => part !== '').join(' and ');
  const of = what === '' ? '' : `${what} `;
  return `${of}flushed: QP ${qpn} went to ERR because ${causeText(work.cause, peer)}`;
}

export function causeText(cause: Cause | undefined, peer?: PeerFacts): string {
  if (cause === undefined) return 'its connection ended';
  switch (cause.kind) {
    case 'access':
      return `the peer's ${accessText(cause, true)}`;
    case 'sge':
      return sgeText(cause);
    case 'too-long':
      return `message of ${cause.messageBytes} bytes or more, receive buffer of ${cause.receiveBytes}`;
    case 'no-receive':
      return `a message of the peer found no receive posted${cause.shared ? ' to the shared receive queue' : ''}`;
    case 'request':
    case 'local':
    case 'ended':
      return cause.text;
    case 'wire':
      return wireText(cause, peer);
    default:
      cause satisfies never;
      return '';
  }
}

/** The part of an event's text that describes a failure, in addition to the wire's own words. */
export function foundText(cause: Cause | undefined, peer?: PeerFacts): string {
  if (cause?.kind !== 'wire') return '';
  if (cause.found !== undefined) return `; ${causeText(cause.found)}`;
  return cause.by === 'peer' && peer !== undefined ? peerFinding(cause.failure, peer) : '';
}

function wireText(
  { by, failure, found }: Extract<Cause, { kind: 'wire' }>,
  peer?: PeerFacts,
): string {
  if (by === 'us') return found === undefined ? failure.text : causeText(found);
  const text =
    failure.cause === undefined ? failure.text : answerText(failure, failure.cause, peer);
  return (
    text +
    namedText(failure) +
    quirkText(failure) +
    (peer === undefined ? '' : peerFinding(failure, peer))
  );
}

function answerText({ named, text }: WireFailure, cause: WireCause, peer?: PeerFacts): string {
  switch (cause.kind) {
    case 'no-answer': {
      const tries = `${counted(cause.retries, 'retry', 'retries')} of ${timeText(cause.timeoutMicros)}`;
      return `no response from ${peerName(peer)} to PSN ${cause.psn} after ${tries}${receptionText(cause.psn, peer)}`;
    }
    case 'not-ready': {
      const tries = `${counted(cause.retries, 'retry', 'retries')} of ${timeText(cause.timerMicros)}`;
      return `${peerName(peer)} had no receive posted, ${tries}`;
    }
    case 'refused': {
      const what =
        named === undefined ? text : `${peerName(peer)} refused ${rangeText(named, 'rkey')}`;
      // Its own cause is more specific.
      if (peer?.here?.cause !== undefined) return what;
      const meaning = REFUSALS[cause.failure];
      return meaning === undefined ? what : `${what}: ${meaning}`;
    }
    default:
      cause satisfies never;
      return text;
  }
}

/** Why packets to a queue pair of this host may go unanswered. */
function receptionText(psn: number, peer: PeerFacts | undefined): string {
  const { qpn, reception } = peer ?? {};
  if (qpn === undefined || reception === undefined || peer?.here?.cause !== undefined) return '';
  const { qp, senderQpn } = reception;
  if (qp === undefined) return `; there is no QP ${qpn} of this user there`;
  const { state, destQpNum } = qp;
  if (!RECEIVING.includes(state)) {
    return `; QP ${qpn} there is in ${qpStateName(state)}: it receives in RTR and RTS`;
  }
  if (destQpNum !== senderQpn) {
    return `; QP ${qpn} there takes packets of QP ${destQpNum} (its dest_qp_num), not of ${senderQpn}`;
  }
  if (qp.psn === psn) return '';
  return `; QP ${qpn} there expects PSN ${qp.psn}, and the packet has ${psn}: its rq_psn must be our sq_psn`;
}

const RECEIVING: readonly QPState[] = [QPState.RTR, QPState.RTS, QPState.SQD];

/** The memory to which the peer's answer refers. */
function namedText({ cause, named }: WireFailure): string {
  return named === undefined || cause !== undefined ? '' : `, about ${rangeText(named, 'rkey')}`;
}

/** The error that the queue pair at the other end found, if this host has it. */
function peerFinding(failure: WireFailure, peer: PeerFacts): string {
  const { here } = peer;
  const answered = failure.cause?.kind !== 'no-answer';
  if (here === undefined) {
    if (!answered || failure.kind === 'lost') return '';
    return '; its own daemon knows more (`iwarpd explain` there)';
  }
  const found = here.cause?.kind === 'wire' ? (here.cause.found ?? here.cause) : here.cause;
  if (found === undefined || found.kind === 'no-receive') return '';
  if (found.kind === 'access') return `; it found that the ${accessText(found, here.sameUser)}`;
  if (found.kind === 'wire') return found.by === 'us' ? `; it found: ${found.failure.text}` : '';
  if (found.kind === 'sge')
    return here.sameUser
      ? `; there, ${sgeText(found)}`
      : '; its receive names memory that it may not use';
  return `; there: ${causeText(found)}`;
}

/** `shown`: the reader may see all of this memory. */
function accessText({ operation, refusal, range, memory }: RefusedAccess, shown: boolean): string {
  const key = hex(range.key);
  const what =
    range.lengthBytes === 0
      ? operation
      : `${operation} of ${range.lengthBytes} bytes at ${hex(range.address)}`;
  const noun = memory?.window === true ? 'memory window' : 'MR';
  const own = `the ${noun} of rkey ${key}`;
  const full = memory !== undefined && shown ? `${own} (${extentText(memory)})` : own;
  switch (refusal) {
    case AccessRefusal.stagInvalid:
      if (range.key === 0 && memory === undefined) return `${what} names rkey 0x0: ${NO_RKEY}`;
      return `${what} names rkey ${key}, ${invalidText(memory, noun)}`;
    case AccessRefusal.stagNotAssociated: {
      const qpn = memory?.qpn ?? 0;
      if (qpn !== 0 && shown) return `${what} names rkey ${key}, a ${noun} bound to QP ${qpn}`;
      return `${what} names rkey ${key}, which belongs to another protection domain or queue pair`;
    }
    case AccessRefusal.bounds: {
      if (memory === undefined || !shown) return `${what} leaves ${own}`;
      return `${what} ${beyondText(range, memory)} ${full}`;
    }
    case AccessRefusal.access: {
      const grants =
        memory !== undefined && shown ? ` (it grants ${rightsText(memory.access)})` : '';
      return `${what} needs ${NEEDS[operation]}, which ${own} does not grant${grants}`;
    }
    case AccessRefusal.toWrap:
      return `${what} with rkey ${key} passes the end of the address space (2^64)`;
    case AccessRefusal.cannotInvalidate:
      return `${what} names rkey ${key}, which peers may not invalidate`;
    case AccessRefusal.misaligned:
      return `${what} with rkey ${key} is not aligned to 8 bytes`;
    case AccessRefusal.notPermitted:
      return `${what} is not permitted by the queue pair: its qp_access_flags lack ${NEEDS[operation]}`;
    default:
      return `${what} with rkey ${key} found its memory gone`;
  }
}

function invalidText(memory: RefusedAccess['memory'], noun: string): string {
  if (memory === undefined) return 'which is not or no longer registered';
  if (noun === 'memory window') return 'a memory window that is not bound';
  return memory.open || (memory.access & REMOTE) !== 0
    ? 'an MR that was invalidated'
    : `an MR that grants no remote access (registered with ${rightsText(memory.access)})`;
}

/** RoCE gives such a region rkey 0; see `UverbsMr`. */
const NO_RKEY =
  'it was never exchanged, or it belongs to a region registered without IBV_ACCESS_REMOTE_*, which has rkey 0 on RoCE';

const REMOTE = Access.remoteRead | Access.remoteWrite | Access.remoteAtomic;

function sgeText({
  index,
  refusal,
  range,
  write,
  memory,
}: Extract<Cause, { kind: 'sge' }>): string {
  const key = hex(range.key);
  const what = `SGE ${index} (${rangeText(range, 'lkey')})`;
  switch (refusal) {
    case AccessRefusal.stagInvalid:
      if (memory?.window === true)
        return `${what} names a memory window, whose key is for peers only`;
      return `${what} names no MR: lkey ${key} is not or no longer registered`;
    case AccessRefusal.stagNotAssociated:
      return `${what} names an MR of another protection domain`;
    case AccessRefusal.access: {
      const grants = memory === undefined ? '' : ` (it has ${rightsText(memory.access)})`;
      return `${what} is written to, and its MR was registered without LOCAL_WRITE${grants}`;
    }
    case AccessRefusal.bounds:
      if (memory === undefined) return `${what} is outside its MR`;
      return `${what} ${beyondText(range, memory)} its MR (${extentText(memory)})`;
    default:
      return `${what} cannot be ${write ? 'written' : 'read'}: its memory is gone`;
  }
}

/** How far a range exceeds its memory: for 'ends N bytes beyond'. */
function beyondText(range: NamedRange, memory: NamedRange): string {
  const before = memory.address - range.address;
  if (before > 0n) return `begins ${bytesText(before)} before`;
  const end = range.address + BigInt(range.lengthBytes);
  return `ends ${bytesText(end - (memory.address + BigInt(memory.lengthBytes)))} beyond`;
}

function extentText({ address, lengthBytes }: NamedRange): string {
  return `${hex(address)} + ${lengthBytes}`;
}

function rangeText({ key, address, lengthBytes }: NamedRange, keyName: string): string {
  return `${lengthBytes} bytes at ${hex(address)}, ${keyName} ${hex(key)}`;
}

function rightsText(access: number): string {
  const names = RIGHTS.flatMap(([right, name]) => ((access & right) === 0 ? [] : [name]));
  return names.length === 0 ? 'no rights' : names.join(', ');
}

function peerName(peer: PeerFacts | undefined): string {
  if (peer === undefined) return 'the peer';
  const { qpn, address } = peer;
  const where = address === undefined ? '' : `at ${address}`;
  const parts = [qpn === undefined ? '' : `QP ${qpn}`, where].filter((part) => part !== '');
  return parts.length === 0 ? 'the peer' : `the peer (${parts.join(' ')})`;
}

function postVerb(queue: FailedWork['queue'], script: boolean): string {
  if (queue === 'send') return script ? 'postSend' : 'ibv_post_send';
  return script ? 'postRecv' : 'ibv_post_recv';
}

function timeText(micros: number): string {
  if (micros === Number.POSITIVE_INFINITY) return 'no limit';
  if (micros < MICROS_PER_SECOND) return `${rounded(micros / MICROS_PER_MILLI)} ms`;
  return `${rounded(micros / MICROS_PER_SECOND)} s`;
}

/** Two significant digits, or the integer part if it is longer. */
function rounded(value: number): number {
  return value >= 10 ? Math.round(value) : Number(value.toPrecision(2));
}

/** `3 retries`; '' for none, or `0 entries` with `many`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return count === 0 && many === `${one}s` ? '' : `${count} ${count === 1 ? one : many}`;
}

function bytesText(bytes: bigint): string {
  return `${bytes} byte${bytes === 1n ? '' : 's'}`;
}

export function hex(value: number | bigint): string {
  return `0x${value.toString(16)}`;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}
