import { describe, expect, it } from 'vitest';
import {
  OPCODES,
  RDMAPOpcode,
  READ_REQUEST_BYTES,
  type ReadRequest,
  rdmapControl,
  readReadRequest,
  writeReadRequest,
} from '../../../daemon/wire/rdmap-header.ts';
import { hexOf, octetsOf } from '../../support/hex.ts';
import { readVectors } from '../../support/vectors.ts';

interface Vectors {
  readonly readRequests: readonly { readonly octets: string; readonly request: ReadRequest }[];
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
  it('RDMAP-4.4-01, RDMAP-4.4-05, RDMAP-4.4-04: Read Request Headers are read and written', () => {
    for (const { octets, request } of vectors.readRequests) {
      const golden = octetsOf(octets);
      const read = emptyRequest();
      readReadRequest(octetsOf(`aa*3 ${octets}`), 3, read);
      expect(read).toEqual(request);
      const target = new Uint8Array(READ_REQUEST_BYTES + 2).fill(0xa5);
      writeReadRequest(request, target, 1);
      expect(hexOf(target)).toBe(`a5${hexOf(golden)}a5`);
    }
  });

  it('RDMAP-4.4-01: a Read Request Header that is cut is not read past its end', () => {
    expect(() => readReadRequest(new Uint8Array(27), 0, emptyRequest())).toThrow(RangeError);
  });

  it('RDMAP-4.1-01, RDMAP-4.1-04, RDMAP-4.1-06, RDMAPX-4.1-01: control octets', () => {
    const octets = Object.values(RDMAPOpcode).map((opcode) => rdmapControl(opcode));
    const golden = '40 41 42 43 44 45 46 47 48 49 4a 4b'.split(' ');
    expect(octets.map((octet) => octet.toString(16))).toEqual(golden);
  });

  it('RDMAP-4.1-02, RDMAP-4.1-03, RDMAP-3.1-01, RDMAPX-4.1-02, RDMAPX-10-01, IANA-3.4-01: opcodes', () => {
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
