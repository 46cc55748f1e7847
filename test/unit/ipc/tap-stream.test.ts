import { describe, expect, it } from 'vitest';
import type { LinkAddresses } from '../../../daemon/capture/capture-tap.ts';
import { BACKLOG_MAX_BYTES, parseTapFilter, TapStream } from '../../../daemon/ipc/tap-stream.ts';
import { FrameReader } from '../../../verbs-api/contract/ipc-frames.ts';
import {
  parseLostBytes,
  parseTapRecord,
  TAP_BODY_MAX_BYTES,
  type TapFilter,
  TapKind,
  type TapRecord,
} from '../../../verbs-api/contract/tap-records.ts';

const ENDS: LinkAddresses = {
  localAddress: '::ffff:127.0.0.2',
  localPort: 5000,
  remoteAddress: '127.0.0.3',
  remotePort: 7000,
  dialed: true,
  emssBytes: 1460,
};

function stream(filter: TapFilter = {}) {
  const records: TapRecord[] = [];
  const reader = new FrameReader(2 ** 20, (frame) => records.push(parseTapRecord(frame)));
  const connection = {
    pendingBytes: 0,
    unreadMaxBytes: 0,
    gather: (octets: Uint8Array) => reader.push(octets),
  };
  return { tap: new TapStream(connection, filter), connection, records };
}

describe('the stream to a watcher', () => {
  it('cuts long stretches of octets', () => {
    const { tap, records } = stream();
    tap.octets(3, 'peer', new Uint8Array(TAP_BODY_MAX_BYTES + 1).fill(7));
    expect(records.map(({ body }) => body.length)).toEqual([TAP_BODY_MAX_BYTES, 1]);
    expect(records[0]).toMatchObject({ kind: TapKind.octets, by: 'peer', link: 3 });
    expect(Math.abs((records[0]?.micros ?? 0) / 1000 - Date.now())).toBeLessThan(60_000);
  });

  it('leaves out octets while its watcher does not read, and tells how many before the next', () => {
    const { tap, connection, records } = stream();
    connection.pendingBytes = BACKLOG_MAX_BYTES + 1;
    tap.octets(1, 'us', new Uint8Array(100));
    tap.octets(1, 'us', new Uint8Array(20));
    tap.octets(2, 'peer', new Uint8Array(5));
    expect(records).toEqual([]);
    connection.pendingBytes = 0;
    tap.octets(1, 'us', Uint8Array.of(1));
    tap.closed(2, true);
    expect(records.map(({ kind, link, by }) => [kind, link, by])).toEqual([
      [TapKind.lost, 1, 'us'],
      [TapKind.octets, 1, 'us'],
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
  ])('wants what the filter says: %j', (filter, wanted) => {
    expect(stream(filter).tap.wants(ENDS)).toBe(wanted);
  });

  it.each([
    [undefined, ''],
    [{ port: 0 }, 'port'],
    [{ port: 'http' }, 'port'],
    [{ address: 5 }, 'address'],
    [{ links: [{}] }, 'links.0.localAddress'],
    [{ everything: true }, ''],
  ])('refuses a filter that makes no sense: %j', (filter, field) => {
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
