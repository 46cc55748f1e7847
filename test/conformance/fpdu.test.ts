/** FPDUs, markers and CRCs (RFC 5044 §3 to §6, §8) between a real host and a raw peer. */
import { afterEach, describe, expect, it } from 'vitest';
import { CMEventType, QPState, WCStatus } from '#contract/verbs/enums';
import { hex32 } from '../support/consumer.ts';
import { closeFacing, Facing, type FacingOptions, settled } from '../support/facing.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { REPLY_KEY, startupFrame } from '../support/raw-fpdu.ts';

afterEach(closeFacing);

/** The header of a last segment of queue 0. */
function send(msn: number, mo = 0, last = true): string {
  return `${last ? '41' : '01'}43 00000000 00000000 ${hex32(msn)} ${hex32(mo)}`;
}

/** An initiator whose peer wants markers. */
async function marked(options: FacingOptions = {}): Promise<Facing> {
  const wire = { mpaRevision: 1, ...options.wire } as const;
  return await Facing.initiator({ ...options, wire, frame: startupFrame(REPLY_KEY, 'c001') });
}

/** An initiator that wants markers itself. */
async function wanting(): Promise<Facing> {
  const wire = { mpaRevision: 1, markersRequested: true } as const;
  return await Facing.initiator({ wire, frame: startupFrame(REPLY_KEY, '4001') });
}

/** Sends messages of the given numbers of payload bytes, all posted before the doorbell. */
function sendAll(facing: Facing, lengths: readonly number[], fill = '00'): void {
  const { consumer, node } = facing;
  for (const length of lengths) {
    consumer.enqueue({ opcode: 2, sgList: consumer.payload(fill.repeat(length)) ?? [] });
  }
  node.host.doorbell(consumer.qp);
}

function sizeOf(ulpdu: string): number {
  return ulpdu.length / 2;
}

