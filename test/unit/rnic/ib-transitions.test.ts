import { describe, expect, it } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo, MASKS, mappedGid, modify, PEER, VALUES } from '#test/support/program-steps';

const { rc, uc, ud } = QPType;
const { RESET, INIT, RTR, RTS, SQD, SQE, ERR } = QPState;
const TYPES = [rc, uc, ud];
const A = QPAttribute;
const BITS = Array.from({ length: 21 }, (_, index) => 1 << index);

function codeOf(run: () => void): string {
  try {
    run();
    return '0';
  } catch (error) {
    return String(Reflect.get(Object(error), 'code'));
  }
}

function fresh(type: QPType, state: QPState): QP {
  return bringTo(new ProgramRig().createQP(type), state);
}

/** Bits that may be added to `mask`, found by trying each. */
function optional(type: QPType, from: QPState, to: QPState, mask: number): number {
  let bits = 0;
  for (const bit of BITS.filter((each) => (mask & each) === 0)) {
    const code = codeOf(() => modify(fresh(type, from), to, mask | bit));
    expect(['0', 'EINVAL']).toContain(code);
    if (code === '0') bits |= bit;
  }
  return bits;
}

/** Bits that must be in `mask`, found by leaving out each. */
function required(type: QPType, from: QPState, to: QPState, mask: number): number {
  let bits = A.state;
  for (const bit of BITS.filter((each) => (mask & each) !== 0 && each !== A.state)) {
    const code = codeOf(() => modify(fresh(type, from), to, mask & ~bit));
    if (code === 'EINVAL') bits |= bit;
  }
  return bits;
}

const { accessFlags, pkeyIndex, qkey, curState, minRnrTimer, pathMigState } = A;

describe('attributes of a transition', () => {
  const MAY: [string, QPType, QPState, QPState, number, number][] = [
    ['RC to INIT', rc, RESET, INIT, 0x39, 0],
    ['UC to INIT', uc, RESET, INIT, 0x39, 0],
    ['UD to INIT', ud, RESET, INIT, 0x71, 0],
    ['RC to RTR', rc, INIT, RTR, 0x129181, accessFlags | pkeyIndex],
    ['UC to RTR', uc, INIT, RTR, 0x101181, accessFlags | pkeyIndex],
    ['UD to RTR', ud, INIT, RTR, 0x1, pkeyIndex | qkey],
    ['RC to RTS', rc, RTR, RTS, 0x12e01, curState | accessFlags | minRnrTimer | pathMigState],
    ['UC to RTS', uc, RTR, RTS, 0x10001, curState | accessFlags | pathMigState],
    ['UD to RTS', ud, RTR, RTS, 0x10001, curState | qkey],
  ];

  it.each(MAY)('%s: required and optional bits', (_, type, from, to, mask, may) => {
    expect(required(type, from, to, mask)).toBe(mask);
    expect(optional(type, from, to, mask)).toBe(may);
  });

  const SQD_RC =
    accessFlags | pkeyIndex | A.portNum | A.ahAttr | A.timeout | A.retryCnt | A.rnrRetry;
  const STAYS: [string, QPType, QPState, number][] = [
    ['RC in RTS', rc, RTS, curState | accessFlags | minRnrTimer | pathMigState],
    ['UC in RTS', uc, RTS, curState | accessFlags | pathMigState],
    ['UD in RTS', ud, RTS, curState | qkey],
    ['RC in SQD', rc, SQD, SQD_RC | A.maxRdAtomic | minRnrTimer | A.maxDestRdAtomic | pathMigState],
    ['UC in SQD', uc, SQD, accessFlags | pkeyIndex | pathMigState],
    ['UD in SQD', ud, SQD, pkeyIndex | qkey],
  ];

  it.each(STAYS)('%s: optional bits, with and without the state', (_, type, state, may) => {
    expect(optional(type, state, state, A.state)).toBe(may);
    expect(optional(type, state, state, 0) & ~A.state).toBe(may);
  });

  it('are unknown above bit 20: EOPNOTSUPP', () => {
    for (let bit = 21; bit < 32; bit += 1) {
      const qp = fresh(rc, RESET);
      expect(codeOf(() => modify(qp, INIT, 0x39 | (1 << bit)))).toBe('EOPNOTSUPP');
    }
  });
});

