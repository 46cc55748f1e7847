/** One native device as served to clients. */
import type { DeviceAttributes, DeviceInfo, PortAttributes } from '#contract/verbs/attributes';
import { WROpcode } from '#contract/verbs/enums';
import type { ServedDevice } from '../host/served-device.ts';
import { processObstacle, sharedAddress } from './bridged-memory.ts';
import { BridgedNic, type NicHost, servedLimits } from './bridged-nic.ts';
import type { LowerChannel, LowerDevice } from './lower.ts';

export interface BridgedDeviceInit {
  /** Its name for clients. */
  readonly name: string;
  readonly addresses: readonly string[];
  readonly node: string;
  readonly lower: LowerDevice;
}

export class BridgedDevice implements ServedDevice {
  readonly name: string;
  readonly info: DeviceInfo;
  readonly node: string;
  readonly nic: BridgedNic;
  readonly unsupported: readonly WROpcode[];
  readonly processObstacle: string;
  readonly receivesNeedDoorbell = true;
  readonly roce = undefined;
  readonly lower: LowerDevice;
  /** The channel of all its completion queues. */
  readonly channel: LowerChannel;
  readonly #limits: DeviceAttributes;

  /** Takes ownership of `lower`. */
  constructor(
    { name, addresses, node, lower }: BridgedDeviceInit,
    host: (device: BridgedDevice) => NicHost,
  ) {
    this.name = name;
    this.node = node;
    this.lower = lower;
    this.channel = lower.createCompChannel();
    this.#limits = servedLimits(lower.attributes);
    this.info = { name, backend: 'native', nodeGuid: lower.info.nodeGuid, addresses };
    this.unsupported = unsupportedOperations(lower);
    this.processObstacle = processObstacle(name);
    this.nic = new BridgedNic(name, lower, this.channel, this.#limits, host(this));
  }

  attributes(): DeviceAttributes {
    return this.#limits;
  }

  port(): PortAttributes {
    return this.lower.queryPort(1);
  }

  /** Clients use this process's addresses: not every native device supports others. */
  bufferAddress(bytes: Uint8Array): number {
    return sharedAddress(bytes);
  }
}

function unsupportedOperations({ attributes, traits }: LowerDevice): WROpcode[] {
  const { sendWithImm, rdmaWriteWithImm, immediate, bindMW } = WROpcode;
  const lacking: WROpcode[] = [sendWithImm, rdmaWriteWithImm, immediate, bindMW];
  if (!attributes.atomics) lacking.push(WROpcode.atomicCmpAndSwap, WROpcode.atomicFetchAndAdd);
  if (!traits.localInvalidate) lacking.push(WROpcode.localInv);
  return lacking;
}