describe('an FPDU', () => {
  it('is length, ULPDU, zero PAD and CRC, one for each ULPDU [MPA-3-01, MPA-4.1-01, MPA-4.1-03, MPA-4.4-08, MPA-4.4-09]', async () => {
    const facing = await Facing.initiator();
    const lengths = [0, 1, 2, 3, 4, 5, 100, 1000];
    sendAll(facing, lengths, '5a');
    const ulpdus = await facing.receive(lengths.length);
    expect(ulpdus).toEqual(lengths.map((n, i) => compactHex(`${send(i + 1)} ${'5a'.repeat(n)}`)));
    const fpdus = facing.fpdus();
    expect(fpdus.every(({ crcGood }) => crcGood)).toBe(true);
    expect(fpdus.map(({ pad }) => pad)).toEqual(lengths.map((n) => '00'.repeat((4 - (n % 4)) % 4)));
    // One after the other, with nothing between.
    expect(fpdus.map(({ at }) => at)).toEqual([0, ...fpdus.slice(0, -1).map(({ end }) => end)]);
    // The second one, byte by byte.
    const { at = 0, end = 0 } = fpdus[1] ?? {};
    const { length } = facing.startup;
    const bytes = hexOf(facing.peer.received.subarray(length + at, length + end));
    expect(bytes.slice(0, -8)).toBe(compactHex(`0013 ${send(2)} 5a 000000`));
  });

  it('carries a segment of at most 64768 bytes [MPA-3-05, MPA-4.5-03]', async () => {
    const facing = await Facing.initiator({ wire: { fpduSize: { kind: 'large' } } });
    sendAll(facing, [200_000]);
    const ulpdus = await facing.receive(4);
    expect(ulpdus.map(sizeOf)).toEqual([64_768, 64_768, 64_768, 200_000 - 3 * 64_750 + 18]);
  });

  it('passes only its ULPDU to the consumer, with its length [MPA-3-09, MPA-4.3-13]', async () => {
    for (const facing of [await wanting(), await Facing.responder()]) {
      const payloads = [0, 1, 2, 3, 511, 512, 513, 2000].map((n, i) =>
        hex32(i + 1)
          .repeat(n)
          .slice(0, 2 * n),
      );
      facing.consumer.postReceive(2048, payloads.length);
      facing.say(...payloads.map((payload, i) => `${send(i + 1)} ${payload}`));
      expect(await facing.consumer.payloads(payloads.length)).toEqual(payloads);
    }
  });

  it('may have any PAD, which counts in the CRC [MPA-4.1-04]', async () => {
    const facing = await Facing.responder();
    facing.consumer.postReceive(8, 2);
    facing.peer.say(facing.writer.write(bytesOf(`${send(1)} 41`), 0xff));
    expect(await facing.consumer.payloads(1)).toEqual(['41']);
    const bytes = facing.writer.write(bytesOf(`${send(2)} 42`), 0xff);
    bytes[bytes.length - 5] = 0xfe;
    facing.peer.say(bytes);
    expect(await facing.terminate()).toBe('20020000');
  });

  it('is delivered with its last byte, however segments split it [MPA-5.1-05, MPA-6-01, MPA-6-03]', async () => {
    for (const facing of [await wanting(), await Facing.responder()]) {
      const region = facing.consumer.register(64);
      facing.consumer.postReceive(64);
      const bytes = facing.frame(`c140 ${region.stag} 0000000000001000 41424344`, `${send(1)} 45`);
      const writeEnd = bytes.length - (2 + 19 + 3 + 4);
      for (let at = 0; at < bytes.length - 1; at++) {
        facing.peer.say(bytes.subarray(at, at + 1));
        if (at === writeEnd - 2) {
          await settled();
          expect(hexOf(region.bytes.subarray(0, 4))).toBe('00000000');
        }
      }
      await settled();
      expect(hexOf(region.bytes.subarray(0, 4))).toBe('41424344');
      expect(facing.consumer.receivedNow()).toEqual([]);
      facing.peer.say(bytes.subarray(bytes.length - 1));
      expect(await facing.consumer.payloads(1)).toEqual(['45']);
    }
  });
});

describe('MULPDU', () => {
  /** Sizes of the ULPDUs that carry `lengths`. */
  async function sizes(facing: Facing, lengths: readonly number[]): Promise<number[]> {
    sendAll(facing, lengths);
    const total = lengths.reduce((sum, length) => sum + length, 0);
    const carried = (): number =>
      facing.fpdus().reduce((sum, { ulpdu }) => sum + sizeOf(ulpdu) - 18, 0);
    await until('all messages', () => carried() >= total);
    return facing.receivedNow().map(sizeOf);
  }

  it.each([
    [1460, 1454],
    [1461, 1454],
    [1448, 1442],
    [536, 530],
    [9000, 8994],
  ])(
    'without markers follows segments of %i bytes: %i [MPA-4.5-02, DDP-5.2-01, MPA-3-04, MPA-5.1-01]',
    async (emssBytes, mulpdu) => {
      const facing = await Facing.initiator({ emssBytes: () => emssBytes });
      const last = 100;
      expect(await sizes(facing, [2 * (mulpdu - 18) + last])).toEqual([mulpdu, mulpdu, last + 18]);
    },
  );

  it.each([
    [1460, 1442],
    [1461, 1442],
    [1448, 1430],
    [512, 502],
    [513, 498],
  ])(
    'with markers follows segments of %i bytes: %i [MPA-4.5-01, DDP-5.2-01]',
    async (emssBytes, mulpdu) => {
      const facing = await marked({ emssBytes: () => emssBytes });
      const last = 100;
      expect(await sizes(facing, [2 * (mulpdu - 18) + last])).toEqual([mulpdu, mulpdu, last + 18]);
    },
  );

  it.each([1, 64, 100, 127])('is 128 with segments of %i bytes [MPA-4.5-06]', async (emssBytes) => {
    expect(await sizes(await Facing.initiator({ emssBytes: () => emssBytes }), [250])).toEqual([
      128, 128, 48,
    ]);
  });

  it('does not shrink when FPDUs are packed into a segment [MPA-4.5-07]', async () => {
    for (const emssBytes of [300, 600, 1460]) {
      for (let small = 0; small <= 259; small += 37) {
        const facing = await Facing.initiator({ emssBytes: () => emssBytes });
        const [first, ...rest] = await sizes(facing, [small, 3000]);
        expect(first).toBe(small + 18);
        expect(Math.min(...rest.slice(0, -1))).toBeGreaterThanOrEqual(128);
      }
      await closeFacing();
    }
  });
});