describe('states', () => {
  const STATES = [RESET, INIT, RTR, RTS, SQD, SQE, ERR];
  const LEGAL: [string, QPState, QPState[]][] = [
    ['RESET', RESET, [RESET, INIT]],
    ['INIT', INIT, [RESET, INIT, RTR, ERR]],
    ['RTR', RTR, [RESET, RTS, ERR]],
    ['RTS', RTS, [RESET, RTS, SQD, ERR]],
    ['SQD', SQD, [RESET, RTS, SQD, ERR]],
    ['ERR', ERR, [RESET, ERR]],
  ];

  it.each(LEGAL)('%s leads to these and to no other', (_, from, legal) => {
    for (const type of TYPES) {
      const [init, rtr, rts] = MASKS[type];
      const masks = new Map<QPState, number>([
        [INIT, init],
        [RTR, rtr],
        [RTS, from === RTR ? rts : A.state],
      ]);
      for (const to of STATES) {
        const qp = fresh(type, from);
        const code = codeOf(() => modify(qp, to, masks.get(to)));
        expect([type, to, code]).toEqual([type, to, legal.includes(to) ? '0' : 'EINVAL']);
        expect(qp.state).toBe(code === '0' ? to : from);
      }
    }
  });

  it('do not change when a request fails, nor do attributes', () => {
    const rig = new ProgramRig();
    const qp = bringTo(rig.createQP(rc), INIT);
    const before = qp.queryPath();
    expect(codeOf(() => modify(qp, RTR, 0x129181, { pathMtu: 6 }))).toBe('EINVAL');
    expect(qp.queryPath()).toEqual(before);
    expect(rig.wires).toEqual([]);
  });
});

