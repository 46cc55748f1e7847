import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { MemoryTier } from '#contract/verbs/provider';
import { DaemonProcess, printed, startProgram } from '../support/daemon-process.ts';
import { quiet } from '../support/patience.ts';
import { Survivor } from './daemon-survivor.ts';

const KILLS = 24;

describe.each<{ tiers: MemoryTier[] }>([{ tiers: ['process_vm'] }, { tiers: ['agent'] }])(
  'kill -9 of clients whose memory is reached by $tiers',
  ({ tiers }) => {
    let daemon: DaemonProcess;
    let survivor: Survivor;

    beforeAll(async () => {
      daemon = await DaemonProcess.start({ memoryTiers: tiers as ('process_vm' | 'agent')[] });
      survivor = await Survivor.start(daemon.socketPath);
    });

    afterAll(async () => {
      await survivor.provider.close();
      await daemon.clean();
    });

    async function kill(delayMs: number, whenRunning: boolean): Promise<void> {
      const victim = startProgram('daemon-victim', daemon.socketPath, `${survivor.port}`);
      if (whenRunning) await printed(victim, 'running');
      await quiet(delayMs);
      const ended = once(victim, 'exit');
      victim.kill('SIGKILL');
      const [, signal] = await ended;
      expect(signal).toBe('SIGKILL');
    }

    it('leaves no object, no mapping, no file and no descriptor behind', async () => {
      // The first connection makes the survivor open descriptors that it keeps.
      await kill(0, true);
      await expect.poll(() => survivor.open).toBe(0);
      const before = await daemon.atRest(1);
      for (let round = 0; round < KILLS; round++) {
        // At any time from its first steps to the middle of transfers.
        const early = round % 3 === 0;
        await kill(early ? 60 + round * 6 : (round * 7) % 40, !early);
        const after = await daemon.settled(before);
        expect(after, `after kill ${round + 1}: ${JSON.stringify(after)}`).toEqual(before);
      }
      expect(survivor.accepted).toBeGreaterThanOrEqual((KILLS * 2) / 3);
      await expect.poll(() => survivor.open).toBe(0);
      const { clients } = await daemon.status();
      expect(clients.map(({ usage }) => usage.objects)).toEqual([
        expect.objectContaining({ context: 1, pd: 1, id: 1, qp: 0, cq: 0, mr: 0, buffer: 0 }),
      ]);
    });
  },
);
