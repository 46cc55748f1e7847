/** What a device is configured with: its name, its addresses, its limits and how it speaks. */
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { canonicalAddress, isWildcard } from '../cm/address.ts';
import type { WireDefaults } from '../cm/cm-types.ts';
import type { DeviceProfile } from '../rnic/device-profile.ts';

/** One emulated RNIC of a host. */
export interface DeviceConfig {
  /** As `ibv_get_device_name` shows it: letters, digits, `_`, `-`, `.`; at most 63. */
  readonly name: string;
  /** Addresses that it answers for; empty: every address of the host that no other device has. */
  readonly addresses: readonly string[];
  readonly profile?: Partial<DeviceProfile>;
  readonly wire?: Partial<WireDefaults>;
}

/** A host without configuration has one device for all of its addresses. */
export const DEFAULT_DEVICE: DeviceConfig = { name: 'iwarp0', addresses: [] };

/**
 * How devices speak unless told otherwise. Revision 2 with CRC and without markers is what every
 * known peer understands; siw refuses markers. The peer-to-peer model lets a responder send first:
 * by RFC 5044 §7.1.2 rule 4 it otherwise waits for the initiator's first FPDU, for ever if the
 * programs have it the other way round. A zero-length Write or Read serves as RTR, since a Send
 * would consume a receive.
 */
export const WIRE_DEFAULTS: WireDefaults = {
  mpaRevision: 2,
  enhancedSupported: true,
  crcRequested: true,
  markersRequested: false,
  peerToPeer: true,
  rtrKinds: { send: false, write: true, read: true },
  fpduSize: { kind: 'emss' },
  // siw fails a good CRC that a segment boundary cuts, and nobody can tell siw from other peers.
  segmentAligned: true,
  // MPA-7.1.2-18: RFC 5044 gives no value. siw waits 5 s for a Request and 10 s for a Reply.
  startupTimeoutMicros: 10_000_000,
  // A peer whose program is slow to close is no fault; one that never closes must not hold a socket.
  closeTimeoutMicros: 10_000_000,
  // siw is deaf for microseconds; a busy machine, or an emulated one, stretches them. Programs whose
  // first message is answered sooner never see this.
  nudgeDelayMicros: 100_000,
};

/** Devices of one host: a name is a small identifier, and this many are more than any test needs. */
export const DEVICES_MAX = 256;

/**
 * The configurations with canonical addresses. Throws `VerbsError` EINVAL for a bad or double name,
 * a bad, wildcard or double address, or more than one device for all addresses.
 */
export function checkedDevices(configs: readonly DeviceConfig[]): readonly DeviceConfig[] {
  if (configs.length === 0 || configs.length > DEVICES_MAX) {
    throw new VerbsError('EINVAL', `a host has 1 to ${DEVICES_MAX} devices`);
  }
  const names = new Set<string>();
  const taken = new Set<string>();
  return configs.map((config) => {
    const { name } = config;
    if (!/^[\w.-]{1,63}$/.test(name)) throw new VerbsError('EINVAL', `bad device name '${name}'`);
    if (names.has(name)) throw new VerbsError('EINVAL', `two devices are called ${name}`);
    names.add(name);
    const addresses = config.addresses.map((text) => deviceAddress(name, text));
    for (const address of addresses.length === 0 ? ['every address'] : addresses) {
      if (taken.has(address)) throw new VerbsError('EINVAL', `two devices answer for ${address}`);
      taken.add(address);
    }
    return { ...config, addresses };
  });
}

/** Parses `NAME` or `NAME=ADDRESS[,ADDRESS]`. Throws `VerbsError` EINVAL. */
export function parseDevice(text: string): DeviceConfig {
  const at = text.indexOf('=');
  const config = at < 0 ? { name: text, addresses: [] } : withAddresses(text, at);
  const [checked] = checkedDevices([config]);
  return checked ?? config;
}

function withAddresses(text: string, at: number): DeviceConfig {
  return { name: text.slice(0, at), addresses: text.slice(at + 1).split(',') };
}

function deviceAddress(name: string, text: string): string {
  const address = canonicalAddress(text.trim());
  if (address === undefined || isWildcard(address)) {
    throw new VerbsError('EINVAL', `device ${name}: '${text}' is no address of a host`);
  }
  return address;
}
