/** Simulated SCTP: the ports of simulated hosts, and associations between them. */
import { NetworkError } from '#daemon/host/links/network';
import type {
  Association,
  AssociationAttempt,
  SctpAddress,
  SctpPort,
  SctpPortOptions,
  SctpTransport,
} from '#daemon/host/sctp/association';
import type { Prng } from '#test/support/prng';
import type { VirtualTime } from '#test/support/virtual-time';
import { type MessagePath, type MessageTraits, SimAssociation } from './sim-association.ts';

const FIRST_FREE_PORT = 49_152;

/** All ports of a simulation. */
export class MessageNetwork implements SctpTransport {
  readonly time: VirtualTime;
  readonly prng: Prng;
  /** Draws the traits of the next path. */
  readonly traits: () => MessageTraits;
  /** Ends of associations that are not over. */
  readonly ends = new Set<SimAssociation>();
  readonly #ports = new Map<string, SimSctpPort>();
  #nextPort = FIRST_FREE_PORT;

  constructor(time: VirtualTime, prng: Prng, traits: () => MessageTraits) {
    this.time = time;
    this.prng = prng;
    this.traits = traits;
  }

  hold(local: SctpAddress, options: SctpPortOptions): SimSctpPort {
    const { address } = local;
    const port = local.port === 0 ? this.#nextPort++ : local.port;
    const key = keyOf({ address, port });
    if (this.#ports.has(key)) throw new NetworkError('EADDRINUSE', `${key} is in use`);
    const held = new SimSctpPort(this, { address, port }, options, () => this.#ports.delete(key));
    this.#ports.set(key, held);
    return held;
  }

  portAt(address: SctpAddress): SimSctpPort | undefined {
    return this.#ports.get(keyOf(address));
  }

  /** Ports in use at one of the addresses. */
  portsOf(addresses: readonly string[]): readonly string[] {
    const held = [...this.#ports].filter(([, { address }]) => addresses.includes(address));
    return held.map(([key]) => key);
  }
}

function keyOf({ address, port }: SctpAddress): string {
  return `${address}:${port}`;
}

/** A port of `MessageNetwork`. */
class SimSctpPort implements SctpPort {
  readonly address: string;
  readonly port: number;
  readonly options: SctpPortOptions;
  readonly #network: MessageNetwork;
  readonly #onReleased: () => void;
  #onAssociation: ((association: SimAssociation) => void) | undefined = undefined;
  #released = false;

  constructor(
    network: MessageNetwork,
    local: SctpAddress,
    options: SctpPortOptions,
    onReleased: () => void,
  ) {
    this.address = local.address;
    this.port = local.port;
    this.options = options;
    this.#network = network;
    this.#onReleased = onReleased;
  }

  listen(onAssociation: (association: Association) => void): void {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    this.#onAssociation = onAssociation;
  }

  open(
    remote: SctpAddress,
    onOpen: (association: SimAssociation) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt {
    if (this.#released) throw new NetworkError('EINVAL', 'the port was released');
    const { time, prng, traits } = this.#network;
    const path: MessagePath = { time, prng, traits: traits(), vanished: false };
    const later = (then: () => void): void => {
      time.after(prng.between(path.traits.delayMin, path.traits.delayMax), then);
    };
    let wanted = true;
    let ours: SimAssociation | undefined;
    const fail = (code: string, text: string): void => {
      later(() => {
        if (wanted) onFailed(code, text);
      });
    };
    later(() => {
      if (!wanted) return;
      const peer = this.#network.portAt(remote);
      const deliver = peer === undefined ? undefined : peer.#onAssociation;
      if (peer === undefined || deliver === undefined) fail('ECONNREFUSED', 'no listener');
      else if (peer.options.adaptation !== this.options.adaptation) {
        fail('EPROTO', `the peer's adaptation indication is ${peer.options.adaptation}`);
      } else {
        const [own, theirs] = this.#join(path, peer);
        ours = own;
        deliver(theirs);
        theirs.open();
        // The peer may be quick, and send or end before the handshake is over here.
        later(() => {
          if (!wanted) return;
          if (own.gone) onFailed('ECONNREFUSED', 'the peer sent an ABORT');
          else {
            onOpen(own);
            own.open();
          }
        });
      }
    });
    return {
      cancel: () => {
        wanted = false;
        ours?.abort();
      },
    };
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#onAssociation = undefined;
    this.#onReleased();
  }

  /** Two joined ends: this port's, and the peer's. */
  #join(path: MessagePath, peer: SimSctpPort): readonly [SimAssociation, SimAssociation] {
    const streamCount = Math.min(this.options.streamCount, peer.options.streamCount);
    const { ends } = this.#network;
    const make = (local: SimSctpPort, remote: SimSctpPort): SimAssociation => {
      const [here, there] = [local, remote].map(({ address, port }) => ({ address, port }));
      const agreed = { peerAdaptation: remote.options.adaptation, streamCount };
      const both = { local: here as SctpAddress, remote: there as SctpAddress };
      const end = new SimAssociation(path, both, agreed, (gone) => ends.delete(gone));
      ends.add(end);
      return end;
    };
    const [own, theirs] = [make(this, peer), make(peer, this)];
    SimAssociation.join(own, theirs);
    return [own, theirs];
  }
}
