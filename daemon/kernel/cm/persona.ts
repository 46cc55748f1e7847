/**
 * How connections of one transport look to programs: the commands whose effect depends on the
 * transport, and the content of events. An id has a persona once an address has determined its device.
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

interface CmOutcome {
  /** 0, a negative errno, or the peer's reason. */
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
  /** The attributes with which librdmacm moves the queue pair of an id to a state. */
  qpAttributes(call: CmCall, state: QPState): QPModification;
  /** The path of an id, if its transport has paths and it is known. */
  path(id: HostId): PathRecord | undefined;
  /** The address vector of a group, for an id that may join groups. */
  groupVector(call: CmCall, gid: Uint8Array): AddressVector;
  /** The content of an event, besides its type. */
  outcome(event: HostCmEvent): CmOutcome;
}
