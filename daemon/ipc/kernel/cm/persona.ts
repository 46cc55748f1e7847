/**
 * How connections of one transport look to programs: what the commands do whose effect differs
 * between transports, and what events say. An id has a persona from the moment on at which an
 * address has decided its device.
 */
import type { QPState } from '#contract/verbs/enums';
import type { HostCm } from '#daemon/host/host-cm';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import type { AddressVector, QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { KernelDevice } from '../nldev/devices.ts';
import type { CmConnParam } from './abi.ts';
import type { EventParameters } from './event-record.ts';
import type { PathRecord } from './ib-layouts.ts';

/** A command on an id that has a device. */
export interface CmCall {
  readonly cm: HostCm;
  readonly id: HostId;
  readonly device: KernelDevice;
  /** The queue pair of the id's device with this number. EINVAL if there is none. */
  readonly expectQP: (qpn: number) => QP;
}

/** What an event says. */
interface CmOutcome {
  /** 0, a negative errno, or what the peer gave as the reason. */
  readonly status: number;
  readonly parameters: EventParameters;
}

/** Methods throw `VerbsError` with the kernel's errno. */
export interface CmPersona {
  connect(call: CmCall, parameters: CmConnParam): void;
  accept(call: CmCall, parameters: CmConnParam): void;
  reject(call: CmCall, privateData: Uint8Array, reason: number): void;
  disconnect(call: CmCall): void;
  /** The program has seen this event of the id's queue pair (`enum ib_event_type`). */
  notify(call: CmCall, event: number): void;
  /** How librdmacm must move the queue pair of an id to a state. */
  qpAttributes(call: CmCall, state: QPState): QPModification;
  /** The path of an id, if its transport has paths and it has one. */
  path(id: HostId): PathRecord | undefined;
  /** The address vector of a group, for an id that may join groups. */
  groupVector(call: CmCall, gid: Uint8Array): AddressVector;
  /** What an event says, besides its type. */
  outcome(event: HostCmEvent): CmOutcome;
}
