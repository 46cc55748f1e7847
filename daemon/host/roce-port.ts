/** The port of a RoCE device: its GIDs, and who it reaches. */
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import type { IBPort, ProgramWire } from '../rnic/ib-port.ts';
import type { PortAddresses } from '../rnic/qp-attributes.ts';
import type { QP } from '../rnic/queue-pair.ts';
import { type GidSource, gidTable } from './gid-table.ts';
import { hostAddresses } from './host-addresses.ts';

const GID_BYTES = 16;

/** See the module's comment. */
export class RocePort implements IBPort<QP>, PortAddresses {
  readonly addresses: PortAddresses = this;
  readonly #device: GidSource;
  readonly #peers: () => readonly (RocePort | undefined)[];

  /** `peers` are the ports of the devices that this one reaches, itself among them. */
  constructor(device: GidSource, peers: () => readonly (RocePort | undefined)[]) {
    this.#device = device;
    this.#peers = peers;
  }

  /** See `PortAddresses`. */
  gid(index: number): Uint8Array | undefined {
    return this.#gids()[index];
  }

  /** See `PortAddresses`. */
  reachable(dgid: Uint8Array): boolean {
    return this.peer(dgid) !== undefined;
  }

  /** The port that has this GID, among those reached. */
  peer(dgid: Uint8Array): RocePort | undefined {
    return this.#peers().find((port) => port?.has(dgid) === true);
  }

  /** See `IBPort`. */
  makeWire(): ProgramWire {
    throw new VerbsError('EOPNOTSUPP', 'the device has no wire');
  }

  /** True for a GID of this port. */
  has(gid: Uint8Array): boolean {
    return this.#gids().some((own) => own !== undefined && sameBytes(own, gid));
  }

  #gids(): (Uint8Array | undefined)[] {
    return gidTable(this.#device, hostAddresses()).map(({ gid, interfaceName }) => {
      return interfaceName === undefined ? undefined : bytesOfGid(gid);
    });
  }
}

function bytesOfGid(text: string): Uint8Array {
  const digits = text.replaceAll(':', '');
  return Uint8Array.from({ length: GID_BYTES }, (_, index) => {
    return Number.parseInt(digits.slice(2 * index, 2 * index + 2), 16);
  });
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
