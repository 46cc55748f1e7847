import { beforeEach, describe, expect, it } from 'vitest';
import { HISTORY_LENGTH, RateHistory, ratesOf } from '../../../daemon/page/rates.ts';
import type { DeviceStatus } from '../../../verbs-api/contract/protocol/ipc-admin.ts';

function device(
  counters: Readonly<Record<string, number>>,
  backend: 'emulated' | 'native' = 'emulated',
  name = 'left',
): DeviceStatus {
  const nodeGuid = '0200000000000001';
  return { device: { name, backend, nodeGuid, addresses: [] }, portState: 'active', counters };
}

let history: RateHistory;

function lastRates(name = 'left') {
  return history.of(name).points.at(-1)?.rates;
}

beforeEach(() => {
  history = new RateHistory();
});

describe('rates from counters', () => {
  it('are increments over time; the first sample has none', () => {
    history.look(10, [device({ gatheredBytes: 500, outSends: 7, outWrites: 1 })], 1);
    expect(lastRates()).toEqual({
      bytesOut: undefined,
      bytesIn: undefined,
      messagesOut: undefined,
      messagesIn: undefined,
    });
    const next = { gatheredBytes: 2500, placedBytes: 100, outSends: 9, outWrites: 3, inReads: 6 };
    history.look(12, [device(next)], 1);
    expect(lastRates()).toEqual({ bytesOut: 1000, bytesIn: 50, messagesOut: 2, messagesIn: 3 });
    expect(history.of('left').counters).toMatchObject({ gatheredBytes: 1000, inReads: 3 });
  });

  it('are those of the port, too, on a RoCE device', () => {
    const roce = (packets: number) => ({ ...device({}), hwCounters: { sent_pkts: packets } });
    history.look(10, [roce(5)], 1);
    history.look(12, [roce(25)], 1);
    expect(history.of('left').counters).toEqual({ sent_pkts: 10 });
  });

  it('restart after a reset of the counters', () => {
    history.look(1, [device({ gatheredBytes: 500 })], 1);
    history.look(2, [device({ gatheredBytes: 20 })], 1);
    expect(lastRates()?.bytesOut).toBeUndefined();
    history.look(3, [device({ gatheredBytes: 50 })], 1);
    expect(lastRates()?.bytesOut).toBe(30);
  });

  it('restart with another daemon, even if its counters are higher', () => {
    history.look(1, [device({ gatheredBytes: 500 })], 'pid 1');
    history.look(2, [device({ gatheredBytes: 90_000 })], 'pid 2');
    expect(lastRates()?.bytesOut).toBeUndefined();
  });

  it('are not joined over a gap between samples', () => {
    history.look(1, [device({ gatheredBytes: 500 })], 1);
    history.interrupt();
    history.look(600, [device({ gatheredBytes: 90_000 })], 1);
    expect(lastRates()?.bytesOut).toBeUndefined();
  });

  it('skip a sample right after another: it would be noise', () => {
    history.look(1, [device({ gatheredBytes: 0 })], 1);
    history.look(1.1, [device({ gatheredBytes: 400 })], 1);
    expect(history.of('left').points).toHaveLength(1);
    history.look(2, [device({ gatheredBytes: 1000 })], 1);
    expect(lastRates()?.bytesOut).toBe(1000);
  });

  it('are kept for two minutes, by device, as long as the device exists', () => {
    for (let at = 0; at < 300; at += 1) {
      history.look(at, [device({ outSends: at }), device({ outSends: 0 }, 'emulated', 'b')], 1);
    }
    expect(history.of('left').points).toHaveLength(HISTORY_LENGTH);
    expect(history.of('left').points[0]?.at).toBe(300 - HISTORY_LENGTH);
    expect(lastRates('b')?.messagesOut).toBe(0);
    history.look(300, [device({ outSends: 300 })], 1);
    expect(history.of('b').points).toEqual([]);
  });

  it('of native devices count work requests, their only counter', () => {
    history.look(1, [device({ sendsTaken: 1, receivesTaken: 0 }, 'native')], 1);
    history.look(2, [device({ sendsTaken: 5, receivesTaken: 2 }, 'native')], 1);
    expect(lastRates()).toMatchObject({ messagesOut: 4, messagesIn: 2 });
    expect(ratesOf(device({}, 'native'))).toEqual(['messagesOut', 'messagesIn']);
    expect(ratesOf(device({}))).toContain('bytesIn');
  });
});
