/** Configuration of a device: name, addresses, limits and wire options. */
import { addressFamily, canonicalAddress, isWildcard } from '#base/address';
import type { Loopback } from '#contract/protocol/ipc-admin';
import { type DeviceTransport, lowerLayerText } from '#contract/verbs/attributes';
import { invalid } from '#contract/verbs/errors';
import type { WireDefaults } from '../iwarp/cm/cm-types.ts';
import type { DeviceProfile } from '../rnic/device-profile.ts';
import { DEVICE_KINDS, deviceKind } from './device-kinds.ts';
import type { Rail } from './rails.ts';
import type { KindChoice } from './stream-carrier.ts';

/** Protocols that a device may speak. */
export const DEVICE_TRANSPORTS = ['iwarp', 'roce'] as const satisfies readonly DeviceTransport[];

/** Spelling in messages. */
const TRANSPORT_NAMES: Readonly<Record<DeviceTransport, string>> = { iwarp: 'iWARP', roce: 'RoCE' };

/** One emulated RNIC of a host. */
export interface DeviceConfig extends KindChoice {
  /** As `ibv_get_device_name` shows it: letters, digits, `_`, `-`, `.`; at most 63. */
  readonly name: string;
  /** Addresses of the device; empty: every address of the host that no other device has. */
  readonly addresses: readonly string[];
  /** Limits of the device. Default: those of a large adapter. */
  readonly profile?: Partial<DeviceProfile>;
  /** Wire options of an iWARP device that differ from the defaults. */
  readonly wire?: Partial<WireDefaults>;
  /** For a RoCE device that is a PCI function of its own. */
  readonly rail?: Rail;
}

/** Without configuration, a host has one device for all its addresses. */
export const DEFAULT_DEVICE: DeviceConfig = { name: 'iwarp0', addresses: [] };

/**
 * Devices of a daemon without configuration. Programs that do not name a device take the first one. Those
 * that connect by rdma_cm get the iWARP device of their address in any order, so the first place is for the
 * others, which need RoCE.
 */
export const DEFAULT_DEVICES: readonly DeviceConfig[] = [
  { name: 'roce0', addresses: [], transport: 'roce' },
  DEFAULT_DEVICE,
];

/**
 * Wire defaults of devices. Every known peer understands revision 2 with CRC and without markers; siw rejects
 * markers. The peer-to-peer model allows a responder to send first. Without it, RFC 5044 §7.1.2 rule 4 makes
 * the responder wait for the initiator's first FPDU, indefinitely if the programs expect the opposite. A
 * zero-length Write or Read serves as RTR, since a Send would consume a receive.
 */
export const WIRE_DEFAULTS: WireDefaults = {
  mpaRevision: 2,
  enhancedSupported: true,
  crcRequested: true,
  markersRequested: false,
  peerToPeer: true,
  rtrKinds: { send: false, write: true, read: true },
  fpduSize: { kind: 'emss' },
  // siw rejects a valid CRC that spans a segment boundary, and siw cannot be told apart from other peers.
  segmentAligned: true,
  // MPA-7.1.2-18: RFC 5044 gives no value. siw waits 5 s for a Request and 10 s for a Reply.
  startupTimeoutMicros: 10_000_000,
  // A program may be slow to close, but must not hold a socket forever.
  closeTimeoutMicros: 10_000_000,
  // siw ignores input for microseconds, longer on a busy or emulated machine. Programs whose first message is
  // answered sooner never notice.
  nudgeDelayMicros: 100_000,
  // A vanished peer is detected after two minutes: long enough for a switch to restart, and short for a queue
  // pair that would otherwise stay in RTS. Linux's own default of two hours dates from 1989.
  keepaliveIdleMicros: 60_000_000,
  keepaliveIntervalMicros: 10_000_000,
  keepaliveProbes: 6,
};

/** Devices of one host. The limit keeps names small identifiers, and is more than any test needs. */
export const DEVICES_MAX = 256;
/** Unmodified programs find no more: Linux has numbers of device nodes for this many. */
export const SHOWN_DEVICES_MAX = 64;

/**
 * The configurations with canonical addresses. Throws `VerbsError` EINVAL for a bad or duplicate
 * name, a bad or wildcard address, wire options or a lower layer of a RoCE device, a device of SCTP
 * without addresses, or, within one transport, a duplicate address or more than one device for all
 * addresses.
 */
export function checkedDevices(configs: readonly DeviceConfig[]): readonly DeviceConfig[] {
  if (configs.length === 0 || configs.length > DEVICES_MAX) {
    throw invalid(`a host has 1 to ${DEVICES_MAX} devices`);
  }
  const names = new Set<string>();
  const taken = new Set<string>();
  return configs.map((config) => {
    const { name } = config;
    if (canonicalAddress(name) !== undefined) {
      throw invalid(`'${name}' is an address, not a name; write NAME=${name}`);
    }
    if (!/^[\w.-]{1,63}$/.test(name))
      throw invalid(`bad device name '${name}': use 1 to 63 letters, digits, or any of . _ -`);
    if (names.has(name)) throw invalid(`two devices are called ${name}`);
    names.add(name);
    if (config.transport === 'roce' && Object.keys(config.wire ?? {}).length > 0) {
      const advice = 'only iWARP devices have them';
      throw invalid(`device ${name}: RoCE has no such wire options; ${advice}`);
    }
    checkLowerLayer(config);
    const addresses = config.addresses.map((text) => deviceAddress(name, text));
    for (const address of addresses.length === 0 ? [undefined] : addresses) {
      // Devices of different transports may share addresses: their ports belong to different protocols.
      const transport = config.transport ?? 'iwarp';
      // The GIDs of link-local addresses carry no zone.
      const place = transport === 'roce' ? address?.split('%', 1)[0] : address;
      const key = `${transport} ${place ?? '*'}`;
      if (taken.has(key)) {
        throw invalid(`two ${TRANSPORT_NAMES[transport]} devices ${claim(place)}`);
      }
      taken.add(key);
    }
    return { ...config, addresses };
  });
}

