/** Facts about a kind of devices; `device-kinds.ts` lists the kinds. */
import type { FaultTarget } from '#contract/protocol/faults';
import type { WireDefaults } from '../iwarp/cm/cm-types.ts';
import type { DeviceProfile } from '../rnic/device-profile.ts';
import type { CarrierModule, KindChoice } from './stream-carrier.ts';

export interface DeviceKind {
  /** As `--device NAME=KIND:ADDRESS` names it. */
  readonly name: string;
  readonly choice: KindChoice;
  /** A device of this kind serves the addresses that it lists, never all. */
  readonly needsAddresses?: boolean;
  /** Limits other than those of a large adapter. */
  readonly profile?: Partial<DeviceProfile>;
  /** Wire options that all its devices have. */
  readonly wire?: Partial<WireDefaults>;
  /** Why it cannot be on an isolated network. */
  readonly notIsolated?: string;
  readonly faultTargets: readonly FaultTarget[];
  /**
   * Why its devices lack a target: which devices have it, and why `device`, or all of this kind, do
   * not. Continues "KIND acts on". Undefined if the transport is the reason.
   */
  readonly lacks?: (target: FaultTarget, device: string | undefined) => string | undefined;
  /** Loads the carrier of its streams. Undefined for TCP, which every host has, and for RoCE. */
  readonly load?: () => Promise<CarrierModule>;
}