describe('markers that a peer asked for', () => {
  it('match the example of the RFC: the first FPDU [MPA-4.2-01, MPA-4.2-02, MPA-4.4-13, MPA-4.4-17]', async () => {
    const facing = await marked();
    sendAll(facing, [24]);
    await facing.receive(1);
    expect(hexOf(facing.peer.received.subarray(20))).toBe(
      compactHex(`00000000 002a ${send(1)} 00*24 52239983`),
    );
  });

  it('match the example of the RFC: the second FPDU [MPA-4.3-04, MPA-4.4-11, MPA-4.4-18]', async () => {
    const facing = await marked();
    sendAll(facing, [464, 24]);
    await facing.receive(2);
    expect(hexOf(facing.peer.received.subarray(20 + 0x1ec))).toBe(
      compactHex(`002a ${send(2)} 00000014 00*24 84925898`),
    );
  });

  it('between two FPDUs belong to the second one [MPA-4.3-11, MPA-4.4-13, MPA-4.4-14]', async () => {
    const facing = await marked();
    sendAll(facing, [484, 1]);
    await facing.receive(2);
    const stream = facing.peer.received.subarray(20);
    expect(hexOf(stream.subarray(508, 518))).toBe(compactHex('a09bb55b 00000000 0013'));
    expect(facing.fpdus()[1]).toMatchObject({ at: 516, crcGood: true });
  });

  it('count in the CRC of the FPDU before them when its CRC follows [MPA-4.4-12]', async () => {
    const facing = await marked();
    // 4 of marker, 2 of length, 18 of header, 488 of payload: the CRC would begin at 512.
    sendAll(facing, [488]);
    await facing.receive(1);
    const [fpdu] = facing.fpdus();
    expect(fpdu).toMatchObject({ crcGood: true, end: 520 });
    expect(fpdu?.markers).toMatchObject([{ at: 0 }, { at: 512, fpduPointer: 508 }]);
  });

  it('stand at every 512th byte and point to their FPDU, with zero bits where the RFC requires them [MPA-4.2-01, MPA-4.2-02, MPA-4.2-04, MPA-4.3-01, MPA-4.3-04, MPA-4.3-07, MPA-4.3-10, MPA-4.3-11, MPA-4.4-11, MPA-4.4-12, MPA-4.4-13]', async () => {
    const facing = await marked();
    const lengths = Array.from({ length: 60 }, (_, i) => (i * 211) % 2900);
    sendAll(facing, lengths);
    await facing.receive(lengths.length);
    const fpdus = facing.fpdus();
    const markers = fpdus.flatMap((fpdu) => fpdu.markers.map((marker) => ({ marker, fpdu })));
    const { length } = facing.peer.received.subarray(20);
    expect(markers.map(({ marker }) => marker.at)).toEqual(
      Array.from({ length: Math.ceil(length / 512) }, (_, i) => i * 512),
    );
    for (const { marker, fpdu } of markers) {
      expect(marker.reserved).toBe(0);
      expect(marker.fpduPointer % 4).toBe(0);
      expect(marker.fpduPointer).toBe(Math.max(marker.at - fpdu.at, 0));
    }
    expect(fpdus.every(({ crcGood }) => crcGood)).toBe(true);
  });
});

