/** The structs of rdma_cm that only an InfiniBand transport fills, against recordings of rxe. */
import { describe, expect, it } from 'vitest';
import { CMEventType, QPState } from '#contract/verbs/enums';
import { type EventParameters, emitCmEvent, MULTICAST_JOIN } from '#daemon/kernel/cm/event-record';
import { emitPath, emitQpAttr } from '#daemon/kernel/cm/ib-layouts';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { bytesOf, hexOf, NO_BYTES } from '#test/support/hex';
import { mappedGid } from '#test/support/program-steps';
import { type Recording, recordedCm } from '#test/support/rxe-recordings';

const GID = mappedGid(10, 0, 2, 15);

const PEER: AddressVector = {
  dgid: GID,
  sgidIndex: 1,
  flowLabel: 0x816a1,
  hopLimit: 64,
  trafficClass: 0,
  dlid: 0,
  sl: 0,
  srcPathBits: 0,
  staticRate: 0,
  isGlobal: true,
  portNum: 1,
};

/** The kernel's response, as numbers: `text` is one of the program's pointers, which differ. */
function stored(recording: Recording | undefined): string {
  if (recording === undefined) throw new Error('not recorded');
  return recording.response;
}

describe('INIT_QP_ATTR', () => {
  it('of RTR, byte for byte', () => {
    const bytes = emitQpAttr({
      mask: 0x129181,
      state: QPState.RTR,
      pathMtu: 3,
      rqPsn: 0x7d2016,
      destQpNum: 0x3a,
      ahAttr: PEER,
      maxDestRdAtomic: 1,
      minRnrTimer: 0,
    });
    expect(hexOf(bytes)).toBe(stored(recordedCm('INIT_QP_ATTR', 'rping.cli')[0]));
  });

  it('of RTS, byte for byte', () => {
    const bytes = emitQpAttr({
      mask: 0x12e01,
      state: QPState.RTS,
      sqPsn: 0xce89f0,
      maxRdAtomic: 1,
      timeout: 19,
      retryCnt: 7,
      rnrRetry: 7,
    });
    expect(hexOf(bytes)).toBe(stored(recordedCm('INIT_QP_ATTR', 'rping.cli')[1]));
  });

  it('of INIT for datagrams, byte for byte', () => {
    const bytes = emitQpAttr({ mask: 0x71, state: QPState.INIT, qkey: 0x01234567, portNum: 1 });
    expect(hexOf(bytes)).toBe(stored(recordedCm('INIT_QP_ATTR', 'mckey.cli')[0]));
  });
});

describe('QUERY of a path', () => {
  it('is one path, except for LIDs, which RoCE does not have', () => {
    const path = {
      serviceId: 0n,
      dgid: GID,
      sgid: GID,
      flowLabel: 0x816a1,
      hopLimit: 64,
      trafficClass: 0,
      pathMtu: 3,
    };
    const expected = bytesOf(stored(recordedCm('QUERY', 'rping.cli')[0]));
    expected.fill(0, 56, 60);
    expect(hexOf(emitPath(path))).toBe(hexOf(expected));
  });

  it('is a count of 0 without a path', () => {
    expect([...emitPath(undefined)]).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
  });
});

describe('an event record', () => {
  const events = (program: string) => recordedCm('GET_EVENT', program);
  const recorded = (program: string, type: number): Recording => {
    const found = events(program).find(({ response }) => {
      return new DataView(bytesOf(response).buffer).getUint32(12, true) === type;
    });
    if (found === undefined) throw new Error(`no event ${type} of ${program}`);
    return found;
  };
  /** The program's own identifier of the id, which the record begins with. */
  const head = (recording: Recording) => {
    const fields = new DataView(bytesOf(recording.response).buffer);
    return { uid: fields.getBigUint64(0, true), number: fields.getUint32(8, true), status: 0 };
  };

  const connected = { kind: 'connected', responderResources: 1, initiatorDepth: 1 } as const;
  const datagram = { kind: 'datagram', qkey: 0x01234567 } as const;

  it.each<[about: string, program: string, type: number, parameters: EventParameters]>([
    [
      'a connect request has the peer’s queue pair and all its parameters',
      'rping.srv',
      CMEventType.connectRequest,
      { ...connected, privateData: new Uint8Array(56), qpn: 0x39, retryCount: 7, rnrRetryCount: 7 },
    ],
    [
      'a connect response likewise',
      'rping.cli',
      CMEventType.connectResponse,
      { ...connected, privateData: new Uint8Array(196), qpn: 0x3a, rnrRetryCount: 7 },
    ],
    [
      'datagrams has the path to the service',
      'udaddy.cli',
      CMEventType.established,
      {
        ...datagram,
        privateData: new Uint8Array(136),
        qpn: 0x3e,
        vector: { ...PEER, flowLabel: 0x5c200 },
      },
    ],
    [
      'a group has its address',
      'mckey.cli',
      MULTICAST_JOIN,
      {
        ...datagram,
        privateData: NO_BYTES,
        qpn: 0xffffff,
        vector: { ...PEER, dgid: mappedGid(239, 1, 1, 1), flowLabel: 0 },
      },
    ],
  ])('of %s', (_about, program, type, parameters) => {
    const recording = recorded(program, type);
    expect(hexOf(emitCmEvent({ ...head(recording), type, parameters }))).toBe(recording.response);
  });
});
