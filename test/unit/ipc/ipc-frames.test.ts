import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import {
  emitFrame,
  emitHello,
  emitWelcome,
  FRAME_HEADER_BYTES,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
  parseHello,
  parseTokenText,
  parseWelcome,
  Role,
  tokenText,
} from '#contract/protocol/ipc-frames';
import {
  AGENT_REPLY_BYTES,
  AGENT_REQUEST_BYTES,
  AGENT_TRANSFER_MAX_BYTES,
  AgentOperation,
  emitAgentReply,
  emitAgentRequest,
  parseAgentReply,
  parseAgentRequest,
  RecordReader,
} from '#contract/protocol/ipc-records';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { bytesOf, hexOf } from '#test/support/hex';

const TOKEN = bytesOf('000102030405060708090a0b0c0d0e0f');

/** The only frame of some bytes. */
function frameOf(bytes: Uint8Array): IpcFrame {
  const frames: IpcFrame[] = [];
  new IpcFrameReader(1024, (frame) => frames.push(frame)).push(bytes);
  const [frame] = frames;
  if (frame === undefined || frames.length !== 1) throw new Error(`${frames.length} frames`);
  return frame;
}

describe('greetings', () => {
  it('a hello has 36 fixed bytes', () => {
    const bytes = emitHello(Role.map, TOKEN);
    const header = '18000000' + '01000000' + '00000000';
    expect(hexOf(bytes)).toBe(`${header}69777264${'0500'}${'04'}${'00'}${hexOf(TOKEN)}`);
    expect(parseHello(frameOf(bytes))).toEqual({ version: 5, role: Role.map, token: TOKEN });
  });

  it('a welcome carries the daemon, the token or the reason for a refusal', () => {
    const refused = { errno: 13, daemonPid: 0x01020304, token: TOKEN, text: 'no … way' };
    const bytes = emitWelcome(refused);
    expect(parseWelcome(frameOf(bytes))).toEqual({ version: 5, ...refused });
    const textBytes = 10;
    const header = `${(32 + textBytes).toString(16)}000000${'02000000'}${'00000000'}`;
    const fields = `69777264${'0500'}${'0000'}${'0d000000'}${'04030201'}`;
    expect(hexOf(bytes).startsWith(header + fields + hexOf(TOKEN))).toBe(true);
  });

  it.each([
    ['another type', emitFrame(FrameType.request, 0, new Uint8Array(24))],
    ['another length', emitFrame(FrameType.hello, 0, new Uint8Array(23))],
    ['another magic', emitFrame(FrameType.hello, 0, new Uint8Array(24))],
  ])('%s is not a hello', (_what, bytes) => {
    expect(() => parseHello(frameOf(bytes))).toThrow(IpcFormatError);
  });

  it.each([
    ['another type', emitFrame(FrameType.reply, 0, new Uint8Array(32))],
    ['another length', emitFrame(FrameType.welcome, 0, new Uint8Array(31))],
    ['another magic', emitFrame(FrameType.welcome, 0, new Uint8Array(32))],
  ])('%s is not a welcome', (_what, bytes) => {
    expect(() => parseWelcome(frameOf(bytes))).toThrow(IpcFormatError);
  });

  it('tokens are 32 hex digits as text', () => {
    expect(tokenText(TOKEN)).toBe('000102030405060708090a0b0c0d0e0f');
    expect(parseTokenText(tokenText(TOKEN))).toEqual(TOKEN);
    for (const text of ['', 'x'.repeat(32), '0'.repeat(31), '0'.repeat(33), 'A'.repeat(32)]) {
      expect(() => parseTokenText(text)).toThrow(IpcFormatError);
    }
  });
});

describe('frames in a stream', () => {
  it('are the same however the bytes are split', () => {
    const frame = fc.record({
      type: fc.constantFrom(...Object.values(FrameType)),
      id: fc.nat({ max: 0xffff_ffff }),
      payload: fc.uint8Array({ maxLength: 100 }),
    });
    fc.assert(
      fc.property(fc.array(frame), fc.array(fc.integer({ min: 1, max: 60 })), (sent, cuts) => {
        const stream = sent.flatMap(({ type, id, payload }) => [...emitFrame(type, id, payload)]);
        const received: IpcFrame[] = [];
        const reader = new IpcFrameReader(100, ({ payload, ...rest }) => {
          received.push({ ...rest, payload: payload.slice() });
        });
        let at = 0;
        for (const cut of [...cuts, stream.length]) {
          // The reader must not keep its input.
          const piece = Uint8Array.from(stream.slice(at, at + cut));
          reader.push(piece);
          piece.fill(0xa5);
          at += cut;
        }
        expect(received).toEqual(sent);
      }),
    );
  });

  it('longer than the limit: refused at the header, nothing is kept', () => {
    const reader = new IpcFrameReader(100, () => undefined);
    reader.push(emitFrame(FrameType.event, 0, new Uint8Array(100)));
    const tooLong = emitFrame(FrameType.event, 0, new Uint8Array(101));
    reader.push(tooLong.subarray(0, FRAME_HEADER_BYTES - 1));
    expect(() => reader.push(tooLong.subarray(FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES))).toThrow(
      'frame of 101 bytes, over 100',
    );
  });
});

