import { describe, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { Fault } from '#daemon/faults/fault';
import { type Framing, TcpFrameReader } from '#daemon/iwarp/faults/frame';
import { StreamFaults } from '#daemon/iwarp/faults/stream-faults';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { MPA_ERRORS } from '#daemon/iwarp/wire/protocol-error';
import { parseStartupFrame } from '#daemon/iwarp/wire/startup-frame';
import { fillerTo, RecordingSink, receiverOf, streamOf } from '#test/support/fpdu-stream';
import { bytesOf, concat } from '#test/support/hex';
import { mpaReply, mpaRequest, sendUlpdu } from '#test/support/mpa-frames';

const FACTS = { device: 'a', qpNum: 7, remote: { address: '10.0.0.1', port: 5 } };
const REPLY = Uint8Array.from(mpaReply({ ird: 8, ord: 9 }));

/** A tagged segment: a whole Write of 8 bytes to STag 0x01020304. */
const WRITE = bytesOf('c1 40 01020304 0000000000000010 1122334455667788');
/** A Read Request from STag 0x0a0b0c0d. */
const READ_REQUEST = concat(
  bytesOf('41 41 00000000 00000001 00000001 00000000'),
  bytesOf('01020304 0000000000000000 00000008 0a0b0c0d 0000000000000000'),
);
const SEND = Uint8Array.from(sendUlpdu(1, bytesOf('a1a2a3a4a5')));

interface Options {
  readonly markers?: boolean;
  readonly crcEnabled?: boolean;
  readonly before?: readonly Uint8Array[];
}

/**
 * Output for a Reply, `before` and these ULPDUs, of which only the latter are under a fault. Omits
 * the Reply.
 */
function left(spec: FaultSpec, ulpdus: readonly Uint8Array[], options: Options = {}): Uint8Array {
  const { markers = false, crcEnabled = true, before = [] } = options;
  const sent = streamOf(before, markers, crcEnabled);
  const whole = streamOf([...before, ...ulpdus], markers, crcEnabled);
  const reader = new TcpFrameReader(REPLY.length + sent.length, REPLY.length);
  const faults = new StreamFaults(reader, () => FACTS, crc32c);
  faults.setFaults([new Fault(1, spec, undefined)]);
  const framing: Framing = { markers, crcEnabled };
  faults.handleOutput(whole.subarray(sent.length), framing, 0);
  const parts = [sent];
  for (let out = faults.outbound.poll(0); out !== undefined; out = faults.outbound.poll(0)) {
    if (out.type === 'bytes') parts.push(out.bytes);
  }
  return concat(...parts);
}

/** A receiver's view of bytes: the ULPDUs, and the first error. */
function received(bytes: Uint8Array, options: Options & { markersChecked?: boolean } = {}) {
  const { markers = false, crcEnabled = true, markersChecked = true } = options;
  const sink = new RecordingSink();
  const receiver = receiverOf({ markers, crcEnabled, markersChecked });
  const error = receiver.push(bytes, 0, bytes.length, sink);
  return { error, ulpdus: sink.ulpdus };
}

/** Bytes of `after` that are not those of `before`, by position. */
function changes(before: Uint8Array, after: Uint8Array | undefined): number[] {
  return [...before.keys()].filter((at) => before[at] !== after?.[at]);
}

describe('an FPDU that leaves under a fault', () => {
  it('corrupt-crc: has a wrong CRC and is otherwise intact', () => {
    const bytes = left({ kind: 'corrupt-crc', nth: 2 }, [SEND, WRITE, SEND]);
    expect(received(bytes)).toEqual({ error: MPA_ERRORS.crc, ulpdus: [SEND] });
    const all = received(bytes, { crcEnabled: false });
    expect(all).toEqual({ error: undefined, ulpdus: [SEND, WRITE, SEND] });
  });

  it('corrupt-crc: does not apply without CRCs', () => {
    const bytes = left({ kind: 'corrupt-crc' }, [SEND], { crcEnabled: false });
    expect(bytes).toEqual(streamOf([SEND], false, false));
  });

  it.each([
    ['corrupt-stag', WRITE, [2, 3, 4]],
    ['corrupt-stag', READ_REQUEST, [34, 35, 36]],
    ['corrupt-msn', SEND, [10]],
    ['corrupt-mo', SEND, [14]],
  ] as const)('%s: changes its field and nothing else, with a right CRC', (kind, ulpdu, at) => {
    // Each phase puts a marker at another place within the segment.
    for (const phase of [undefined, 0, 8, 480, 484, 492, 496, 500, 508]) {
      const markers = phase !== undefined;
      const before = fillerTo(phase ?? 0);
      const bytes = left({ kind, nth: 1 }, [ulpdu, SEND], { markers, before });
      const { error, ulpdus } = received(bytes, { markers });
      expect(error).toBeUndefined();
      expect(ulpdus).toHaveLength(before.length + 2);
      expect(changes(ulpdu, ulpdus[before.length])).toEqual(at);
      expect(ulpdus.at(-1)).toEqual(SEND);
    }
  });

  it('corrupt-msn: leaves tagged segments alone, and corrupt-stag the untagged ones', () => {
    for (const [kind, ulpdu] of [
      ['corrupt-msn', WRITE],
      ['corrupt-mo', WRITE],
      ['corrupt-stag', SEND],
    ] as const) {
      expect(received(left({ kind }, [ulpdu])).ulpdus).toEqual([ulpdu]);
    }
  });

  it('corrupt-length: claims to be 4 bytes shorter than it is', () => {
    const bytes = left({ kind: 'corrupt-length' }, [SEND]);
    expect((bytes[0] ?? 0) * 256 + (bytes[1] ?? 0)).toBe(SEND.length - 4);
    expect(received(bytes).error).toBe(MPA_ERRORS.crc);
  });

  it('corrupt-marker: has a marker that points elsewhere, and a right CRC', () => {
    const bytes = left({ kind: 'corrupt-marker', nth: 1 }, [SEND], { markers: true });
    expect(received(bytes, { markers: true }).error).toBe(MPA_ERRORS.markerMismatch);
    const unchecked = received(bytes, { markers: true, markersChecked: false });
    expect(unchecked).toEqual({ error: undefined, ulpdus: [SEND] });
  });

  it('corrupt-marker: does not apply without markers', () => {
    expect(left({ kind: 'corrupt-marker' }, [SEND])).toEqual(streamOf([SEND], false));
  });
});

describe('a startup frame that leaves under a fault', () => {
  function framed(spec: FaultSpec, frame: Uint8Array) {
    const faults = new StreamFaults(new TcpFrameReader(0, 0), () => FACTS, crc32c);
    const fault = new Fault(1, spec, undefined);
    faults.setFaults([fault]);
    faults.handleOutput(frame, { markers: false, crcEnabled: false }, 0);
    return { fault, faults };
  }

  it('mpa-depths: lowers depths to those of the fault, and never raises them', () => {
    const frame = mpaReply({ ird: 8, ord: 9 });
    framed({ kind: 'mpa-depths', ird: 2, ord: 100 }, frame);
    expect(parseStartupFrame(frame, 'reply')).toMatchObject({ enhanced: { ird: 2, ord: 9 } });
  });

  it('mpa-depths: does not apply to a frame without depths', () => {
    const frame = mpaRequest({ revision: 1, privateData: bytesOf('01020304') });
    const { fault } = framed({ kind: 'mpa-depths', ird: 0 }, frame);
    expect(fault.status).toMatchObject({ matched: 0, fired: 0 });
    expect([...frame.subarray(20)]).toEqual([1, 2, 3, 4]);
  });

  it('mpa-late: holds a Reply for the given time, and no Request', () => {
    const reply = framed({ kind: 'mpa-late', ms: 3 }, REPLY.slice());
    expect(reply.faults.nextDeadline()).toBe(3000);
    expect(reply.faults.drains).toBe(true);
    const request = framed({ kind: 'mpa-late', ms: 3 }, mpaRequest());
    expect(request.fault.status.matched).toBe(0);
    expect(request.faults.outbound.poll(0)).toMatchObject({ type: 'bytes' });
  });

  it('mpa-silent: holds a Reply until the fault is removed', () => {
    const { faults } = framed({ kind: 'mpa-silent' }, REPLY.slice());
    expect(faults.drains).toBe(false);
    faults.setFaults([]);
    expect(faults.outbound.poll(0)).toMatchObject({ type: 'bytes' });
    expect(faults.idle).toBe(true);
  });
});

describe('a scope', () => {
  it.each<[Partial<FaultSpec>, boolean]>([
    [{}, true],
    [{ device: 'a' }, true],
    [{ device: 'b' }, false],
    [{ qp: 7 }, true],
    [{ qp: 8 }, false],
    [{ opcode: 'send' }, true],
    [{ opcode: 'write' }, false],
    [{ device: 'a', qp: 7, opcode: 'write' }, false],
  ])('%j matches a Send of queue pair 7 of device a: %j', (scope, covered) => {
    const fault = new Fault(1, { kind: 'delay', ms: 1, ...scope }, undefined);
    expect(fault.coversTraffic(FACTS, 'out', 'send')).toBe(covered);
  });

  it('has directions, and covers both when none is named', () => {
    const covers = (spec: Partial<FaultSpec>, direction: 'in' | 'out') =>
      new Fault(1, { kind: 'delay', ms: 1, ...spec }, undefined).coversTraffic(
        FACTS,
        direction,
        undefined,
      );
    expect([covers({}, 'in'), covers({}, 'out')]).toEqual([true, true]);
    expect([covers({ direction: 'in' }, 'in'), covers({ direction: 'in' }, 'out')]).toEqual([
      true,
      false,
    ]);
  });

  it.each([
    [{ address: '10.0.0.1', port: 0 }, true],
    [{ address: '10.0.0.1', port: 5 }, true],
    [{ address: '10.0.0.1', port: 6 }, false],
    [{ address: '10.0.0.2', port: 5 }, false],
  ])('a peer %j matches the connection: %j', (peer, covered) => {
    expect(new Fault(1, { kind: 'stall' }, peer).coversEnds(FACTS)).toBe(covered);
  });
});