describe('values', () => {
  const TO_RTR: [string, object, string][] = [
    ['no GRH', { isGlobal: false }, 'EINVAL'],
    ['an empty GID index', { sgidIndex: 5 }, 'ENODATA'],
    ['GID index 255', { sgidIndex: 255 }, 'ENODATA'],
    ['a GID index of the other family', { sgidIndex: 0 }, 'EINVAL'],
    ['a zero GID', { dgid: new Uint8Array(16) }, 'EINVAL'],
    ['port 0', { portNum: 0 }, 'EINVAL'],
    ['port 2', { portNum: 2 }, 'EINVAL'],
    ['a GID without a route', { dgid: mappedGid(192, 168, 9, 9) }, 'ETIMEDOUT'],
    ['a multicast GID', { dgid: mappedGid(239, 1, 1, 1) }, '0'],
    ['hop limit 0, any class, label, level and rate', { hopLimit: 0, sl: 15, staticRate: 31 }, '0'],
  ];

  it.each(TO_RTR)('RTR with %s', (_, fields, expected) => {
    const ahAttr = { ...PEER, ...fields };
    const qp = fresh(rc, INIT);
    expect(codeOf(() => modify(qp, RTR, 0x129181, { ahAttr }))).toBe(expected);
  });

  it.each([
    [INIT, { portNum: 0 }, 'EINVAL'],
    [INIT, { portNum: 2 }, 'EINVAL'],
    [INIT, { pkeyIndex: 64 }, '0'],
    [INIT, { accessFlags: 0xffffffff }, '0'],
    [INIT, { accessFlags: 0 }, '0'],
    [RTR, { pathMtu: 0 }, 'EINVAL'],
    [RTR, { pathMtu: 1 }, '0'],
    [RTR, { pathMtu: 5 }, '0'],
    [RTR, { pathMtu: 6 }, 'EINVAL'],
    [RTR, { destQpNum: 0x1ffffff }, '0'],
    [RTR, { maxDestRdAtomic: 255 }, '0'],
    [RTR, { minRnrTimer: 255 }, '0'],
    [RTS, { timeout: 31 }, '0'],
    [RTS, { timeout: 32 }, 'EINVAL'],
    [RTS, { retryCnt: 255 }, '0'],
    [RTS, { rnrRetry: 8 }, '0'],
    [RTS, { maxRdAtomic: 0 }, '0'],
    [RTS, { maxRdAtomic: 128 }, '0'],
    [RTS, { maxRdAtomic: 129 }, 'EINVAL'],
  ] as const)('to state %i with %o: %s', (state, values, expected) => {
    const [init, rtr, rts] = MASKS[rc];
    const mask = new Map<QPState, number>([
      [INIT, init],
      [RTR, rtr],
      [RTS, rts],
    ]).get(state);
    const qp = fresh(rc, (state - 1) as QPState);
    expect(codeOf(() => modify(qp, state, mask, values))).toBe(expected);
  });

  it('refuses a current state that is not the true one', () => {
    const qp = fresh(rc, RTR);
    const mask = 0x12e01 | A.curState;
    expect(codeOf(() => modify(qp, RTS, mask, { curState: INIT }))).toBe('EINVAL');
    expect(codeOf(() => modify(qp, RTS, mask, { curState: RTR }))).toBe('0');
  });

  it('answers a query as rxe does: rounded depths, PSNs of 24 bits, an MTU before RTR', () => {
    const rig = new ProgramRig();
    const qp = rig.createQP(rc);
    expect(qp.queryPath()).toMatchObject({ state: RESET, pathMtu: 1, portNum: 0, accessFlags: 0 });
    bringTo(qp, INIT);
    expect(qp.queryPath()).toMatchObject({ state: INIT, pathMtu: 1, portNum: 1, accessFlags: 7 });
    modify(qp, RTR, 0x129181, { rqPsn: 0xff123456, destQpNum: 0xf0000005 });
    expect(qp.queryPath()).toMatchObject({
      state: RTR,
      pathMtu: 3,
      rqPsn: 0x123456,
      sqPsn: 0,
      destQpNum: 5,
      maxDestRdAtomic: 8,
      maxRdAtomic: 0,
      ahAttr: PEER,
      qkey: 0,
    });
    modify(qp, RTS, 0x12e01, { sqPsn: 0xffffffff });
    rig.wire.rqPsn = 0x123459;
    expect(qp.queryPath()).toMatchObject({
      state: RTS,
      rqPsn: 0x123459,
      sqPsn: 0xffffff,
      maxRdAtomic: 4,
      timeout: 12,
      retryCnt: VALUES.retryCnt,
      draining: false,
    });
  });
});

describe('values of attributes', () => {
  it.each<[string, QPState, Parameters<typeof modify>[3], string]>([
    ['a port', RESET, { portNum: 0 }, 'portNum must be 1, not 0: ports count from 1'],
    [
      'the port of an address',
      INIT,
      { ahAttr: { ...PEER, portNum: 0 } },
      'ah_attr.port_num must be 1, not 0: ports count from 1',
    ],
    [
      'a path MTU of 1024, of which 8 bits arrive',
      INIT,
      { pathMtu: 1024 & 0xff },
      'pathMtu is 0; it is a code, IBV_MTU_256 (1) to IBV_MTU_4096 (5), not a number of bytes (1024 arrives as 0)',
    ],
    ['a path MTU of 1500', INIT, { pathMtu: 1500 & 0xff }, 'not 220: it is a code'],
    ['a timeout', RTR, { timeout: 40 }, 'timeout must be 0 to 31, not 40'],
    ['a depth', RTR, { maxRdAtomic: 129 }, 'maxRdAtomic must be 0 to 128, not 129'],
  ])('refuse %s', (_what, state, values, sentence) => {
    const next = { [RESET]: INIT, [INIT]: RTR, [RTR]: RTS } as Record<number, QPState>;
    const [init, rtr, rts] = MASKS[rc];
    const mask = { [RESET]: init, [INIT]: rtr, [RTR]: rts } as Record<number, number>;
    const qp = fresh(rc, state);
    expect(() => modify(qp, next[state] ?? ERR, mask[state], values)).toThrow(sentence);
    expect(qp.state).toBe(state);
  });
});
