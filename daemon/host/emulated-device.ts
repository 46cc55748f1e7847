/** One device of a host: its NIC and its attributes. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { assert } from '#base/assert';
import type { Random32 } from '#base/random';
import type {
  DeviceAttributes,
  DeviceInfo,
  DeviceTransport,
  PortAttributes,
} from '#contract/verbs/attributes';
import type { WROpcode } from '#contract/verbs/enums';
import type { CmDevice } from '../iwarp/cm/cm-types.ts';
import { Nic } from '../rnic/nic.ts';
import { type DeviceConfig, WIRE_DEFAULTS } from './device-config.ts';
import type { DeviceKind } from './device-kind.ts';
import { deviceKind } from './device-kinds.ts';
import type { Rail } from './rails.ts';
import { hwCounters, linkCounters, portCounters } from './roce/roce-counters.ts';
import { type PortHost, RocePort } from './roce/roce-port.ts';
import { RoceVerbs } from './roce/roce-verbs.ts';
import type { ServedDevice } from './served-device.ts';

/** Reported as firmware version; the version of the package. */
const FIRMWARE_VERSION = '0.1.0';
/** Of devices that are no rails. The vendor is 'iwd' in ASCII: not assigned by the IEEE. */
const OWN_IDENTITY = { firmware: FIRMWARE_VERSION, vendorId: 0x697764, vendorPartId: 1 };
/** `ibv_mtu` ends at 4096; iWARP segments by TCP's EMSS instead. */
const MTU_BYTES = 4096;
/** A message's offsets are 32 bits wide (RFC 5041 §4.3); half of that keeps lengths positive. */
const MESSAGE_MAX_BYTES = 0x7fffffff;

export class EmulatedDevice implements ServedDevice {
  readonly name: string;
  readonly transport: DeviceTransport;
  readonly info: DeviceInfo;
  readonly nic: Nic;
  readonly unsupported: readonly WROpcode[] = [];
  readonly processObstacle = undefined;
  readonly receivesNeedDoorbell = false;
  #portDown = false;
  /** The device as the connection manager sees it. */
  readonly cmDevice: CmDevice;
  readonly kind: DeviceKind;
  readonly rail: Rail | undefined;

  /** For a RoCE device for every address: the addresses that other RoCE devices name. */
  readonly others: readonly string[];
  /** Undefined for a device whose queue pairs the connection manager connects. */
  readonly rocePort: RocePort | undefined;
  readonly roce: RoceVerbs | undefined;

  /**
   * `random` chooses STags, which a peer must not guess (RFC 5040 §8.1.1). A RoCE device needs
   * `host`.
   */
  constructor(
    config: DeviceConfig,
    random: Random32,
    host?: PortHost,
    others: readonly string[] = [],
  ) {
    this.name = config.name;
    this.others = others;
    this.transport = config.transport ?? 'iwarp';
    const { profile, lowerLayer = 'tcp' } = config;
    const kind = deviceKind(config);
    assert(kind !== undefined, 'device of an unknown kind');
    this.kind = kind;
    this.rail = config.rail;
    this.info = {
      name: config.name,
      backend: 'emulated',
      transport: this.transport,
      ...(lowerLayer === 'tcp' ? {} : { lowerLayer }),
      nodeGuid: nodeGuid(config),
      addresses: config.addresses,
    };
    const isRoce = this.transport === 'roce';
    const source = { ...this.info, others, shownInterface: config.rail?.interfaceName };
    this.rocePort = isRoce && host ? new RocePort(source, host) : undefined;
    this.nic = new Nic({
      name: config.name,
      seed: random(),
      random,
      profile: { ...kind.profile, ...profile },
      ...(this.rocePort === undefined ? {} : { ib: this.rocePort }),
    });
    this.roce =
      host && this.rocePort && new RoceVerbs(this.rocePort, this.nic, () => host.multicastGroups);
    this.cmDevice = {
      name: config.name,
      addresses: config.addresses,
      irdMax: this.nic.profile.irdMax,
      ordMax: this.nic.profile.ordMax,
      lowerLayer,
      wire: { ...WIRE_DEFAULTS, ...config.wire, ...kind.wire },
    };
  }

  /** The port has no carrier (injected fault). */
  get portDown(): boolean {
    return this.#portDown;
  }

  set portDown(down: boolean) {
    this.#portDown = down;
    if (this.rocePort !== undefined) this.rocePort.down = down;
  }

  attributes(): DeviceAttributes {
    const { firmware, vendorId, vendorPartId } = this.rail?.identity ?? OWN_IDENTITY;
    return {
      ...this.nic.queryDevice(),
      fwVer: firmware,
      nodeGuid: this.info.nodeGuid,
      vendorId,
      vendorPartId,
      hwVer: 0,
      physPortCnt: 1,
    };
  }

  bufferAddress(_bytes: Uint8Array, proposed: number): number {
    return proposed;
  }

  get hwCounters(): Readonly<Record<string, number>> | undefined {
    return this.rocePort && hwCounters(this.rocePort.counters, this.nic.counters);
  }

  get portCounters(): Readonly<Record<string, number>> | undefined {
    if (this.rail === undefined || this.rocePort === undefined) return undefined;
    return portCounters(this.rocePort.counters, this.nic.counters);
  }

  get linkCounters(): Readonly<Record<string, number>> | undefined {
    return this.rocePort && linkCounters(this.rocePort.counters);
  }

  port(): PortAttributes {
    const guid = this.info.nodeGuid;
    return {
      state: this.portDown ? 'down' : 'active',
      maxMtuBytes: MTU_BYTES,
      activeMtuBytes: this.rocePort?.activeMtuBytes ?? MTU_BYTES,
      maxMessageBytes: MESSAGE_MAX_BYTES,
      gid: `fe80:0000:0000:0000:${guid.replace(/(.{4})(?!$)/g, '$1:')}`,
      linkLayer: 'Ethernet',
    };
  }
}

/**
 * 16 hex digits: stable for a device of a host, different between hosts, never zero. Hosts with the same name
 * differ by machine id, and containers of one image by name.
 */
export function nodeGuid(
  config: Pick<DeviceConfig, 'name' | 'addresses'>,
  host: HostIdentity = hostIdentity(),
): string {
  const seed = [host.machineId, host.name, config.name, ...config.addresses].join('\n');
  // The second-lowest bit of the first byte marks a locally administered identifier (IEEE 802).
  return `02${createHash('sha256').update(seed).digest('hex').slice(0, 14)}`;
}

/** Distinguishes this host from others. */
interface HostIdentity {
  /** See machine-id(5); empty if there is none. */
  readonly machineId: string;
  readonly name: string;
}

let known: HostIdentity | undefined;

function hostIdentity(): HostIdentity {
  known ??= { machineId: readMachineId(), name: hostname() };
  return known;
}

function readMachineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return '';
  }
}
