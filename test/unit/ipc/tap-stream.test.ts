import { describe, expect, it } from 'vitest';
import { IpcFrameReader } from '#contract/protocol/ipc-frames';
import { encodeValue, IpcFormatError } from '#contract/protocol/ipc-value';
import {
  parseLostBytes,
  parseTapRecord,
  TAP_BODY_MAX_BYTES,
  type TapFilter,
  TapKind,
  type TapRecord,
} from '#contract/protocol/tap-records';
import {
  type CompletedWork,
  type PostedWork,
  parsePostedWork,
  WorkQueue,
} from '#contract/protocol/work-records';
import type { LinkAddresses } from '#daemon/capture/capture-tap';
import { TapHub } from '#daemon/capture/tap-hub';
import { TapSelection } from '#daemon/capture/tap-selection';
import { WorkHub } from '#daemon/capture/work-hub';
import { refusalOf } from '#daemon/cli/traffic/trace';
import { BACKLOG_MAX_BYTES, parseTapFilter, TapStream } from '#daemon/ipc/tap-stream';
import { type RefusalReport, Refusals } from '#daemon/refusals/refusals';

const ENDS: LinkAddresses = {
  localAddress: '::ffff:127.0.0.2',
  localPort: 5000,
  remoteAddress: '127.0.0.3',
  remotePort: 7000,
  dialed: true,
  emssBytes: 1460,
};

const WORK: PostedWork = {
  qpn: 1,
  queue: WorkQueue.send,
  opcode: 3,
  flags: 4,
  wrIdHi: 0,
  wrIdLo: 7,
  lengthBytes: 64,
  stag: 0,
  addressHi: 0,
  addressLo: 0,
};

const DONE: CompletedWork = {
  qpn: 1,
  opcode: 3,
  status: 0,
  flags: 0,
  wrIdHi: 0,
  wrIdLo: 7,
  lengthBytes: 64,
  immediateHi: 0,
  immediateLo: 0,
};

function stream(filter: TapFilter = {}) {
  const records: TapRecord[] = [];
  const reader = new IpcFrameReader(2 ** 20, (frame) => records.push(parseTapRecord(frame)));
  const connection = {
    pendingBytes: 0,
    unreadMaxBytes: 0,
    gather: (bytes: Uint8Array) => reader.push(bytes),
    lend: (bytes: Uint8Array, onDone: () => void) => {
      reader.push(bytes.slice());
      onDone();
    },
  };
  return { tap: new TapStream(connection, filter), connection, records };
}

