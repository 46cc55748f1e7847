import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonProcess, printed, startProgram } from '../support/daemon-process.ts';
import { madeToken } from '../support/http-token.ts';
import { failure } from '../support/outcomes.ts';
import { Survivor } from './daemon-survivor.ts';

describe('reset while bytes move', () => {
  /** The daemon that is reset, and the daemon of the peer. */
  let near: DaemonProcess;
  let far: DaemonProcess;
  let survivor: Survivor;
  let victims: ChildProcess[];

  beforeEach(async () => {
    near = await DaemonProcess.start({ http: {}, native: false });
    far = await DaemonProcess.start({ native: false });
    survivor = await Survivor.start(far.socketPath);
    victims = [];
  });

  afterEach(async () => {
    for (const victim of victims) victim.kill('SIGKILL');
    await survivor.provider.close();
    await near.clean();
    await far.clean();
  });

  async function victim(): Promise<ChildProcess> {
    const program = startProgram('daemon-victim', near.socketPath, `${survivor.port}`);
    victims.push(program);
    await printed(program, 'running');
    return program;
  }

  async function controls(): Promise<DaemonControl[]> {
    const socketPath = near.socketPath;
    const { http } = await near.status();
    return [
      new DaemonControl({ socketPath }),
      new DaemonControl({ url: http?.url, token: madeToken(socketPath) }),
    ];
  }

  it('ends clients and connections, frees everything, and reports the objects that were open', async () => {
    // The first client's memory starts the thread that guards copies, which stays.
    const first = await victim();
    const firstEnd = once(first, 'exit');
    first.kill('SIGKILL');
    await firstEnd;
    const before = await near.atRest();
    for (const control of await controls()) {
      const programs = [await victim(), await victim()];
      const ends = programs.map((program) => once(program, 'exit'));
      const report = await control.reset();
      const pids = report.leaks.map(({ pid }) => pid).sort();
      expect(pids).toEqual(programs.map(({ pid }) => pid).sort());
      for (const leak of report.leaks) {
        expect(leak.program).toBe('node');
        expect(leak.usage.objects).toMatchObject({ context: 1, qp: 1, cq: 1, mr: 2, mw: 1 });
      }
      expect(report).toMatchObject({ clients: 2, connections: 2 });

      const status = await control.status();
      expect(status.clients).toEqual([]);
      const counts = status.devices.flatMap(({ counters }) => Object.values(counters));
      expect(counts.filter((count) => count !== 0)).toEqual([]);
      expect(await control.connections()).toEqual([]);
      expect(await control.queuePairs()).toEqual([]);
      expect(await control.memoryRegions()).toEqual([]);
      expect(await near.settled(before)).toEqual(before);

      // The programs fail, and do not hang; the peers see that their connections are over.
      for (const [exitStatus] of await Promise.all(ends)) expect(exitStatus).toBe(1);
      await expect.poll(() => survivor.open).toBe(0);
    }
    expect(survivor.accepted).toBe(5);
    // The daemon serves new clients.
    await victim();
  });

  it('names no client that was killed before, in any report or list', async () => {
    for (const control of await controls()) {
      const program = await victim();
      const ended = once(program, 'exit');
      program.kill('SIGKILL');
      await ended;
      // At once, before the daemon can notice.
      const lists = await Promise.all([control.clients(), control.queuePairs()]);
      expect(lists).toEqual([[], []]);
      const report = await control.reset();
      expect(report.leaks).toEqual([]);
    }
  });

  it('spares administrative connections, and the programs of other daemons', async () => {
    const provider = await connectDaemon({ socketPath: far.socketPath });
    const [control] = await controls();
    expect(await control?.reset()).toMatchObject({ leaks: [], clients: 0, connections: 0 });
    expect(await control?.reset()).toMatchObject({ leaks: [], clients: 0, connections: 0 });
    expect((await provider.devices()).map(({ name }) => name)).toEqual(['roce0', 'iwarp0']);
    await provider.close();
  });

  it('does not report a client that holds nothing as a leak, but ends it too', async () => {
    const provider = await connectDaemon({ socketPath: near.socketPath });
    const [control] = await controls();
    expect(await control?.reset()).toMatchObject({ leaks: [], clients: 1, connections: 0 });
    await expect(provider.devices()).rejects.toEqual(failure('EIO', 'reset'));
    await provider.close();
  });
});
