/** The other end of connections that lose their first end. */
import { Access, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { PD, Provider } from '#contract/verbs/provider';
import { type ConnectionRequest, type Listener, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';
import { encodeRegion, parseRegion, REGION_BYTES } from '../support/daemon-region.ts';

const ALL = Access.localWrite | Access.remoteWrite | Access.remoteRead;

/** Accepts connections and moves bytes both ways until they end. */
export class Survivor {
  readonly provider: Provider;
  readonly #listener: Listener;
  readonly #pd: PD;
  #open = 0;
  /** Connections that were established. */
  accepted = 0;

  private constructor(provider: Provider, listener: Listener, pd: PD) {
    this.provider = provider;
    this.#listener = listener;
    this.#pd = pd;
    void this.#serve();
  }

  /** Listens through the daemon at `socketPath`. */
  static async start(socketPath: string): Promise<Survivor> {
    const provider = await connectDaemon({ socketPath });
    const context = await provider.open();
    const listener = await listen(provider, { host: '127.0.0.1' });
    return new Survivor(provider, listener, await context.allocPD());
  }

  /** The port on which it listens. */
  get port(): number {
    return this.#listener.address.port;
  }

  /** Connections that have not ended yet. */
  get open(): number {
    return this.#open;
  }

  async #serve(): Promise<void> {
    for await (const request of this.#listener) void this.#hold(request);
  }

  /** Keeps a connection until its other end is lost. */
  async #hold(request: ConnectionRequest): Promise<void> {
    this.#open += 1;
    const target = parseRegion(request.privateData);
    const mr = await this.#pd.allocMR(REGION_BYTES, ALL);
    try {
      const connection = await request.accept({ pd: this.#pd, privateData: encodeRegion(mr) });
      this.accepted += 1;
      await Promise.all([connection.disconnected(), this.#transfer(connection, mr, target)]);
      await connection.close();
    } catch {
      // The victim died before the connection was established.
      await request.id.close();
    } finally {
      await mr.close();
      this.#open -= 1;
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
