import { describe, expect, it } from 'vitest';
import { layOut, type Mark } from '#daemon/page/timeline-layout';
import { cqe, fpdu, packet, pass, record, wqe } from './trace-builder.ts';

const SCALE = 0.4;

function ping() {
  return [
    wqe(1, 'SEND', '0x1'),
    fpdu(1, 2, 'Send'),
    cqe(1, 'SEND', '0x1'),
    wqe(2, 'RECV', '0x7'),
    cqe(2, 'RECV', '0x7'),
  ];
}

function labels(marks: readonly Mark[]): string[] {
  return marks.map(({ lane, row, label }) => `${lane} ${row} ${label}`);
}

describe('the time line', () => {
  it('has a lane for each queue pair, by number, and rows for WQEs, the wire and CQEs', () => {
    const { lanes, marks } = layOut([[...ping(), wqe(10, 'SEND', '0x1')]], SCALE);
    expect(lanes).toEqual(['iwarp0 QP 1', 'iwarp0 QP 2', 'iwarp0 QP 10']);
    expect(labels(marks)).toEqual([
      '0 wqe SEND',
      '0 wire →Send',
      '1 wire ←Send',
      '0 cqe ok',
      '1 wqe RECV',
      '1 cqe ok',
      '2 wqe SEND',
    ]);
  });

  it('joins the parts of a work request, at both ends', () => {
    const { marks, groups } = layOut([ping()], SCALE);
    expect(marks.map(({ group }) => group)).toEqual([0, 0, 1, 0, 1, 1]);
    expect(groups).toEqual([{ marks: [0, 1, 3] }, { marks: [2, 4, 5] }]);
    const write = [wqe(1, 'RDMA_WRITE', '0x1'), fpdu(1, 2, 'Write')];
    // The other end posted nothing for it.
    expect(layOut([write], SCALE).marks.map(({ group }) => group)).toEqual([0, 0, 0]);
  });

  it('keeps the order of time, and no two marks of a row overlap', () => {
    const records = Array.from({ length: 40 }, (_, index) => [
      wqe(1, 'SEND', `0x${index}`),
      fpdu(1, 2, 'Send'),
      cqe(1, 'SEND', `0x${index}`),
    ]).flat();
    const { marks, width } = layOut([records], SCALE);
    for (const [index, mark] of marks.entries()) {
      expect(mark.x).toBeGreaterThanOrEqual(marks[index - 1]?.x ?? 0);
      expect(mark.x + mark.width).toBeLessThanOrEqual(width);
      const before = marks.findLast((other) => {
        return other.index < mark.index && other.lane === mark.lane && other.row === mark.row;
      });
      if (before !== undefined) expect(mark.x).toBeGreaterThanOrEqual(before.x + before.width);
    }
  });

  it('folds a pause, and shows how long it was', () => {
    const first = wqe(1, 'SEND', '0x1');
    pass(250_000);
    const second = cqe(1, 'SEND', '0x1');
    const { folds, marks, width } = layOut([[first, second]], SCALE);
    expect(folds).toEqual([expect.objectContaining({ micros: 250_005, unseen: false })]);
    expect(marks[1]?.x).toBeGreaterThan((folds[0]?.x ?? 0) + (folds[0]?.width ?? 0));
    expect(width).toBeLessThan(300);
  });

  it('is to scale where there is room', () => {
    const first = wqe(1, 'SEND', '0x1');
    pass(95);
    const { marks } = layOut([[first, cqe(1, 'SEND', '0x1')]], 1);
    expect((marks[1]?.x ?? 0) - (marks[0]?.x ?? 0)).toBe(100);
  });

  it('separates samples: nothing was observed between them, and nothing is joined across', () => {
    const posted = [wqe(1, 'SEND', '0x1')];
    pass(500_000);
    const { folds, marks } = layOut([posted, [cqe(1, 'SEND', '0x1')]], SCALE);
    expect(folds).toEqual([expect.objectContaining({ micros: 500_005, unseen: true })]);
    expect(marks.map(({ group }) => group)).toEqual([0, undefined]);
  });

  it('names a message once, however many FPDUs it has', () => {
    const records = [
      wqe(1, 'RDMA_WRITE', '0x1'),
      fpdu(1, 2, 'Write', false),
      fpdu(1, 2, 'Write', false),
      fpdu(1, 2, 'Write'),
      fpdu(1, 2, 'Write'),
    ];
    const wire = layOut([records], SCALE).marks.filter(({ direction }) => direction === 'out');
    expect(wire.map(({ label }) => label)).toEqual(['→Write', '', '', '→Write']);
  });

  it('names RoCE packets by their contents, and marks a NAK', () => {
    const records = [
      wqe(1, 'SEND', '0x1'),
      packet(1, 2, 'RC SEND First'),
      packet(1, 2, 'RC SEND Middle'),
      packet(1, 2, 'RC SEND Last'),
      packet(2, 1, 'RC Acknowledge', 'ACK, MSN 1'),
      packet(2, 1, 'RC Acknowledge', 'RNR NAK for 640 µs, MSN 1'),
      packet(1, 2, 'RC CmpSwap'),
    ];
    const wire = layOut([records], SCALE).marks.filter(
      ({ lane, row }) => lane === 0 && row === 'wire',
    );
    expect(wire.map(({ label }) => label)).toEqual(['→Send', '', '', '←ACK', '←NAK', '→AReq']);
    expect(wire.map(({ bad }) => bad)).toEqual([false, false, false, false, true, false]);
  });

  it('marks errors', () => {
    const records = [
      cqe(1, 'RDMA_WRITE', '0x1', 'IBV_WC_REM_ACCESS_ERR'),
      fpdu(1, 2, 'Terminate'),
      record('error', { qpn: 1, link: 1, by: 'peer', text: 'bad FPDU: CRC' }),
      record('end', { qpn: 1, link: 1, by: 'peer', text: 'RST' }),
      record('end', { qpn: 1, link: 1, by: 'us', text: 'FIN' }),
      record('mpa', { qpn: 1, link: 1, by: 'us', opcode: 'MPA Reply', text: 'MPA Reply' }),
    ];
    const { marks } = layOut([records], SCALE);
    const own = marks.filter(({ lane }) => lane === 0);
    expect(own.map(({ label, bad }) => [label, bad])).toEqual([
      ['REM ACCESS', true],
      ['→Term', true],
      ['error', true],
      ['RST', true],
      ['FIN', false],
      ['MPA Rep', false],
    ]);
  });

  it('labels the time axis, spaced apart and never twice', () => {
    const at = wqe(1, 'RDMA_WRITE', '0x1');
    const records = [at, ...Array.from({ length: 50 }, () => ({ ...at }))];
    expect(layOut([records], SCALE).ticks).toHaveLength(1);
    const later = records.map((each, index) => ({ ...each, micros: each.micros + index }));
    const { ticks } = layOut([later], SCALE);
    expect(ticks.length).toBeGreaterThan(5);
    for (const [index, { x, micros }] of ticks.entries()) {
      expect(x - (ticks[index - 1]?.x ?? -Infinity)).toBeGreaterThan(100);
      expect(micros).toBeGreaterThan(ticks[index - 1]?.micros ?? -1);
    }
  });

  it('is empty for an empty trace', () => {
    expect(layOut([[]], SCALE)).toMatchObject({ lanes: [], marks: [], folds: [], ticks: [] });
  });
});
