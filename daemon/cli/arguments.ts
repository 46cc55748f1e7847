/** Parsers of option values. Each throws an `InvalidArgumentError` that says what is allowed. */
import { isIP } from 'node:net';
import { InvalidArgumentError } from 'commander';
import type { WireOptions } from '../../verbs-api/contract/provider.ts';

/** A device as the command line names it: no addresses means every address of the host. */
export interface DeviceArgument {
  readonly name: string;
  readonly addresses: readonly string[];
}

/** A parser of whole numbers in decimal from `min` to `max`. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) {
      throw new InvalidArgumentError(
        max === Number.MAX_SAFE_INTEGER
          ? `It has to be a whole number, ${min} or more.`
          : `It has to be a whole number from ${min} to ${max}.`,
      );
    }
    return value;
  };
}

/** A TCP port, 1 to 65535. */
export const parsePort = wholeNumber(1, 65535);

/** MPA revision, 1 or 2. */
export function parseMpaRevision(text: string): 1 | 2 {
  if (text === '1') return 1;
  if (text === '2') return 2;
  throw new InvalidArgumentError('It has to be 1 or 2.');
}

/** Smallest and largest FPDU size that a fixed policy takes, in octets. */
export const FPDU_SIZE_MIN_BYTES = 128;
export const FPDU_SIZE_MAX_BYTES = 65536;

/** `emss`, `large` or octets. */
export function parseFpduSize(text: string): 'emss' | 'large' | number {
  if (text === 'emss' || text === 'large') return text;
  if (!/^[0-9]+$/.test(text)) {
    throw new InvalidArgumentError('It has to be emss, large or a number of octets.');
  }
  return wholeNumber(FPDU_SIZE_MIN_BYTES, FPDU_SIZE_MAX_BYTES)(text);
}

/** One address, IPv4 or IPv6, in text form. */
export function parseAddress(text: string): string {
  if (isIP(text) === 0) throw new InvalidArgumentError('It has to be an IPv4 or IPv6 address.');
  return text;
}

/** `NAME=ADDR[,ADDR]`, or `NAME` alone for a device that answers for every address. */
export function parseDevice(text: string): DeviceArgument {
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  if (!/^[A-Za-z][A-Za-z0-9_.-]{0,62}$/.test(name)) {
    throw new InvalidArgumentError(
      'It has to be NAME=ADDR[,ADDR], the name of letters, digits, ".", "_" and "-".',
    );
  }
  if (equals < 0) return { name, addresses: [] };
  const addresses = text.slice(equals + 1).split(',');
  for (const address of addresses) {
    if (isIP(address) === 0) {
      throw new InvalidArgumentError(`"${address}" is not an IPv4 or IPv6 address.`);
    }
  }
  return { name, addresses };
}

/** Collects the values of a repeatable `--device`; a name or an address may stand once only. */
export function collectDevice(
  text: string,
  earlier: readonly DeviceArgument[] | undefined,
): DeviceArgument[] {
  const device = parseDevice(text);
  const devices = [...(earlier ?? []), device];
  const conflict = deviceConflict(devices);
  if (conflict !== undefined) throw new InvalidArgumentError(conflict);
  return devices;
}

/** Why these devices cannot be in one daemon, or undefined when they can. */
export function deviceConflict(devices: readonly DeviceArgument[]): string | undefined {
  const names = new Set<string>();
  const owners = new Map<string, string>();
  for (const device of devices) {
    if (names.has(device.name)) return `There are two devices named ${device.name}.`;
    names.add(device.name);
    for (const address of device.addresses.length === 0 ? ['every address'] : device.addresses) {
      const owner = owners.get(address);
      if (owner !== undefined) return `${owner} and ${device.name} both have ${address}.`;
      owners.set(address, device.name);
    }
  }
  return undefined;
}

/** The wire options as commander hands them over; each undefined when not given. */
export interface WireArguments {
  readonly mpaRevision?: 1 | 2;
  readonly crc?: boolean;
  readonly markers?: boolean;
  readonly peerToPeer?: boolean;
  readonly fpduSize?: 'emss' | 'large' | number;
}

/** Only what was given, or undefined when nothing was. */
export function wireOptions(given: WireArguments): WireOptions | undefined {
  const wire: WireOptions = {
    ...(given.mpaRevision === undefined ? {} : { mpaRevision: given.mpaRevision }),
    ...(given.crc === undefined ? {} : { crc: given.crc }),
    ...(given.markers === undefined ? {} : { markers: given.markers }),
    ...(given.peerToPeer === undefined ? {} : { peerToPeer: given.peerToPeer }),
    ...(given.fpduSize === undefined ? {} : { fpduSize: given.fpduSize }),
  };
  return Object.keys(wire).length === 0 ? undefined : wire;
}

/** What RFC 5044 §4.4 wants its reader to know, or undefined when CRCs stay on. */
export function crcWarning(wire: WireOptions | undefined): string | undefined {
  if (wire?.crc !== false) return undefined;
  return 'without CRCs, data that a network device or a bus corrupts is placed unnoticed: TCP checksums miss some errors (RFC 5044 §4.4); both ends have to agree';
}