/**
 * For a RoCE device for every address: the addresses that other devices name. The connection manager of iWARP
 * finds the device of an address itself.
 */
export function namedByOthers(
  { transport, addresses }: DeviceConfig,
  all: readonly DeviceConfig[],
): readonly string[] {
  if (transport !== 'roce' || addresses.length > 0) return [];
  return all.filter((each) => each.transport === 'roce').flatMap((each) => each.addresses);
}

function checkLowerLayer(config: DeviceConfig): void {
  const { name, transport, lowerLayer, sctpTransport, addresses } = config;
  if (lowerLayer !== undefined && transport === 'roce') {
    throw invalid(`device ${name}: only iWARP devices have a lower layer`);
  }
  if (sctpTransport !== undefined && lowerLayer !== 'sctp') {
    const advice = 'give it lowerLayer "sctp"';
    throw invalid(`device ${name}: sctpTransport is for SCTP; ${advice}`);
  }
  const kind = deviceKind(config);
  const layer = lowerLayerText(lowerLayer ?? 'tcp');
  if (kind === undefined) throw invalid(`device ${name}: no kind of device is iWARP over ${layer}`);
  if (kind.needsAddresses === true && addresses.length === 0) {
    const advice = `write ${name}=${kind.name}:ADDRESS`;
    throw invalid(`device ${name}: a device of ${layer} needs addresses; ${advice}`);
  }
}

/**
 * Throws `VerbsError` EINVAL for features that an isolated network lacks: the kernel's SCTP, and TCP packets
 * on loopback.
 */
export function checkIsolated(devices: readonly DeviceConfig[], loopback: Loopback): void {
  const advice = 'use network "host" (--network host)';
  for (const device of devices) {
    const obstacle = deviceKind(device)?.notIsolated;
    if (obstacle === undefined) continue;
    throw invalid(`device ${device.name}: ${obstacle}; ${advice}`);
  }
  if (loopback === 'tcp') {
    throw invalid(`loopback tcp: an isolated network has no packets; ${advice}`);
  }
}

function claim(address: string | undefined): string {
  return address === undefined
    ? 'serve every address; give one of them addresses'
    : `have the address ${address}`;
}

/**
 * Parses `NAME` or `NAME=[KIND:]ADDRESS[,ADDRESS]`, where the kind is `iwarp`, the default, `sctp`,
 * `kernel-sctp` or `kernel-sctp-udp` (iWARP over SCTP) or `roce`; a kind without addresses serves all
 * of them, except for SCTP.
 * Throws `VerbsError` EINVAL.
 */
export function parseDevice(text: string): DeviceConfig {
  const at = text.indexOf('=');
  const config = at < 0 ? { name: text, addresses: [] } : withAddresses(text, at);
  const [checked] = checkedDevices([config]);
  return checked ?? config;
}

/** Text before the colon of a kind. No IPv6 address has its letters and digits there. */
const KIND = /^(?=[\w.-]*[g-zG-Z_.-])([A-Za-z][\w.-]*)(:.*)?$/;

function withAddresses(text: string, at: number): DeviceConfig {
  const name = text.slice(0, at);
  const value = text.slice(at + 1);
  const [, kind, rest] = KIND.exec(value) ?? [];
  if (kind === undefined) return { name, addresses: value.split(',') };
  const known = DEVICE_KINDS.find((each) => each.name === kind);
  if (known === undefined) throw invalid(unknownKind(name, kind, rest));
  if (rest === undefined) return { name, addresses: [], ...known.choice };
  if (rest === ':') {
    const advice =
      known.needsAddresses === true
        ? `write ${name}=${kind}:ADDRESS`
        : `write ${name}=${kind} to serve all addresses`;
    throw invalid(`device ${name}: no address after '${kind}:'; ${advice}`);
  }
  return { name, addresses: rest.slice(1).split(','), ...known.choice };
}

function unknownKind(name: string, kind: string, rest: string | undefined): string {
  if (rest === undefined) return notAnAddress(name, kind);
  const names = [...DEVICE_KINDS.map((known) => known.name), 'native'];
  const kinds = names.map((known) => `${known}:`).join(', ');
  return `device ${name}: no kind of device is called '${kind}:'; there are ${kinds}`;
}

function notAnAddress(name: string, text: string): string {
  return `device ${name}: '${text}' is not an IP address`;
}

/** False for multicast, and for IPv4's experimental addresses and its broadcast. */
function isUnicast(address: string): boolean {
  return addressFamily(address) === 4 ? Number.parseInt(address, 10) < 224 : !/^ff/.test(address);
}

function deviceAddress(name: string, text: string): string {
  const address = canonicalAddress(text.trim());
  if (address === undefined) throw invalid(notAnAddress(name, text));
  if (isWildcard(address)) {
    const advice = 'name the device without addresses to serve all of them';
    throw invalid(`device ${name}: '${text}' is a wildcard; ${advice}`);
  }
  if (!isUnicast(address)) {
    throw invalid(`device ${name}: '${text}' is no address of one host; name a unicast address`);
  }
  return address;
}
