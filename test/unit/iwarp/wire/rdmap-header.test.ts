import { describe, expect, it } from 'vitest';
import {
  OPCODES,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  type ReadRequest,
  rdmapControl,
  readReadRequest,
  writeReadRequest,
} from '#daemon/iwarp/wire/rdmap-header';
import { bytesOf, hexOf } from '#test/support/hex';
import { readVectors } from '#test/support/vectors';

interface Vectors {
  readonly readRequests: readonly { readonly bytes: string; readonly request: ReadRequest }[];
}

const vectors = readVectors<Vectors>('rdmap.json');

function emptyRequest(): ReadRequest {
  return {
    sinkStag: 1,
    sinkToHi: 1,
    sinkToLo: 1,
    size: 1,
    sourceStag: 1,
    sourceToHi: 1,
    sourceToLo: 1,
  };
}

describe('RDMAP headers', () => {
  it('Read Request Headers are read and written [RDMAP-4.4-01, RDMAP-4.4-05, RDMAP-4.4-04]', () => {
    for (const { bytes, request } of vectors.readRequests) {
      const golden = bytesOf(bytes);
      const read = emptyRequest();
      readReadRequest(bytesOf(`aa*3 ${bytes}`), 3, read);
      expect(read).toEqual(request);
      const target = new Uint8Array(READ_REQUEST_BYTES + 2).fill(0xa5);
      writeReadRequest(request, target, 1);
      expect(hexOf(target)).toBe(`a5${hexOf(golden)}a5`);
    }
  });

  it('a Read Request Header that is cut is not read past its end [RDMAP-4.4-01]', () => {
    expect(() => readReadRequest(new Uint8Array(27), 0, emptyRequest())).toThrow(RangeError);
  });

  it('control bytes [RDMAP-4.1-01, RDMAP-4.1-04, RDMAP-4.1-06, RDMAPX-4.1-01]', () => {
    const bytes = Object.values(RDMAPOpcode).map((opcode) => rdmapControl(opcode));
    const golden = '40 41 42 43 44 45 46 47 48 49 4a 4b'.split(' ');
    expect(bytes.map((byte) => byte.toString(16))).toEqual(golden);
  });

  it('opcodes [RDMAP-4.1-02, RDMAP-4.1-03, RDMAP-3.1-01, RDMAPX-4.1-02, RDMAPX-10-01, IANA-3.4-01]', () => {
    const table = OPCODES.map((entry) => `${entry.name}: ${entry.tagged ? 'T' : entry.qn}`);
    expect(table).toEqual([
      'Write: T',
      'Read Request: 1',
      'Read Response: T',
      'Send: 0',
      'Send with Invalidate: 0',
      'Send with SE: 0',
      'Send with SE and Invalidate: 0',
      'Terminate: 2',
      'Immediate Data: 0',
      'Immediate Data with SE: 0',
      'Atomic Request: 1',
      'Atomic Response: 3',
    ]);
  });
});