describe('agent records', () => {
  it('a request has 24 bytes before its data', () => {
    const bytes = new Uint8Array(AGENT_REQUEST_BYTES).fill(0xa5);
    const request = {
      operation: AgentOperation.write,
      id: 0xfffffffe,
      address: 0x7fff_1234_5678,
      length: 0x10000,
    };
    emitAgentRequest(request, bytes);
    expect(hexOf(bytes)).toBe('02000000feffffff78563412ff7f00000000010000000000');
    expect(parseAgentRequest(bytes)).toEqual(request);
  });

  it('a reply has 16', () => {
    const bytes = new Uint8Array(AGENT_REPLY_BYTES).fill(0xa5);
    emitAgentReply({ id: 7, errno: 14, length: 0 }, bytes);
    expect(hexOf(bytes)).toBe('070000000e0000000000000000000000');
    expect(parseAgentReply(bytes)).toEqual({ id: 7, errno: 14, length: 0 });
  });

  it('longer than a transfer: refused', () => {
    const bytes = new Uint8Array(AGENT_REQUEST_BYTES);
    const long = AGENT_TRANSFER_MAX_BYTES + 1;
    emitAgentRequest({ operation: 1, id: 0, address: 0, length: long }, bytes);
    expect(() => parseAgentRequest(bytes)).toThrow(IpcFormatError);
    emitAgentReply({ id: 0, errno: 0, length: long }, bytes);
    expect(() => parseAgentReply(bytes)).toThrow(IpcFormatError);
  });

  it('a long record that comes byte by byte is not copied for each byte', () => {
    let [records, copiedBytes] = [0, 0];
    const { set } = Uint8Array.prototype;
    const counting = vi.spyOn(Uint8Array.prototype, 'set').mockImplementation(function (
      this: Uint8Array,
      source,
      at,
    ) {
      copiedBytes += source.length;
      set.call(this, source, at);
    });
    try {
      const reader = new RecordReader(
        4,
        () => 65_536,
        () => (records += 1),
      );
      for (let byte = 0; byte < 65_540; byte += 1) reader.push(Uint8Array.of(0));
    } finally {
      counting.mockRestore();
    }
    expect(records).toBe(1);
    expect(copiedBytes).toBeLessThan(4 * 65_540);
  });

  it('records wait for a later call when the reader is asked to stop', () => {
    const seen: number[] = [];
    const reader = new RecordReader(
      2,
      () => 0,
      (record) => seen.push(record[0] ?? 0),
    );
    let left = 1;
    const more = (): boolean => {
      left -= 1;
      return left > 0;
    };
    expect(reader.push(Uint8Array.of(1), more)).toBe(1);
    expect(reader.push(Uint8Array.of(0, 2, 0, 3, 0), more)).toBe(1);
    left = 2;
    expect(reader.push(Uint8Array.of(2, 0, 3, 0, 4, 0), more)).toBe(4);
    expect(seen).toEqual([1, 2, 3]);
  });

  it('records of any length are the same however the bytes are split', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 })),
        fc.array(fc.integer({ min: 1, max: 50 })),
        (bodies, cuts) => {
          const stream = bodies.flatMap((body) => [body.length, 0, ...body]);
          const received: Uint8Array[] = [];
          const reader = new RecordReader(
            2,
            (head) => head[0] ?? 0,
            (record) => received.push(record.slice(2)),
          );
          let at = 0;
          for (const cut of [...cuts, stream.length]) {
            const piece = Uint8Array.from(stream.slice(at, at + cut));
            reader.push(piece);
            piece.fill(0xa5);
            at += cut;
          }
          expect(received).toEqual(bodies);
        },
      ),
    );
  });
});
