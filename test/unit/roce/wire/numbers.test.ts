/** Sequence numbers, syndromes, times, path MTUs and the names of opcodes. */
import { describe, expect, it } from 'vitest';
import {
  opcodeName,
  opcodeTraits,
  operationOf,
  PacketOperation,
  Service,
  serviceOf,
  Trait,
} from '#daemon/roce/wire/opcode';
import { isPathMtu, largestPathMtu, pathMtuBytes } from '#daemon/roce/wire/path-mtu';
import { addPsn, psnDistance } from '#daemon/roce/wire/psn';
import {
  ACK_WITHOUT_CREDITS,
  ackTimeoutMicros,
  isSyndrome,
  NakCode,
  nakSyndrome,
  rnrSyndrome,
  rnrTimerMicros,
  SyndromeKind,
  syndromeKind,
  syndromeValue,
} from '#daemon/roce/wire/syndrome';

describe('sequence numbers', () => {
  it('wrap at 24 bits, both ways', () => {
    expect(addPsn(0xffffff, 1)).toBe(0);
    expect(addPsn(0, -1)).toBe(0xffffff);
    expect(addPsn(0xfffffe, 5)).toBe(3);
  });

  it('are ordered across the wrap', () => {
    expect(psnDistance(3, 0xfffffe)).toBe(5);
    expect(psnDistance(0xfffffe, 3)).toBe(-5);
    expect(psnDistance(7, 7)).toBe(0);
    expect(psnDistance(0x7fffff, 0)).toBe(0x7fffff);
    expect(psnDistance(0x800000, 0)).toBe(-0x800000);
  });
});

describe('syndromes', () => {
  it('carry ACK, RNR NAK and NAK with their values', () => {
    expect(ACK_WITHOUT_CREDITS).toBe(0x1f);
    expect(rnrSyndrome(14)).toBe(0x2e);
    expect(nakSyndrome(NakCode.remoteAccess)).toBe(0x62);
    expect(syndromeKind(0x2e)).toBe(SyndromeKind.rnrNak);
    expect(syndromeValue(0x2e)).toBe(14);
    expect(syndromeKind(0x62)).toBe(SyndromeKind.nak);
    expect(syndromeValue(0x62)).toBe(NakCode.remoteAccess);
    expect(syndromeKind(0x05)).toBe(SyndromeKind.ack);
  });

  it('are not sent with reserved bits or codes', () => {
    const sent = Array.from({ length: 256 }, (_, value) => value).filter(isSyndrome);
    expect(sent.at(0)).toBe(0);
    expect(sent.at(-1)).toBe(0x64);
    expect(sent).toHaveLength(32 + 32 + 5);
  });
});

describe('times', () => {
  it('has the RNR timers of the specification: code 0 is the longest [ROCE-RNR-10]', () => {
    expect(rnrTimerMicros(0)).toBe(655_360);
    expect(rnrTimerMicros(1)).toBe(10);
    expect(rnrTimerMicros(12)).toBe(640);
    expect(rnrTimerMicros(31)).toBe(491_520);
    // Ascending, and each at most twice its predecessor.
    for (let code = 2; code < 32; code += 1) {
      const ratio = rnrTimerMicros(code) / rnrTimerMicros(code - 1);
      expect(ratio).toBeGreaterThan(1.2);
      expect(ratio).toBeLessThanOrEqual(2);
    }
  });

  it('never times out with code 0 [ROCE-RTY-07]', () => {
    expect(ackTimeoutMicros(0)).toBe(Number.POSITIVE_INFINITY);
    expect(ackTimeoutMicros(14)).toBeCloseTo(67_108.864);
    expect(ackTimeoutMicros(19)).toBeCloseTo(2_147_483.648);
  });
});

describe('path MTUs', () => {
  it('have the codes of enum ibv_mtu', () => {
    expect([1, 2, 3, 4, 5].map(pathMtuBytes)).toEqual([256, 512, 1024, 2048, 4096]);
    expect([0, 6, -1].map(pathMtuBytes)).toEqual([undefined, undefined, undefined]);
  });

  it('is the largest that fits', () => {
    expect([0, 255, 256, 1023, 1024, 1450, 4095, 4096, 9000].map(largestPathMtu)).toEqual([
      0, 0, 1, 2, 3, 3, 4, 5, 5,
    ]);
  });

  it('are the only sizes of packets in the middle of a message', () => {
    const sizes = Array.from({ length: 8193 }, (_, bytes) => bytes).filter(isPathMtu);
    expect(sizes).toEqual([256, 512, 1024, 2048, 4096]);
  });
});

describe('opcodes', () => {
  it('are split and named', () => {
    expect(serviceOf(0x65)).toBe(Service.ud);
    expect(operationOf(0x65)).toBe(PacketOperation.sendOnlyImmediate);
    expect(opcodeName(0x00)).toBe('RC SEND First');
    expect(opcodeName(0x2b)).toBe('UC RDMA WRITE Only with Immediate');
    expect(opcodeName(0x64)).toBe('UD SEND Only');
    expect(opcodeName(0x81)).toBe('opcode 0x81');
  });

  it('know what starts and ends a message, and which side sends them', () => {
    const having = (mask: number, service: number) =>
      Object.values(PacketOperation).filter((operation) => {
        return (opcodeTraits(service | operation) & mask) === mask;
      }).length;
    expect(having(Trait.request, Service.rc)).toBe(17);
    expect(having(Trait.starts | Trait.ends, Service.rc)).toBe(11);
    expect(having(Trait.request, Service.uc)).toBe(12);
    expect(having(Trait.deth | Trait.starts | Trait.ends | Trait.send, Service.ud)).toBe(2);
    expect(having(Trait.readResponse | Trait.payload, Service.rc)).toBe(4);
  });
});
