import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Connection, type Listener, listen } from '../../verbs-api/connect.ts';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { Access, SendFlag, WROpcode } from '../../verbs-api/contract/enums.ts';
import type { MemoryTier, PD, Provider } from '../../verbs-api/contract/provider.ts';
import { DaemonProcess, printed, startProgram } from './daemon-process.ts';
import { encodeRegion, parseRegion, REGION_BYTES } from './daemon-region.ts';

const KILLS = 24;

/** The other end of the victims' connections: moves octets both ways until they are gone. */
class Survivor {
  readonly provider: Provider;
  readonly #listener: Listener;
  readonly #pd: PD;
  #open = 0;
  accepted = 0;

  private constructor(provider: Provider, listener: Listener, pd: PD) {
    this.provider = provider;
    this.#listener = listener;
    this.#pd = pd;
    void this.#serve();
  }

  static async start(socketPath: string): Promise<Survivor> {
    const provider = await connectDaemon({ socketPath });
    const context = await provider.open();
    const listener = await listen(provider, { host: '127.0.0.1' });
    return new Survivor(provider, listener, await context.allocPD());
  }

  get port(): number {
    return this.#listener.address.port;
  }

  /** Connections that have not ended yet. */
  get open(): number {
    return this.#open;
  }

  async #serve(): Promise<void> {
    for await (const request of this.#listener) {
      this.#open += 1;
      const target = parseRegion(request.privateData);
      const mr = await this.#pd.allocMR(REGION_BYTES, ALL);
      try {
        const privateData = encodeRegion(mr);
        const connection = await request.accept({ pd: this.#pd, privateData });
        this.accepted += 1;
        await Promise.all([connection.disconnected(), this.#transfer(connection, mr, target)]);
        await connection.close();
      } catch {
        // The victim died before the connection was there.
        await request.id.close();
      } finally {
        await mr.close();
        this.#open -= 1;
      }
    }
  }

  async #transfer(
    { qp, cq }: Connection,
    mr: Awaited<ReturnType<PD['allocMR']>>,
    target: { address: bigint; rkey: number },
  ): Promise<void> {
    const remote = { remoteAddr: target.address, rkey: target.rkey };
    for (let round = 0; ; round++) {
      const opcode = round % 2 === 0 ? WROpcode.rdmaWrite : WROpcode.rdmaRead;
      try {
        qp.postSend({ opcode, flags: SendFlag.signaled, sgList: [mr.sge()], ...remote });
      } catch {
        return;
      }
      const [completion] = await cq.wait();
      if (completion?.status !== 0) return;
    }
  }
}

const ALL = Access.localWrite | Access.remoteWrite | Access.remoteRead;

describe.each<{ tiers: MemoryTier[] }>([{ tiers: ['process_vm'] }, { tiers: ['agent'] }])(
  'kill -9 of clients whose memory is reached by $tiers',
  ({ tiers }) => {
    let daemon: DaemonProcess;
    let survivor: Survivor;

    beforeAll(async () => {
      daemon = await DaemonProcess.start({ memoryTiers: tiers as ('process_vm' | 'agent')[] });
      survivor = await Survivor.start(daemon.socketPath);
    }, 30_000);

    afterAll(async () => {
      await survivor.provider.close();
      await daemon.clean();
    });

    async function kill(delayMs: number, whenRunning: boolean): Promise<void> {
      const victim = startProgram('daemon-victim', daemon.socketPath, `${survivor.port}`);
      if (whenRunning) await printed(victim, 'running');
      await sleep(delayMs);
      const ended = once(victim, 'exit');
      victim.kill('SIGKILL');
      const [, signal] = await ended;
      expect(signal).toBe('SIGKILL');
    }

    it('leaves no object, no mapping, no file and no descriptor behind', async () => {
      // The first connection makes the survivor open what it then keeps.
      await kill(0, true);
      await expect.poll(() => survivor.open, { timeout: 5_000 }).toBe(0);
      const before = await daemon.footprint();
      for (let round = 0; round < KILLS; round++) {
        // From its first steps to the middle of transfers.
        const early = round % 3 === 0;
        await kill(early ? 60 + round * 6 : (round * 7) % 40, !early);
        expect(await daemon.settled(before), `after kill ${round + 1}`).toEqual(before);
      }
      expect(survivor.accepted).toBeGreaterThanOrEqual((KILLS * 2) / 3);
      await expect.poll(() => survivor.open, { timeout: 5_000 }).toBe(0);
      const { clients } = await daemon.status();
      expect(clients.map(({ usage }) => usage.objects)).toEqual([
        expect.objectContaining({ context: 1, pd: 1, id: 1, qp: 0, cq: 0, mr: 0, buffer: 0 }),
      ]);
    }, 120_000);
  },
);
