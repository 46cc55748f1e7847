/** A RoCE port as the packet network sees it. */
import type { CmPort } from '#daemon/roce/cm/cm-path';
import type { RoceCounters } from './roce-counters.ts';

export interface PacketPort {
  /** Name of its device. */
  readonly name: string;
  /** Own GID at `index`, 16 bytes; undefined for an empty entry. */
  gid(index: number): Uint8Array | undefined;
  /** All GIDs of the port; undefined for empty entries. */
  ownGids(): readonly (Uint8Array | undefined)[];
  /** True for a GID of this port. */
  has(gid: Uint8Array): boolean;
  /** The port of this host that has the GID; undefined if none does. */
  peer(dgid: Uint8Array): PacketPort | undefined;
  /** Without carrier, the port neither sends nor receives. */
  readonly down: boolean;
  readonly counters: RoceCounters;
}

/** A port with a general service interface. */
export interface ServicePort extends PacketPort, CmPort {
  peer(dgid: Uint8Array): ServicePort | undefined;
}