describe('a watcher’s stream', () => {
  it('splits long runs of bytes', () => {
    const { tap, records } = stream();
    tap.bytes(3, 'peer', new Uint8Array(TAP_BODY_MAX_BYTES + 1).fill(7));
    expect(records.map(({ body }) => body.length)).toEqual([TAP_BODY_MAX_BYTES, 1]);
    expect(records[0]).toMatchObject({ kind: TapKind.bytes, by: 'peer', link: 3 });
    expect(Math.abs((records[0]?.micros ?? 0) / 1000 - Date.now())).toBeLessThan(60_000);
  });

  it('drops bytes while its watcher does not read, and reports how many before the next', () => {
    const { tap, connection, records } = stream();
    connection.pendingBytes = BACKLOG_MAX_BYTES + 1;
    tap.bytes(1, 'us', new Uint8Array(100));
    tap.bytes(1, 'us', new Uint8Array(20));
    tap.bytes(2, 'peer', new Uint8Array(5));
    expect(records).toEqual([]);
    connection.pendingBytes = 0;
    tap.bytes(1, 'us', Uint8Array.of(1));
    tap.closed(2, true);
    expect(records.map(({ kind, link, by }) => [kind, link, by])).toEqual([
      [TapKind.lost, 1, 'us'],
      [TapKind.bytes, 1, 'us'],
      [TapKind.lost, 2, 'peer'],
      [TapKind.reset, 2, 'us'],
    ]);
    expect(records.filter(({ kind }) => kind === TapKind.lost).map(({ body }) => body)).toSatisfy(
      (bodies: Uint8Array[]) => bodies.map(parseLostBytes).join() === '120,5',
    );
  });

  it.each([
    [{}, true],
    [{ address: '127.0.0.2' }, true],
    [{ address: '127.0.0.3', port: 5000 }, true],
    [{ address: '127.0.0.4' }, false],
    [{ port: 7001 }, false],
    [{ links: [] }, false],
    [{ links: [{ ...ends('127.0.0.2', 5000), ...far('127.0.0.3', 7000) }] }, true],
    [{ links: [{ ...ends('127.0.0.3', 7000), ...far('127.0.0.2', 5000) }] }, true],
    [{ links: [{ ...ends('127.0.0.2', 5001), ...far('127.0.0.3', 7000) }] }, false],
  ])('selects the links that the filter names: %j', (filter, wanted) => {
    expect(stream(filter).tap.wants(ENDS, {})).toBe(wanted);
  });

  it('reports work of the requested topics, each with the name of its device', () => {
    const { tap, records } = stream({ topics: ['posted'] });
    tap.posted('iwarp0', { ...WORK, qpn: 3 });
    tap.completed('iwarp0', { ...DONE, qpn: 3 });
    tap.bytes(1, 'us', Uint8Array.of(1));
    tap.opened(1, ENDS);
    expect(records.map(({ kind, link }) => [kind, link])).toEqual([[TapKind.posted, 0]]);
    expect(parsePostedWork(records[0]?.body ?? new Uint8Array(0))).toEqual({
      device: 'iwarp0',
      work: { ...WORK, qpn: 3 },
    });
  });

  it('reports refusals in order with the work, those of other devices left out', () => {
    const { tap, records } = stream({ topics: ['posted', 'refusals'], device: 'left' });
    const refusals = new Refusals(() => '2026-01-02T03:04:05.678Z');
    const stop = tap.watch(new TapHub(), new WorkHub([]), refusals);
    const report: RefusalReport = {
      pid: 7,
      uid: 0,
      program: 'pp',
      api: 'verbs',
      verb: 'ibv_modify_qp',
      code: 'EINVAL',
      sentence: 'no',
    };
    tap.posted('left', WORK);
    refusals.record({ ...report, device: 'left', objects: { qp: 1 } });
    refusals.record({ ...report, device: 'right' });
    refusals.record(report);
    tap.posted('left', WORK);
    stop();
    refusals.record({ ...report, device: 'left' });
    expect(records.map(({ kind }) => kind)).toEqual([
      TapKind.posted,
      TapKind.refusal,
      TapKind.posted,
    ]);
    expect(refusalOf(records[1]?.body ?? new Uint8Array(0))).toMatchObject({
      program: 'pp',
      verb: 'ibv_modify_qp',
      device: 'left',
      objects: { qp: 1 },
    });
    expect(() => refusalOf(encodeValue({ pid: 7 }))).toThrow(IpcFormatError);
  });

  it.each([
    [{}, { device: 'left', objects: { qp: 3 } }, true],
    [{}, {}, true],
    [{ device: 'left' }, { device: 'left' }, true],
    [{ device: 'left' }, { device: 'right', objects: { qp: 3 } }, false],
    [{ qps: [3] }, { device: 'left', objects: { qp: 3 } }, true],
    [{ qps: [3] }, { device: 'left', objects: { qp: 4 } }, false],
    [{ qps: [3] }, { device: 'left', objects: { cq: 3 } }, false],
    [{ port: 7000 }, { device: 'left' }, false],
  ])('selects refusals by queue pair, or else by device: %j, %j', (filter, refusal, wanted) => {
    expect(new TapSelection(filter).wantsRefusal(refusal)).toBe(wanted);
  });

  it('reports only links if no topics are given', () => {
    const { tap, records } = stream();
    tap.posted('iwarp0', WORK);
    tap.completed('iwarp0', DONE);
    tap.finished(1, 'us');
    expect(records.map(({ kind }) => kind)).toEqual([TapKind.finished]);
  });

  it('counts dropped work, and reports how much before the next', () => {
    const { tap, connection, records } = stream({ topics: ['posted', 'completed'] });
    connection.pendingBytes = BACKLOG_MAX_BYTES + 1;
    tap.posted('a', WORK);
    tap.completed('a', DONE);
    connection.pendingBytes = 0;
    tap.completed('a', DONE);
    expect(records.map(({ kind, link }) => [kind, link])).toEqual([
      [TapKind.lost, 0],
      [TapKind.completed, 0],
    ]);
    expect(parseLostBytes(records[0]?.body ?? new Uint8Array(0))).toBe(2);
  });

  it.each([
    [undefined, ''],
    [{ topics: ['everything'] }, 'topics.0'],
    [{ topics: new Array(6).fill('links') }, 'topics'],
    [{ device: '' }, 'device'],
    [{ qps: [0] }, 'qps.0'],
    [{ qps: new Array(1025).fill(1) }, 'qps'],
    [{ port: 0 }, 'port'],
    [{ port: 'http' }, 'port'],
    [{ address: 5 }, 'address'],
    [{ links: [{}] }, 'links.0.localAddress'],
    [{ everything: true }, ''],
  ])('refuses an invalid filter: %j', (filter, field) => {
    expect(() => parseTapFilter(filter)).toThrow(
      expect.objectContaining({ code: 'EINVAL', message: expect.stringContaining(`${field}: `) }),
    );
  });
});

function ends(localAddress: string, localPort: number) {
  return { localAddress, localPort };
}

function far(remoteAddress: string, remotePort: number) {
  return { remoteAddress, remotePort };
}
