import { describe, expect, it } from 'vitest';
import { refusalError, TerminatePolicy } from '#daemon/iwarp/engine/terminate-policy';
import { ProtocolError } from '#daemon/iwarp/wire/protocol-error';
import { TERMINATE_ERRORS, type TerminateErrorName } from '#daemon/iwarp/wire/terminate';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { bytesOf, hexOf } from '#test/support/hex';

const REFUSALS = Object.values(AccessRefusal).filter((refusal) => refusal !== AccessRefusal.none);

function codes(place: Parameters<typeof refusalError>[1]): string[] {
  return REFUSALS.map((refusal) => {
    const { layer, etype, code } = refusalError(refusal, place);
    return ((layer << 12) | (etype << 8) | code).toString(16).padStart(4, '0');
  });
}

describe('codes of refusals', () => {
  // In the order of `AccessRefusal`: STag invalid, not associated, bounds, access, TO wrap, no buffer, too
  // long, cannot invalidate, memory lost, misaligned, owner gone, no such receive, not permitted.
  it('of a tagged segment [DDP-7.1-09, DDP-7.1-10, DDP-7.1-11, DDP-7.1-12]', () => {
    const expected = '1100 1102 1101 1100 1103 1000 1101 1000 1000 1000 1000 1000 1000';
    expect(codes('tagged').join(' ')).toBe(expected);
  });

  it('of an untagged segment [DDP-7.1-02, DDP-7.1-03, DDP-7.1-04]', () => {
    const expected = '1000 1000 1204 1000 1000 1202 1205 1000 1000 1000 1000 1000 1000';
    expect(codes('untagged').join(' ')).toBe(expected);
  });

  it('of a Read source or an atomic [RDMAP-7.2-05, RDMAPX-8.2-03, SEC-6.1.1-02, SEC-6.1.1-03]', () => {
    const expected = '0100 0103 0101 0102 0104 01ff 0101 01ff 01ff 0207 0000 0000 0000';
    expect(codes('remote').join(' ')).toBe(expected);
  });

  it('of an invalidation [RDMAP-5.3-10, RDMAP-7.2-04, RDMAP-8.1.1-01]', () => {
    const expected = '0100 0109 0000 0109 0000 0000 0000 0109 0000 0000 0000 0000 0000';
    expect(codes('invalidate').join(' ')).toBe(expected);
  });
});

describe('TerminatePolicy', () => {
  const untagged = bytesOf('4143 00000000 00000005 00000001 00000000 41424344');
  const read = bytesOf('4141 00000000 00000001 00000001 00000000 11*28');

  it('the first error is kept [RDMAP-7.1-05]', () => {
    const policy = new TerminatePolicy();
    expect(policy.latchSegment(new ProtocolError('ddpInvalidQn'), untagged, 0, 22)).toBe(true);
    expect(policy.latchSegment(new ProtocolError('ddpInvalidStag'), untagged, 0, 22)).toBe(false);
    expect(policy.latchLocal(new ProtocolError('mpaCrc'))).toBe(false);
    expect(policy.error?.name).toBe('ddpInvalidQn');
    expect(hexOf(policy.peek()?.ddpHeader ?? new Uint8Array(0))).toBe(
      hexOf(untagged.subarray(0, 18)),
    );
  });

  it('only one Terminate is sent [RDMAP-5.4-06]', () => {
    const policy = new TerminatePolicy();
    policy.latchLocal(new ProtocolError('mpaCrc'));
    expect(policy.pending).toBe(true);
    policy.sent();
    expect([policy.pending, policy.peek()]).toEqual([false, undefined]);
    policy.latchLocal(new ProtocolError('mpaCrc'));
    expect(policy.pending).toBe(false);
  });

  it('which headers it copies [RDMAP-4.8-08, RDMAP-4.8-29, RDMAP-4.8-30, RDMAP-4.8-31, RDMAP-4.8-32]', () => {
    for (const name of Object.keys(TERMINATE_ERRORS) as TerminateErrorName[]) {
      const error = new ProtocolError(name);
      if (!error.sendable) continue;
      const policy = new TerminatePolicy();
      policy.latchSegment(error, read, 0, read.length);
      const header = policy.peek();
      const copies = error.layer !== 2 && error.etype !== 0;
      expect(header?.segmentLength, name).toBe(copies ? 46 : undefined);
      expect(header?.ddpHeader?.length, name).toBe(copies ? 18 : undefined);
      const withRead = error.layer === 0 && error.etype === 1;
      expect(header?.rdmaHeader?.length, name).toBe(withRead ? 28 : undefined);
    }
  });

  it('the RDMA header is included for Read Requests only [RDMAP-4.8-09]', () => {
    const atomic = bytesOf('414a 00000000 00000001 00000001 00000000 11*28');
    const policy = new TerminatePolicy();
    policy.latchSegment(new ProtocolError('rdmapInvalidStag'), atomic, 0, atomic.length);
    expect(policy.peek()?.rdmaHeader).toBe(undefined);
  });

  it('nothing answers a Terminate, a lost connection or a failed startup [RDMAP-5.4-04]', () => {
    const terminate = bytesOf('4147 00000000 00000002 00000001 00000000 200200');
    const policy = new TerminatePolicy();
    policy.latchSegment(new ProtocolError('rdmapOperationUnspecified'), terminate, 0, 21);
    expect(policy.error?.name).toBe('rdmapOperationUnspecified');
    expect(policy.pending).toBe(false);
    for (const name of ['mpaConnectionLost', 'mpaInvalidFrame'] as const) {
      const lost = new TerminatePolicy();
      lost.latchLocal(new ProtocolError(name));
      expect(lost.pending).toBe(false);
    }
  });

  it('copies bytes, since received bytes are only borrowed', () => {
    const lent = untagged.slice();
    const policy = new TerminatePolicy();
    policy.latchSegment(new ProtocolError('ddpInvalidQn'), lent, 0, 22);
    lent.fill(0xdb);
    expect(hexOf(policy.peek()?.ddpHeader ?? lent)).toBe(hexOf(untagged.subarray(0, 18)));
  });
});
