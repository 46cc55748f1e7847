/**
 * Runs our transport in place of one side of a recorded conversation of rxe with itself: a
 * responder gets the recorded requests, and a requester the recorded work requests and answers.
 */
import { QPState, QPType } from '#contract/verbs/enums';
import { AccessRefusal, type AtomicAccess, OutboundKind } from '#daemon/rnic/wire-port';
import { operationOf, PacketOperation, Service, Trait } from '#daemon/roce/wire/opcode';
import { PATH_MTU_MAX_BYTES } from '#daemon/roce/wire/path-mtu';
import { addPsn, psnDistance } from '#daemon/roce/wire/psn';
import { NakCode, nakSyndrome, SyndromeKind, syndromeKind } from '#daemon/roce/wire/syndrome';
import { concat, hexOf } from './hex.ts';
import { ModelUser, type Work } from './model-user.ts';
import type { RecordedFlow, RecordedPacket } from './roce-recordings.ts';
import { pathOf, TransportSide } from './transport-pair.ts';

const WORD = 2 ** 32;
const ATOMIC_BYTES = 8;
/** Codes of RFC 7306, which the port uses. */
const FETCH_ADD = 0;
const COMPARE_SWAP = 2;
const ACK_REQUEST_AT = 8;
const ACK_REQUEST = 0x80;
/** More than any recording has. */
const PLENTY = 1000;

/** Parameters of the recorded programs that the packets do not show. */
export interface ReplayOptions {
  readonly receiveBytes?: number;
  /** The RNR timer code of the responder. */
  readonly minRnrTimer?: number;
  /** A key that the responder has no memory for. */
  readonly unknownKey?: number;
}

/** Our bytes and the recorded ones, as hexadecimal text. */
interface Replayed {
  readonly ours: readonly string[];
  readonly recorded: readonly string[];
}

/** The path MTU of a flow: the payload of the first packet that does not end its message. */
function mtuBytesOf({ requests, answers }: RecordedFlow): number {
  const partial = [...requests, ...answers].find(
    ({ traits }) => (traits & Trait.payload) !== 0 && (traits & Trait.ends) === 0,
  );
  return partial?.packet.payloadLength ?? PATH_MTU_MAX_BYTES;
}

function mtuCode(bytes: number): number {
  return Math.log2(bytes) - 7;
}

function payloadOf({ bytes, packet }: RecordedPacket): Uint8Array {
  return bytes.subarray(packet.payloadStart, packet.payloadStart + packet.payloadLength);
}

/** Memory with the recorded contents; the rest of it does not exist. */
class RecordedMemory {
  readonly #bytes = new Map<number, number>();

  set(address: number, bytes: Uint8Array): void {
    for (const [index, byte] of bytes.entries()) this.#bytes.set(address + index, byte);
  }

  /** The same for bytes that have not been written or learned yet. */
  learn(address: number, bytes: Uint8Array): void {
    for (const [index, byte] of bytes.entries()) {
      if (!this.#bytes.has(address + index)) this.#bytes.set(address + index, byte);
    }
  }

  get(address: number, length: number): Uint8Array {
    return Uint8Array.from({ length }, (_, index) => {
      const byte = this.#bytes.get(address + index);
      if (byte === undefined) throw new Error('a Read of memory that the recording never shows');
      return byte;
    });
  }
}

/** The queue pair of a replayed responder. */
class RespondingUser extends ModelUser {
  readonly recorded = new RecordedMemory();
  /** The next message finds no receive. */
  notReady = false;
  readonly #options: ReplayOptions;

  constructor(options: ReplayOptions) {
    super('roce');
    this.#options = options;
  }