describe('markers that a peer sends', () => {
  it('may have any RESERVED field and low bits, which count in the CRC [MPA-4.2-03, MPA-4.2-05]', async () => {
    const facing = await wanting();
    facing.writer.markerReserved = 0xabcd;
    facing.writer.markerSkew = 3;
    facing.consumer.postReceive(2000, 2);
    facing.say(`${send(1)} ${'41'.repeat(2000)}`, `${send(2)} 42`);
    expect(await facing.consumer.payloads(2)).toEqual(['41'.repeat(2000), '42']);
    // The same bits changed without their CRC are a CRC error.
    const bytes = facing.frame(`${send(3)} ${'43'.repeat(600)}`);
    const marker = 512 - ((facing.writer.position - bytes.length) % 512);
    bytes[marker] = 0;
    facing.peer.say(bytes);
    expect(await facing.terminate()).toBe('20020000');
  });

  it('that point elsewhere are error 3, with a Terminate and a graceful close [MPA-8-04, MPA-8-08]', async () => {
    const facing = await wanting();
    facing.consumer.postReceive(2000);
    facing.writer.markerSkew = 4;
    facing.say(`${send(1)} ${'41'.repeat(2000)}`);
    expect(await facing.terminate()).toBe('20030000');
    expect(facing.peer.errorCode).toBeUndefined();
  });
});

describe('a CRC that is wrong', () => {
  it.each([0, 2, 10, 20, 21])(
    'in byte %i is error 2: nothing is placed or delivered [MPA-4.4-16, MPA-6-01, MPA-4.4-09]',
    async (at) => {
      const facing = await Facing.responder();
      facing.consumer.postReceive(8);
      const bytes = facing.frame(`${send(1)} 4142`);
      // The CRC covers ULPDU_Length, too: reduced by 4, it makes the FPDU end too early.
      bytes[at === 0 ? 1 : at] = (bytes[at === 0 ? 1 : at] ?? 0) ^ 4;
      facing.peer.say(bytes);
      expect(await facing.terminate()).toBe('20020000');
      expect(await facing.consumer.received(1)).toEqual([
        { status: WCStatus.wrFlushErr, payload: '' },
      ]);
      expect(facing.consumer.buffer.some((byte) => byte !== 0)).toBe(false);
    },
  );

  it('ends the input: later FPDUs are ignored [MPA-6-02, MPA-8-07]', async () => {
    const facing = await Facing.responder();
    const region = facing.consumer.register(64);
    facing.consumer.postReceive(8, 4);
    const corrupted = facing.frame(`${send(1)} 41`);
    corrupted[corrupted.length - 1] = (corrupted.at(-1) ?? 0) ^ 1;
    facing.peer.say(corrupted);
    for (let i = 0; i < 50; i++)
      facing.say(`${send(1)} 42`, `c140 ${region.stag} 0000000000001000 43`);
    expect(await facing.terminate()).toBe('20020000');
    await settled();
    const received = await facing.consumer.received(4);
    expect(received.every(({ status }) => status === WCStatus.wrFlushErr)).toBe(true);
    expect(hexOf(region.bytes.subarray(0, 1))).toBe('00');
  });

  it('does not make MPA close: a Terminate is sent, then a FIN [MPA-8-08, RDMAP-6.2.1-03]', async () => {
    const facing = await Facing.responder();
    const corrupted = facing.frame(`${send(1)} 41`);
    corrupted[corrupted.length - 1] = (corrupted.at(-1) ?? 0) ^ 1;
    facing.peer.say(corrupted);
    expect(await facing.terminate()).toBe('20020000');
    expect([facing.peer.ended, facing.peer.errorCode]).toEqual([true, undefined]);
    facing.peer.finish();
    expect((await facing.event()).type).toBe(CMEventType.disconnected);
    expect(facing.consumer.qp.state).toBe(QPState.ERR);
  });
});
