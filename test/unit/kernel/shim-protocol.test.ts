import { describe, expect, it } from 'vitest';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import {
  emitReply,
  REQUEST_PAYLOAD_MAX_BYTES,
  ReplyFlag,
  RequestReader,
  type ShimRequest,
} from '#daemon/kernel/shim-protocol';
import { bytesOf, hexOf } from '#test/support/hex';

/** The requests in a stream split into `step` bytes. */
function requestsIn(bytes: Uint8Array, step: number): ShimRequest[] {
  const found: ShimRequest[] = [];
  const reader = new RequestReader((request) => {
    found.push({ ...request, payload: request.payload.slice() });
  });
  for (let at = 0; at < bytes.length; at += step) reader.push(bytes.slice(at, at + step));
  return found;
}

const WRITE = '1c000000 0100 0000 39300000 07000000 0000000000000000 deadbeef';
const MMAP = '20000000 0200 0000 39300000 08000000 0010000000000000 8800000000000000';
const DOORBELL = '18000000 0600 0100 39300000 00000000 0300000000000000';

describe('requests', () => {
  it.each([1, 5, 24, 1000])('are parsed from pieces of %i bytes', (step) => {
    const [write, mmap, doorbell, ...rest] = requestsIn(bytesOf(WRITE + MMAP + DOORBELL), step);
    expect(write).toEqual({
      op: 1,
      flags: 0,
      pid: 12345,
      id: 7,
      argument: 0,
      payload: bytesOf('deadbeef'),
    });
    expect(mmap).toMatchObject({ op: 2, id: 8, argument: 0x1000 });
    expect(mmap?.payload).toHaveLength(8);
    expect(doorbell).toMatchObject({ op: 6, flags: 1, argument: 3 });
    expect(rest).toEqual([]);
  });

  it('an argument of 64 bits is a number', () => {
    const [request] = requestsIn(bytesOf(`18000000 ${'00'.repeat(12)} 0100000001000000`), 100);
    expect(request?.argument).toBe(2 ** 32 + 1);
  });

  it.each([
    ['shorter than its header', '17000000'],
    ['of no bytes', '00000000'],
    ['one longer than a program may write', hexOf(u32(24 + REQUEST_PAYLOAD_MAX_BYTES + 1))],
    ['of all bytes', 'ffffffff'],
  ])('a frame %s is refused as soon as its header arrives', (_what, length) => {
    expect(() => requestsIn(bytesOf(`${length} 00*20`), 100)).toThrow(IpcFormatError);
  });

  it('the longest frame is accepted', () => {
    const bytes = new Uint8Array(24 + REQUEST_PAYLOAD_MAX_BYTES);
    bytes.set(u32(bytes.length));
    expect(requestsIn(bytes, 5000)).toHaveLength(1);
  });
});

describe('replies', () => {
  it('a refusal is only a header', () => {
    expect(hexOf(emitReply(9, { status: -22 }))).toBe(
      '18000000 eaffffff 09000000 00000000 00000000 00000000'.replaceAll(' ', ''),
    );
  });

  it('with a response, a descriptor and a purged queue', () => {
    const token = bytesOf('aa*16');
    const bytes = emitReply(1, {
      status: 0,
      flags: ReplyFlag.takeByte,
      response: bytesOf('01020304'),
      descriptors: [{ offset: 2, token }],
      purged: [5, 6],
    });
    expect(bytes).toEqual(
      bytesOf(`3c000000 00000000 01000000 03000000 04000000 01000000
        01020304 02000000 aa*16 02000000 05000000 06000000`),
    );
  });

  it('no purged queue, no list', () => {
    const bytes = emitReply(1, { status: 0, purged: [] });
    expect(bytes).toHaveLength(24);
    expect(bytes[12]).toBe(0);
  });
});

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}
