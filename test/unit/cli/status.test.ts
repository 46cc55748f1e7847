import { describe, expect, it } from 'vitest';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { durationText, statusLines } from '#daemon/cli/status';

const STATUS: DaemonStatus = {
  version: '1.2.3',
  pid: 42,
  uptimeSeconds: 3725,
  ready: true,
  socketPath: '/run/x/iwarpd.sock',
  crcEngine: 'native',
  faults: 0,
  refusals: 0,
  health: {
    limits: { descriptors: { used: 30, limit: 1024 }, objects: { used: 3, limit: 100 } },
    logLinesDropped: 0,
    longestTurnSeconds: 0.02,
    ended: [],
  },
  network: 'host',
  loopback: 'memory',
  memoryTiers: ['shared', 'agent'],
  devices: [
    {
      device: { name: 'a', backend: 'emulated', nodeGuid: '0000000000000001', addresses: [] },
      portState: 'active',
      counters: { sends_taken: 7, flushes: 0 },
    },
  ],
  clients: [
    {
      id: 1,
      pid: 77,
      uid: 1000,
      program: 'rping',
      connectedSeconds: 61,
      usage: {
        objects: { pd: 1, qp: 2, cq: 0 },
        sharedBytes: 0,
        pinnedBytes: 0,
        tiers: { agent: 1 },
        tierReasons: { agent: 'process_vm is refused (EPERM)' },
      },
    },
  ],
};

describe('the status for people', () => {
  it('shows where RDMA is served without iWARP', () => {
    const roceAlone = [{ address: '0.0.0.0', port: 3260 }];
    expect(statusLines({ ...STATUS, roceAlone })).toContain(
      'RoCE alone    0.0.0.0 port 3260: another program has the TCP port',
    );
  });

  it('shows limits that are nearly reached, ended processes, a long turn, and dropped log lines', () => {
    expect(statusLines(STATUS).join('\n')).not.toMatch(/limit|ended|log|turn/);
    const health = {
      limits: { descriptors: { used: 205, limit: 256 }, objects: { used: 3, limit: 100 } },
      logLinesDropped: 7,
      longestTurnSeconds: 0.38,
      ended: [{ pid: 77, program: 'rping', at: '2026-01-01T00:00:00.000Z' }],
    };
    expect(statusLines({ ...STATUS, health })).toEqual(
      expect.arrayContaining([
        'near a limit  descriptors: 205 of 256',
        'longest turn  380 ms, for which all programs waited',
        'log           7 lines dropped: nothing reads it',
        'ended         pid 77 rping at 2026-01-01T00:00:00.000Z: its memory did not answer',
      ]),
    );
  });

  it('reports refusals, if there were any', () => {
    const lines = statusLines({ ...STATUS, refusals: 3 });
    expect(lines).toContain('refusals      3: see `iwarpd explain`');
    expect(statusLines(STATUS).join()).not.toContain('refusals');
  });

  it('reports faults, if there are any', () => {
    const lines = statusLines({ ...STATUS, faults: 2 });
    expect(lines).toContain('faults        2: see `iwarpd fault list`');
    expect(statusLines(STATUS).join('\n')).not.toContain('fault');
  });

  it('shows what exists and leaves out zeros', () => {
    expect(statusLines(STATUS)).toEqual([
      'iwarpd 1.2.3, pid 42, up 1 h 2 min',
      'socket        /run/x/iwarpd.sock',
      'CRC32C        native',
      'network       host',
      'loopback      memory',
      'memory tiers  shared, agent',
      '',
      'device a (emulated): every address of this host',
      '  sends_taken  7  Work requests consumed from send queues',
      '',
      'client    connected  objects     memory regions',
      '77 rping  1 min 1 s  1 pd, 2 qp  1 agent',
      '  agent: process_vm is refused (EPERM)',
    ]);
  });

  it('reports when there is nothing', () => {
    const [device] = STATUS.devices;
    const idle = device === undefined ? [] : [{ ...device, counters: { sends_taken: 0 } }];
    const lines = statusLines({ ...STATUS, devices: idle, clients: [] });
    expect(lines.slice(8)).toEqual(['  nothing moved yet', '', 'no clients']);
  });

  it('shows durations in readable units', () => {
    expect(durationText(59.9)).toBe('59 s');
    expect(durationText(60)).toBe('1 min 0 s');
    expect(durationText(86_400)).toBe('24 h 0 min');
  });
});
