/** The two halves of DDP with a layer above that only remembers. */
import { describe, expect, it } from 'vitest';
import { DDPReceiver, type DDPReceiverUser } from '#daemon/iwarp/engine/ddp-receiver';
import { DDPSender } from '#daemon/iwarp/engine/ddp-sender';
import type { TaggedHeader, UntaggedHeader } from '#daemon/iwarp/wire/ddp-header';
import { ProtocolError } from '#daemon/iwarp/wire/protocol-error';
import { drain, senderOf } from '#test/support/fpdu-stream';
import { bytesOf, hexOf } from '#test/support/hex';

class RecordingUser implements DDPReceiverUser {
  readonly seen: string[] = [];
  refuse: ProtocolError | undefined = undefined;

  checkTagged(): ProtocolError | undefined {
    return this.refuse;
  }

  checkUntagged(): ProtocolError | undefined {
    return this.refuse;
  }

  placeTagged(
    { ulp, stag, toHi, toLo, last }: TaggedHeader,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): ProtocolError | undefined {
    const payload = hexOf(bytes.subarray(start, start + length));
    this.seen.push(['T', ulp, stag, toHi, toLo, payload, last].join(' '));
    return undefined;
  }

  placeUntagged(
    { qn, ulp, ulpWord, mo, last }: UntaggedHeader,
    bytes: Uint8Array,
    segment: number,
    length: number,
  ): ProtocolError | undefined {
    const payload = hexOf(bytes.subarray(segment + 18, segment + 18 + length));
    this.seen.push(['U', qn, ulp, ulpWord.toString(16), mo, payload, last].join(' '));
    return undefined;
  }
}

function receive(receiver: DDPReceiver, ...ulpdus: readonly string[]): (string | undefined)[] {
  return ulpdus.map((ulpdu) => {
    const bytes = bytesOf(`00*7 ${ulpdu}`);
    return receiver.handleSegment(bytes, 7, bytes.length - 7)?.name;
  });
}

describe('DDPReceiver', () => {
  it('passes its fields to the layer above [DDP-4.2-03, DDP-4.3-03, DDP-3-01, DDP-4.1-02]', () => {
    const user = new RecordingUser();
    const receiver = new DDPReceiver(user, 4);
    receive(
      receiver,
      'c142 11223344 0000000100000010 4142',
      '4144 cafe0001 00000000 00000001 00000000 616263',
      'c140 00000000 0000000000000000',
    );
    expect(user.seen).toEqual([
      'T 66 287454020 1 16 4142 true',
      'U 0 68 cafe0001 0 616263 true',
      'T 64 0 0 0  true',
    ]);
  });

  it('after MSN 0xffffffff comes 0, and it is a normal value [DDP-4.3-08]', () => {
    const user = new RecordingUser();
    const receiver = new DDPReceiver(user, 3, 0xfffffffe);
    const names = receive(
      receiver,
      ...['fffffffe', 'ffffffff', '00000000', '00000001'].map(
        (msn) => `4143 00000000 00000000 ${msn} 00000000`,
      ),
    );
    expect(names).toEqual([undefined, undefined, undefined, undefined]);
    expect(user.seen.length).toBe(4);
  });

  it('each queue counts its own messages, and tagged ones have no number [DDP-4.3-10]', () => {
    const user = new RecordingUser();
    const names = receive(
      new DDPReceiver(user, 4),
      '4143 00000000 00000000 00000001 00000000',
      '4141 00000000 00000001 00000001 00000000',
      'c140 00000000 0000000000000000',
      '4143 00000000 00000000 00000002 00000000',
      '414b 00000000 00000003 00000001 00000000',
    );
    expect(names.every((name) => name === undefined)).toBe(true);
  });

  it('MO and length of the last segment give the length [DDP-5.4-03, DDP-4.1-08, DDP-5.2-14]', () => {
    const user = new RecordingUser();
    const receiver = new DDPReceiver(user, 4);
    receive(receiver, '0143 00000000 00000000 00000001 00000000 55*110');
    expect(receiver.midMessage).toBe(true);
    receive(
      receiver,
      '0143 00000000 00000000 00000001 0000006e 55*110',
      '4143 00000000 00000000 00000001 000000dc 55*80',
    );
    expect(receiver.midMessage).toBe(false);
    expect(user.seen.map((line) => line.split(' ')[4])).toEqual(['0', '110', '220']);
  });

  it('a message that would pass 2^32 bytes is too long [DDP-5.2-02, DDP-7.1-03]', () => {
    const user = new RecordingUser();
    const receiver = new DDPReceiver(user, 4);
    // Only a peer that sent four gigabytes gets there; MO must equal the bytes received.
    expect(receive(receiver, '0143 00000000 00000000 00000001 ffffffff 41')).toEqual([
      'ddpInvalidMo',
    ]);
    expect(user.seen).toEqual([]);
  });

  it('a segment that the layer above refuses is not placed [DDP-7.1-16]', () => {
    const user = new RecordingUser();
    user.refuse = new ProtocolError('rdmapUnexpectedOpcode');
    const names = receive(
      new DDPReceiver(user, 4),
      'c140 00000000 0000000000000000 41',
      '4143 00000000 00000000 00000001 00000000 41',
    );
    expect(names).toEqual(['rdmapUnexpectedOpcode', 'rdmapUnexpectedOpcode']);
    expect(user.seen).toEqual([]);
  });

  it('reports an error and leaves teardown to its caller [DDP-6.2-01, DDP-6.2.2-04]', () => {
    const user = new RecordingUser();
    const receiver = new DDPReceiver(user, 4);
    const names = receive(
      receiver,
      '4143 00000000 00000009 00000001 00000000 41',
      '4143 00000000 00000000 00000001 00000000 41',
    );
    // A layer above may continue after an error: DDP accepts the next segment.
    expect(names).toEqual(['ddpInvalidQn', undefined]);
    expect(user.seen.length).toBe(1);
  });

  it('queue 3 exists with RFC 7306 only [DDP-7.1-01]', () => {
    const ulpdu = '414b 00000000 00000003 00000001 00000000';
    expect(receive(new DDPReceiver(new RecordingUser(), 3), ulpdu)).toEqual(['ddpInvalidQn']);
    expect(receive(new DDPReceiver(new RecordingUser(), 4), ulpdu)).toEqual([undefined]);
  });
});

describe('DDPSender', () => {
  function messages(firstMsn: number, count: number): string[] {
    const fpdus = senderOf();
    fpdus.enterFullOperation(false, false);
    const sender = new DDPSender(fpdus, 128, firstMsn);
    for (let i = 0; i < count; i++) {
      // Begun and dropped: no number is used up.
      sender.beginUntagged(true, 0x43, 0, 0, 0, 5);
      sender.beginUntagged(true, 0x43, 0, 0, 0, 0);
      sender.commit();
    }
    const bytes = hexOf(drain(fpdus));
    return Array.from({ length: count }, (_, i) => bytes.slice(48 * i + 24, 48 * i + 32));
  }

  it('counts from 1 [DDP-4.3-06, DDP-4.3-07]', () => {
    expect(messages(1, 3)).toEqual(['00000001', '00000002', '00000003']);
  });

  it('counts modulo 2^32 [DDP-4.3-08]', () => {
    expect(messages(0xfffffffe, 4)).toEqual(['fffffffe', 'ffffffff', '00000000', '00000001']);
  });
});
