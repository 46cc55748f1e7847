/**
 * Hostile peers against a real stream, queue pair and NIC. Registered memory lies between guards,
 * next to memory that peers may only read, memory of another protection domain, and unreachable
 * memory with a secret that must never be sent.
 */
import { QPState, WCStatus, WROpcode } from '#contract/verbs/enums';
import { FpduSender } from '#daemon/iwarp/engine/fpdu-sender';
import { MpaLayer } from '#daemon/iwarp/engine/mpa-layer';
import { Stream } from '#daemon/iwarp/engine/stream';
import type { StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { QP } from '#daemon/rnic/queue-pair';
import type { Draws } from '#test/support/draws';
import { drain, post } from '#test/support/fpdu-stream';
import { bytesOf, hexOf } from '#test/support/hex';
import { inPieces, join, mutated, rearranged } from '#test/support/mutate';
import { queueSizes } from '#test/support/queue-sizes';
import { streamOptions } from '#test/support/streams';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';
import { startupFrames } from '../corpus.ts';
import { Device, MEMORY_BYTES, newRing, RANGES, REUSED_BYTE, SECRET } from '../guarded-device.ts';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

const QUEUE_DEPTH = 16;
const MESSAGE_BYTES = 64;
/** Inputs after which a connection that is still open is replaced. */
const SESSION_INPUTS_MAX = 40;

const REQUEST_1 = bytesOf('4d504120494420526571204672616d65 40 01 0000');
const REPLY_1 = bytesOf('4d504120494420526570204672616d65 40 01 0000');

const STATUSES: readonly number[] = Object.values(WCStatus);

/** An empty FPDU, with padding and CRC. */
const EMPTY_FPDU = bytesOf('0000 0000 c74b6748');

/** One connection: its stream and queue pair, the consumer and the peer. */
class Session {
  readonly stream: Stream;
  readonly qp: QP;
  readonly #device: Device;
  readonly #send: SendRing;
  readonly #receive: ReceiveRing;
  readonly #sender: FpduSender;
  readonly #isInitiator: boolean;
  /** Work requests by id that have not completed. */
  readonly #posted = new Set<bigint>();
  #nextId = 1n;
  #now = 0;
  #terminated = 0;
  #inputsAfterTerminate = 0;
  #finishing = false;
  inputs = 0;
  closed = false;

  constructor(device: Device, draws: Draws) {
    this.#device = device;
    const kind = draws.next();
    this.#isInitiator = (kind & 1) !== 0;
    const crcRequested = (kind & 6) !== 0;
    const markersRequested = (kind & 24) === 0;
    const options: Partial<StreamOptions> = { crcRequested, markersRequested, ird: 4, ord: 4 };
    const environment = { pool: device.pool, crc32c };
    const withRevision = streamOptions({ ...options, mpaRevision: 1 });
    this.stream = new Stream(withRevision, new MpaLayer(withRevision, environment));
    const capabilities = queueSizes(QUEUE_DEPTH);
    const { cq } = device;
    const queues = { sendCQ: cq, recvCQ: cq, srq: undefined, sqSigAll: true };
    this.qp = device.nic.createQP(device.pd, {
      ...queues,
      capabilities,
      ring: newRing,
      tag: undefined,
    });
    const { qp } = this;
    const limits = { count: qp.sqCount, maxSge: 1, maxInline: 0, sqSigAll: true };
    this.#send = new SendRing(qp.ring.subarray(0, qp.rqOffset), limits);
    this.#receive = new ReceiveRing(qp.ring, qp.rqOffset, qp.rqCount, 1);
    this.#sender = new FpduSender({ pool: device.pool, crc32c });
    for (let count = draws.below(QUEUE_DEPTH); count > 0; count--) this.#postReceive();
    qp.attach(this.stream);
    const frame = this.#isInitiator ? REPLY_1.slice() : REQUEST_1.slice();
    frame[16] = (crcRequested ? 0x40 : 0) | ((kind & 96) === 0 ? 0x80 : 0);
    if (draws.oneIn(12)) this.#startBadly(draws, frame);
    else this.#start(frame);
    this.#sender.enterFullOperation(crcRequested, markersRequested);
  }

  #start(frame: Uint8Array): void {
    if (this.#isInitiator) this.stream.connect(new Uint8Array(0), this.qp, 0);
    else this.stream.listen(0);
    this.#feed(frame);
  }

  /** Makes startup itself hostile, or replays that of another connection. */
  #startBadly(draws: Draws, frame: Uint8Array): void {
    if (this.#isInitiator) this.stream.connect(new Uint8Array(0), this.qp, 0);
    else this.stream.listen(0);
    const corpus = [...startupFrames(), frame];
    const bytes = mutated(draws.pick(corpus), corpus, draws, draws.below(3));
    if (draws.recording) draws.show(`startup ${hexOf(bytes)}`);
    inPieces(bytes, draws, (start, end) => this.#feed(bytes.subarray(start, end)));
  }

  /** Lets the consumer, the peer and the clock act once. */
  live(draws: Draws): Outcome {
    this.inputs += 1;
    const kind = draws.next();
    if ((kind & 3) === 0) this.#consume(draws);
    const { requests, answers, all } = this.#device;
    const usual = this.#isInitiator && (kind & 4) !== 0 ? answers : requests;
    const chosen =
      (kind & 24) === 0
        ? usual.slice(0, draws.below(usual.length + 1))
        : [this.#numbered(draws.pick(usual))];
    let segments = rearranged(chosen, all, draws);
    // Most segments of an input are valid, so the hostile ones meet an advanced state.
    segments = segments.map((segment) => {
      if (draws.oneIn(3)) return segment;
      return mutated(this.#pointed(segment, draws), all, draws, draws.below(3));
    });
    let bytes = this.#framed(segments);
    if ((kind & 0x700) === 0) bytes = mutated(bytes, all, draws, 1);
    if (draws.recording) {
      draws.show(segments.map(hexOf).join(' '));
      if ((kind & 0x700) === 0) draws.show(`as ${hexOf(bytes)}`);
    }
    inPieces(bytes, draws, (start, end) => this.#feed(bytes.subarray(start, end)));
    if ((kind & 0xf800) === 0) this.#peerEnds(draws);
    if ((kind & 0x7f_0000) === 0) this.#wait(draws);
    this.#device.check();
    this.#poll();
    if (this.#terminated > 0) this.#inputsAfterTerminate += 1;
    return this.closed ? 'closed' : this.#terminated > 0 ? 'terminated' : 'open';
  }

  /** True if further inputs would find nothing new. */
  get spent(): boolean {
    return this.closed || this.inputs >= SESSION_INPUTS_MAX || this.#inputsAfterTerminate > 1;
  }

  /** Ends the connection and the queue pair, then checks the invariants. */
  end(): void {
    if (!this.closed) {
      this.stream.handlePeerClosed(this.#now);
      this.#settle();
      this.stream.disconnect(this.#now);
      this.#settle();
      this.stream.handleDeadline(this.#now + 10_000_000);
      this.#settle();
    }
    // The link always reports its end.
    this.stream.handleClosed(undefined, this.#now);
    this.#settle();
    claim(this.closed, 'the stream does not end');
    this.#checkSilence();
    if (this.qp.state !== QPState.ERR) this.qp.modify(QPState.ERR, this.#now);
    // The host's timer finds receives of a queue pair in error.
    this.#device.nic.flushErrored(this.#now);
    this.#settle();
    this.#poll();
    claim(this.#posted.size === 0, `${this.#posted.size} work requests have not completed`);
    this.qp.close(this.#now);
    for (let out = this.#sender.pollTransmit(); out; out = this.#sender.pollTransmit()) {
      this.#sender.flushed(out.bytes.length);
    }
    this.#sender.release();
    this.#settle();
    this.#poll();
  }

  /** Bytes after the end change nothing and are not reported. */
  #checkSilence(): void {
    const before = this.#device.memory.slice(...RANGES.open);
    const write = this.#device.requests[0] ?? new Uint8Array(0);
    this.stream.handleBytes(this.#framed([write]), this.#now);
    claim(this.stream.pollEvent() === undefined, 'an event follows the end');
    claim(this.stream.pollTransmit() === undefined, 'output follows the end');
    const after = this.#device.memory.subarray(...RANGES.open);
    claim(Buffer.compare(before, after) === 0, 'a byte is placed after the end');
  }

  #framed(segments: readonly Uint8Array[]): Uint8Array {
    const parts: Uint8Array[] = [];
    for (const segment of segments) {
      if (segment.length > 0) post(this.#sender, segment);
      // Our sender refuses an empty FPDU; a hostile one does not.
      else parts.push(drain(this.#sender), EMPTY_FPDU);
    }
    return join([...parts, drain(this.#sender)]);
  }

  /** Gives untagged messages of a long session the sequence numbers that are due. */
  #numbered(segment: Uint8Array): Uint8Array {
    if (((segment[0] ?? 0) & 0x80) !== 0) return segment;
    const copy = segment.slice();
    const queue = copy[9] ?? 0;
    if (queue < 4) new DataView(copy.buffer).setUint32(10, (this.#msn[queue] ?? 0) + 1);
    if (queue < 4 && ((segment[0] ?? 0) & 0x40) !== 0)
      this.#msn[queue] = (this.#msn[queue] ?? 0) + 1;
    return copy;
  }

  readonly #msn = [0, 0, 0, 0];

  /** Sometimes points at other memory, or at its edge. */
  #pointed(segment: Uint8Array, draws: Draws): Uint8Array {
    if (!draws.oneIn(4)) return segment;
    const copy = segment.slice();
    const view = new DataView(copy.buffer);
    for (let at = 0; at + 12 <= copy.length; at++) {
      if (view.getUint32(at) !== this.#device.openStag) continue;
      const range = draws.pick(Object.values(RANGES));
      if (draws.oneIn(2)) view.setUint32(at, draws.pick(this.#device.stags));
      const place = draws.pick(range) + draws.below(17) - 8;
      view.setUint32(at + 4, draws.oneIn(16) ? draws.word() : 0);
      view.setUint32(at + 8, place);
      break;
    }
    return copy;
  }

  #consume(draws: Draws): void {
    const kind = draws.below(8);
    if (kind < 4) this.#postReceive();
    else if (kind < 7) this.#postSend(draws);
    else if (this.#terminated === 0 && !this.closed && draws.oneIn(4)) {
      this.stream.disconnect(this.#now);
      this.#settle();
    }
  }

  #postReceive(): void {
    const wrId = this.#nextId;
    const at = RANGES.local[0] + Number(wrId % 16n) * MESSAGE_BYTES;
    const sgList = [{ addr: at, length: MESSAGE_BYTES, lkey: this.#device.localStag }];
    if (this.#receive.post({ wrId, sgList }) !== undefined) return;
    this.#nextId += 1n;
    this.#posted.add(wrId);
  }

  #postSend(draws: Draws): void {
    const wrId = this.#nextId;
    const kind = draws.below(3);
    const remoteAddr = 0x1000;
    const sgList = [{ addr: 0x1000, length: 40, lkey: this.#device.openStag }];
    const far = { remoteAddr, rkey: 1 };
    const refused = this.#send.post(
      kind === 0
        ? { wrId, opcode: WROpcode.rdmaRead, sgList, ...far }
        : kind === 1
          ? { wrId, opcode: WROpcode.send, sgList }
          : {
              wrId,
              opcode: WROpcode.atomicFetchAndAdd,
              sgList: [{ addr: 0x1100, length: 8, lkey: this.#device.openStag }],
              ...far,
              compareAdd: 1n,
            },
    );
    if (refused !== undefined) return;
    this.#nextId += 1n;
    this.#posted.add(wrId);
    this.qp.doorbell(this.#now);
    this.#settle();
  }

  #feed(bytes: Uint8Array): void {
    // A socket reuses its read buffer: overwrite it to detect views that were kept.
    const lent = bytes.slice();
    this.stream.handleBytes(lent, this.#now);
    this.#settle();
    lent.fill(REUSED_BYTE);
  }

  #peerEnds(draws: Draws): void {
    if (draws.oneIn(2)) this.stream.handlePeerClosed(this.#now);
    else this.stream.handleClosed(draws.oneIn(2) ? 'ECONNRESET' : undefined, this.#now);
    this.#settle();
  }

  #wait(draws: Draws): void {
    this.#now += draws.below(12_000_000);
    if (this.#now >= this.stream.nextDeadline()) this.stream.handleDeadline(this.#now);
    this.#settle();
  }

  /** Moves events, output and effects until none are left, as the host does. */
  #settle(): void {
    for (let rounds = 0; rounds < 1000; rounds++) {
      this.stream.pump(this.#now);
      let any = false;
      for (let event = this.stream.pollEvent(); event; event = this.stream.pollEvent()) {
        any = true;
        claim(!this.closed, `the event ${event.type} follows the end`);
        this.#act(event);
      }
      for (let out = this.stream.pollTransmit(); out; out = this.stream.pollTransmit()) {
        const { bytes } = out;
        any = true;
        claim(
          Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).indexOf(SECRET) < 0,
          'a secret goes out',
        );
        this.stream.handleFlushed(bytes.length, this.#now);
      }
      const { nic } = this.#device;
      for (let effect = nic.pollEffect(); effect; effect = nic.pollEffect()) {
        any = true;
        if (effect.type === 'resume') effect.qp.doorbell(this.#now);
      }
      if (!any) return;
    }
    throw new Error('the stream does not come to rest');
  }

  #act(event: NonNullable<ReturnType<Stream['pollEvent']>>): void {
    const { qp, stream } = this;
    switch (event.type) {
      case 'request':
        stream.accept(new Uint8Array(0), qp, { ird: 4, ord: 4 }, this.#now);
        return;
      case 'established':
        qp.established({ ird: event.ird, ord: event.ord }, this.#now);
        return;
      case 'terminated':
        this.#terminated += 1;
        claim(this.#terminated === 1, 'terminated twice');
        qp.terminated(event.by, event.failure, this.#now);
        return;
      case 'closed':
        this.closed = true;
        qp.wireEnded(event.failure, this.#now);
        return;
      case 'finish':
        claim(!this.#finishing, 'finishes twice');
        this.#finishing = true;
        return;
      case 'rejected':
      case 'nudged':
      case 'peer-closed':
      case 'abort':
        return;
      default:
        event satisfies never;
    }
  }

  /** Checks that every work request completes exactly once. */
  #poll(): void {
    const { completions } = this.#device;
    for (let wc = completions.take(); wc !== undefined; wc = completions.take()) {
      claim(this.#posted.delete(wc.wrId), `a completion of ${wc.wrId}, which is not posted`);
      claim(STATUSES.includes(wc.status), `a status of ${wc.status}`);
    }
  }
}

class StreamState implements FuzzState {
  readonly #device: Device;
  #session: Session | undefined;

  constructor(seed: number, keeps: boolean) {
    this.#device = new Device(seed, keeps);
  }

  run(draws: Draws): Outcome {
    this.#session ??= new Session(this.#device, draws);
    const session = this.#session;
    const outcome = session.live(draws);
    if (session.spent) {
      this.#session = undefined;
      session.end();
      this.#device.nic.assertDeepInvariants();
    }
    return outcome;
  }

  close(): void {
    this.#session?.end();
    this.#device.close();
  }
}

export const wireStream: FuzzTarget = {
  name: 'wire-stream',
  about: 'segments and FPDUs into a real stream, queue pair and NIC, with canaries around memory',
  batchInputs: 2_000,
  weight: 25_000,
  smokeInputs: 6_000,
  // Memory whose end is one byte too far.
  canary: canary(20_000, ViewBacking.prototype, 'write', function (write, ...given) {
    const [offset, , , length] = given;
    const done = write(...given);
    if (this.view.length === MEMORY_BYTES && offset + length === 0x2000) this.view[0x2000] = 0;
    return done;
  }),
  open: (draws) => new StreamState(draws.next(), draws.oneIn(2)),
};
