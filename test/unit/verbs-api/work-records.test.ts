import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import {
  type CompletedWork,
  completionStatusName,
  emitCompletedWork,
  emitPostedWork,
  type PostedWork,
  parseCompletedWork,
  parsePostedWork,
  WorkQueue,
  workOpcodeName,
} from '#contract/protocol/work-records';
import { bytesOf } from '#test/support/hex';

const DEVICE = new TextEncoder().encode('iwarp0');
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const qpn = fc.integer({ min: 0, max: 0xff_ffff });
const u8 = fc.integer({ min: 0, max: 255 });

const posted: fc.Arbitrary<PostedWork> = fc.record({
  qpn,
  queue: fc.constantFrom(...Object.values(WorkQueue)),
  opcode: u8,
  flags: fc.integer({ min: 0, max: 0xffff }),
  wrIdHi: u32,
  wrIdLo: u32,
  lengthBytes: fc.maxSafeNat(),
  stag: u32,
  addressHi: u32,
  addressLo: u32,
});

const completed: fc.Arbitrary<CompletedWork> = fc.record({
  qpn,
  opcode: u8,
  status: fc.constantFrom(...Object.values(CQEStatus)),
  flags: u8,
  wrIdHi: u32,
  wrIdLo: u32,
  lengthBytes: u32,
  immediateHi: u32,
  immediateLo: u32,
});

describe('records of work', () => {
  it('have the layout that the module documents', () => {
    const work: PostedWork = {
      qpn: 0x010203,
      queue: WorkQueue.send,
      opcode: SQOpcode.write,
      flags: 0x0104,
      wrIdHi: 0x11121314,
      wrIdLo: 0x15161718,
      lengthBytes: 1,
      stag: 0xcafe0001,
      addressHi: 0x21222324,
      addressLo: 0x25262728,
    };
    expect(emitPostedWork(work, DEVICE)).toEqual(
      bytesOf(
        '03020100 00 00 0401 1817161514131211 000000000000f03f 2827262524232221 0100feca 697761727030',
      ),
    );
    const done: CompletedWork = {
      qpn: 7,
      opcode: SQOpcode.receive,
      status: CQEStatus.remInvReqErr,
      flags: 0x20,
      wrIdHi: 0,
      wrIdLo: 0x99,
      lengthBytes: 64,
      immediateHi: 1,
      immediateLo: 2,
    };
    expect(emitCompletedWork(done, DEVICE)).toEqual(
      bytesOf('07000000 0800 08 20 9900000000000000 40000000 0200000001000000 697761727030'),
    );
  });

  it('come back unchanged', () => {
    fc.assert(
      fc.property(posted, completed, (work, done) => {
        expect(parsePostedWork(emitPostedWork(work, DEVICE))).toEqual({ device: 'iwarp0', work });
        expect(parseCompletedWork(emitCompletedWork(done, DEVICE))).toEqual({
          device: 'iwarp0',
          work: done,
        });
      }),
    );
  });

  it('are refused by name, whatever their bytes', () => {
    const parsed = (parse: (body: Uint8Array) => unknown, body: Uint8Array): void => {
      try {
        parse(body);
      } catch (error) {
        expect(error).toBeInstanceOf(IpcFormatError);
      }
    };
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 120 }), (body) => {
        parsed(parsePostedWork, body);
        parsed(parseCompletedWork, body);
      }),
      { numRuns: 2000 },
    );
  });

  it.each([
    [
      'no device',
      '03000000 00 00 0400 00000000 00000000 0000000000000000 0000000000000000 00000000',
    ],
    ['no body', ''],
    [
      'an unknown queue',
      '03000000 03 00 0400 0000000000000000 0000000000000000 0000000000000000 00000000 61',
    ],
    [
      'a queue pair number of more than 24 bits',
      '00000001 00 00 0400 0000000000000000 0000000000000000 0000000000000000 00000000 61',
    ],
    [
      'a length that is no number',
      '03000000 00 00 0400 0000000000000000 000000000000f87f 0000000000000000 00000000 61',
    ],
    [
      'a name that is no UTF-8',
      '03000000 00 00 0400 0000000000000000 0000000000000000 0000000000000000 00000000 ff',
    ],
    ['a name without end', `${'00'.repeat(36)} ${'61'.repeat(64)}`],
  ])('of posted work are refused with %s', (_, hex) => {
    expect(() => parsePostedWork(bytesOf(hex))).toThrow(IpcFormatError);
  });

  it('of completions are refused with an unknown status', () => {
    const body = bytesOf('07000000 6300 08 20 9900000000000000 40000000 0200000001000000 61');
    expect(() => parseCompletedWork(body)).toThrow(IpcFormatError);
  });

  it('have the names of operations and statuses of rdma-core', () => {
    for (const [name, opcode] of Object.entries(SQOpcode)) {
      if (name === 'readResponse') continue;
      expect(workOpcodeName(opcode)).toMatch(/^[A-Z]+(?:_[A-Z]+)*$/);
    }
    expect(workOpcodeName(200)).toBe('OPCODE_200');
    const statuses = Object.values(CQEStatus).map(completionStatusName);
    expect(new Set(statuses).size).toBe(14);
    expect(statuses).toContain('IBV_WC_REM_ACCESS_ERR');
  });
});
