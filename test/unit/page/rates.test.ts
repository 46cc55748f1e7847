import { beforeEach, describe, expect, it } from 'vitest';
import type { DeviceStatus } from '#contract/protocol/ipc-admin';
import { HISTORY_LENGTH, RateHistory, ratesOf } from '#daemon/page/rates';

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
    history.look(10, [device({ gathered_bytes: 500, out_sends: 7, out_writes: 1 })], 1);
    expect(lastRates()).toEqual({
      bytesOut: undefined,
      bytesIn: undefined,
      messagesOut: undefined,
      messagesIn: undefined,
    });
    const next = {
      gathered_bytes: 2500,
      placed_bytes: 100,
      out_sends: 9,
      out_writes: 3,
      in_reads: 6,
    };
    history.look(12, [device(next)], 1);
    expect(lastRates()).toEqual({ bytesOut: 1000, bytesIn: 50, messagesOut: 2, messagesIn: 3 });
    expect(history.of('left').counters).toMatchObject({ gathered_bytes: 1000, in_reads: 3 });
  });

  it('include those of the port on a RoCE device', () => {
    const roce = (packets: number) => ({ ...device({}), hwCounters: { sent_pkts: packets } });
    history.look(10, [roce(5)], 1);
    history.look(12, [roce(25)], 1);
    expect(history.of('left').counters).toEqual({ sent_pkts: 10 });
  });

  it('restart after a reset of the counters', () => {
    history.look(1, [device({ gathered_bytes: 500 })], 1);
    history.look(2, [device({ gathered_bytes: 20 })], 1);
    expect(lastRates()?.bytesOut).toBeUndefined();
    history.look(3, [device({ gathered_bytes: 50 })], 1);
    expect(lastRates()?.bytesOut).toBe(30);
  });

  it('restart with another daemon, even if its counters are higher', () => {
    history.look(1, [device({ gathered_bytes: 500 })], 'pid 1');
    history.look(2, [device({ gathered_bytes: 90_000 })], 'pid 2');
    expect(lastRates()?.bytesOut).toBeUndefined();
  });

  it('are not joined over a gap between samples', () => {
    history.look(1, [device({ gathered_bytes: 500 })], 1);
    history.interrupt();
    history.look(600, [device({ gathered_bytes: 90_000 })], 1);
    expect(lastRates()?.bytesOut).toBeUndefined();
  });

  it('skip a sample right after another: it would be noise', () => {
    history.look(1, [device({ gathered_bytes: 0 })], 1);
    history.look(1.1, [device({ gathered_bytes: 400 })], 1);
    expect(history.of('left').points).toHaveLength(1);
    history.look(2, [device({ gathered_bytes: 1000 })], 1);
    expect(lastRates()?.bytesOut).toBe(1000);
  });

  it('are kept for two minutes, by device, as long as the device exists', () => {
    for (let at = 0; at < 300; at += 1) {
      history.look(at, [device({ out_sends: at }), device({ out_sends: 0 }, 'emulated', 'b')], 1);
    }
    expect(history.of('left').points).toHaveLength(HISTORY_LENGTH);
    expect(history.of('left').points[0]?.at).toBe(300 - HISTORY_LENGTH);
    expect(lastRates('b')?.messagesOut).toBe(0);
    history.look(300, [device({ out_sends: 300 })], 1);
    expect(history.of('b').points).toEqual([]);
  });

  it('of native devices count work requests, their only counter', () => {
    history.look(1, [device({ sends_taken: 1, receives_taken: 0 }, 'native')], 1);
    history.look(2, [device({ sends_taken: 5, receives_taken: 2 }, 'native')], 1);
    expect(lastRates()).toMatchObject({ messagesOut: 4, messagesIn: 2 });
    expect(ratesOf(device({}, 'native'))).toEqual(['messagesOut', 'messagesIn']);
    expect(ratesOf(device({}))).toContain('bytesIn');
  });
});