  override beginReceive(): AccessRefusal {
    if (this.notReady) return AccessRefusal.noBuffer;
    this.receives.push(this.#options.receiveBytes ?? 2 ** 16);
    return super.beginReceive();
  }

  override checkWriteTarget(stag: number): AccessRefusal {
    return stag === this.#options.unknownKey ? AccessRefusal.stagInvalid : AccessRefusal.none;
  }

  override checkReadSource(stag: number): AccessRefusal {
    return this.checkWriteTarget(stag);
  }

  override placeWrite(
    _stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    this.recorded.set(toHi * WORD + toLo, bytes.subarray(start, start + length));
    return AccessRefusal.none;
  }

  override gatherReadSource(
    _stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    target.set(this.recorded.get(toHi * WORD + toLo, length), targetStart);
    return AccessRefusal.none;
  }

  override executeAtomic(access: AtomicAccess): AccessRefusal {
    const refusal = this.checkWriteTarget(access.stag);
    if (refusal !== AccessRefusal.none) return refusal;
    const address = access.toHi * WORD + access.toLo;
    const original = new DataView(this.recorded.get(address, ATOMIC_BYTES).buffer);
    access.originalLo = original.getUint32(0, true);
    access.originalHi = original.getUint32(4, true);
    const operand = wide(access.operandHi, access.operandLo);
    const value = original.getBigUint64(0, true);
    if (access.operation === FETCH_ADD) original.setBigUint64(0, value + operand, true);
    else if (value === wide(access.compareHi, access.compareLo)) {
      original.setBigUint64(0, operand, true);
    }
    this.recorded.set(address, new Uint8Array(original.buffer));
    return AccessRefusal.none;
  }
}

function wide(hi: number, lo: number): bigint {
  return (BigInt(hi) << 32n) | BigInt(lo);
}

/** The memory before `request`, from the recorded answers. */
function learnMemory(
  memory: RecordedMemory,
  { packet }: RecordedPacket,
  answers: readonly RecordedPacket[],
  mtu: number,
): void {
  const address = packet.vaHi * WORD + packet.vaLo;
  for (const answer of answers) {
    const at = psnDistance(answer.packet.psn, packet.psn);
    if (operationOf(packet.opcode) === PacketOperation.readRequest) {
      if ((answer.traits & Trait.readResponse) === 0) continue;
      const inside = at >= 0 && at * mtu < Math.max(packet.dmaLength, 1);
      if (inside) memory.learn(address + at * mtu, payloadOf(answer));
    } else if (at === 0 && (answer.traits & Trait.atomicAckEth) !== 0) {
      const value = new DataView(new ArrayBuffer(ATOMIC_BYTES));
      value.setUint32(0, answer.packet.originalLo, true);
      value.setUint32(4, answer.packet.originalHi, true);
      memory.learn(address, new Uint8Array(value.buffer));
    }
  }
}

/**
 * rxe reports a missing receive twice: the packets after the one that it refused get a NAK for
 * their PSN, too. A responder must not answer these (IBTA 9.7.5.2.8).
 */
function withoutSecondNaks(answers: readonly RecordedPacket[]): RecordedPacket[] {
  return answers.filter(({ packet }, index) => {
    const before = answers[index - 1]?.packet;
    const sequence = nakSyndrome(NakCode.psnSequence);
    const again = packet.syndrome === sequence && before?.psn === packet.psn;
    return !again || syndromeKind(before.syndrome) !== SyndromeKind.rnrNak;
  });
}

/** Has our responder answer the requests of a flow. It answers each before the next one arrives. */
export function replayResponder(flow: RecordedFlow, options: ReplayOptions = {}): Replayed {
  const { requests } = flow;
  const answers = withoutSecondNaks(flow.answers);
  const [first] = requests;
  if (first === undefined || flow.service !== Service.rc) throw new Error('nothing to answer');
  const mtu = mtuBytesOf(flow);
  const user = new RespondingUser(options);
  const side = new TransportSide(user, { type: QPType.rc });
  const path = pathOf({
    pathMtu: mtuCode(mtu),
    rqPsn: first.packet.psn,
    destQpNum: answers[0]?.packet.destQpn ?? 0,
    minRnrTimer: options.minRnrTimer ?? 12,
    maxDestRdAtomic: 128,
  });
  side.wire.modified(path, QPState.RTR, 0);
  const ours: string[] = [];
  for (const request of requests) {
    // The program decides when it posts a receive; the recording shows when it did.
    const next = answers[ours.length]?.packet;
    user.notReady =
      next !== undefined &&
      syndromeKind(next.syndrome) === SyndromeKind.rnrNak &&
      operationOf(next.opcode) === PacketOperation.acknowledge;
    learnMemory(user.recorded, request, answers, mtu);
    side.receive(request.bytes, request.index);
    ours.push(...side.pollAll(request.index).map(hexOf));
  }
  return { ours, recorded: answers.map(({ bytes }) => hexOf(bytes)) };
}

/**
 * A request without its sender's free choice: whether a packet asks for an acknowledgment, unless
 * it is the last of a message of RC.
 */
function chosen(bytes: Uint8Array, traits: number, service: number): string {
  const copy = bytes.slice();
  if (service !== Service.rc || (traits & Trait.ends) === 0) {
    copy[ACK_REQUEST_AT] = (copy[ACK_REQUEST_AT] as number) & ~ACK_REQUEST;
  }
  return hexOf(copy);
}

const KINDS: ReadonlyMap<number, OutboundKind> = new Map([
  [PacketOperation.sendLast, OutboundKind.send],
  [PacketOperation.sendOnly, OutboundKind.send],
  [PacketOperation.sendLastImmediate, OutboundKind.sendWithImmediate],
  [PacketOperation.sendOnlyImmediate, OutboundKind.sendWithImmediate],
  [PacketOperation.sendLastInvalidate, OutboundKind.sendWithInvalidate],
  [PacketOperation.sendOnlyInvalidate, OutboundKind.sendWithInvalidate],
  [PacketOperation.writeLast, OutboundKind.write],
  [PacketOperation.writeOnly, OutboundKind.write],
  [PacketOperation.writeLastImmediate, OutboundKind.writeWithImmediate],
  [PacketOperation.writeOnlyImmediate, OutboundKind.writeWithImmediate],
  [PacketOperation.readRequest, OutboundKind.readRequest],
  [PacketOperation.compareSwap, OutboundKind.atomic],
  [PacketOperation.fetchAdd, OutboundKind.atomic],
]);

/** The work requests of a flow's packets, each packet seen at least once. */
function workOf({ requests, service }: RecordedFlow, mtu: number): Work[] {
  const work: Work[] = [];
  const base = requests[0]?.packet.psn ?? 0;
  const inOrder = [...requests].sort(
    (a, b) => psnDistance(a.packet.psn, base) - psnDistance(b.packet.psn, base),
  );
  let parts: RecordedPacket[] = [];
  let next = base;
  for (const request of inOrder) {
    const { psn, dmaLength, opcode } = request.packet;
    const ahead = psnDistance(psn, next);
    if (ahead > 0) throw new Error(`the recording lacks the request with PSN ${next}`);
    // A retransmission, or a part of a repeated Read.
    if (ahead < 0) continue;
    const reads = service === Service.rc && operationOf(opcode) === PacketOperation.readRequest;
    next = addPsn(psn, reads ? Math.max(Math.ceil(dmaLength / mtu), 1) : 1);
    parts.push(request);
    if ((request.traits & Trait.ends) === 0) continue;
    work.push(workRequest(work.length, parts));
    parts = [];
  }
  // A Write that was refused at its first packet; its other packets were never sent.
  if (parts.length > 0) work.push(workRequest(work.length, parts));
  return work;
}

function workRequest(id: number, parts: readonly RecordedPacket[]): Work {
  const first = (parts[0] as RecordedPacket).packet;
  const last = (parts.at(-1) as RecordedPacket).packet;
  const ends = KINDS.get(operationOf(last.opcode));
  const kind = ends ?? OutboundKind.write;
  if (ends === undefined && operationOf(first.opcode) !== PacketOperation.writeFirst) {
    throw new Error('a message that ends with no last packet');
  }
  const message: Work['message'] = {
    kind,
    solicited: last.solicited,
    remoteStag: first.rkey,
    remoteToHi: first.vaHi,
    remoteToLo: first.vaLo,
    invalidateStag: last.invalidateRkey,
    immediateLo: last.immediate,
    atomicOperation:
      operationOf(last.opcode) === PacketOperation.fetchAdd ? FETCH_ADD : COMPARE_SWAP,
    atomicOperandHi: first.swapAddHi,
    atomicOperandLo: first.swapAddLo,
    atomicCompareHi: first.compareHi,
    atomicCompareLo: first.compareLo,
    address: { dgid: new Uint8Array(16) },
    remoteQpn: first.destQpn,
    qkey: first.qkey,
  };
  if (kind === OutboundKind.atomic) return { id, message };
  if (kind === OutboundKind.readRequest)
    return { id, message, sink: new Uint8Array(first.dmaLength) };
  const payload = concat(...parts.map(payloadOf));
  if (ends !== undefined) return { id, message, payload };
  return {
    id,
    message,
    payload: concat(payload, new Uint8Array(first.dmaLength - payload.length)),
  };
}

const TYPES: ReadonlyMap<number, QPType> = new Map([
  [Service.rc, QPType.rc],
  [Service.uc, QPType.uc],
  [Service.ud, QPType.ud],
]);

/**
 * Has our requester do the work of a flow. It sends a packet when the recording has one, and
 * receives answers only when it would otherwise send a different packet: rxe may have sent packets
 * before it processed an answer that had arrived.
 */
export function replayRequester(flow: RecordedFlow) {
  const { requests, answers, service } = flow;
  const [first] = requests;
  if (first === undefined) throw new Error('nothing to ask');
  const mtu = mtuBytesOf(flow);
  const type = TYPES.get(service) ?? QPType.rc;
  const user = new ModelUser('roce');
  const qpn = first.packet.sourceQpn;
  const side = new TransportSide(user, { type, qpn, portMtuBytes: mtu, windowPackets: 128 });
  const path = pathOf({
    pathMtu: mtuCode(mtu),
    sqPsn: first.packet.psn,
    destQpNum: first.packet.destQpn,
    maxRdAtomic: 128,
    rnrRetry: 7,
    retryCnt: 7,
  });
  side.wire.modified(path, QPState.RTR, 0);
  side.wire.modified(path, QPState.RTS, 0);
  user.work.push(...workOf(flow, mtu));
  // Number of work requests in the recording.
  const posted = user.work.length;
  const pending = [...answers];
  const ours: string[] = [];
  let now = 0;
  // Number of timeouts that had to expire.
  let expired = 0;
  /** Receives the next answer, or advances the clock. False when neither can change anything. */
  const resume = (before: number): boolean => {
    const [answer] = pending;
    if (answer !== undefined && answer.index < before) {
      pending.shift();
      side.receive(answer.bytes, now);
      return true;
    }
    const deadline = side.wire.nextDeadline();
    if (!Number.isFinite(deadline)) return false;
    now = deadline;
    expired += 1;
    side.deadline(now);
    return true;
  };
  for (const request of requests) {
    let sent: Uint8Array | undefined;
    for (let tries = 0; sent === undefined && tries < PLENTY; tries += 1) {
      if (side.wire.sqPsn === request.packet.psn) sent = side.poll(now);
      if (sent === undefined && !resume(request.index)) break;
    }
    ours.push(sent === undefined ? 'nothing' : chosen(sent, request.traits, service));
  }
  for (const answer of pending) side.receive(answer.bytes, now);
  const recorded = requests.map(({ bytes, traits }) => chosen(bytes, traits, service));
  const done = user.done.length;
  return { ours, recorded, posted, done, expired, failures: user.failures };
}
