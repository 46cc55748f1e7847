/** Parsers of option values. Each throws an `InvalidArgumentError` that names the valid values. */
import { isIP } from 'node:net';
import { InvalidArgumentError } from 'commander';
import type { WireOptions } from '#contract/verbs/provider';
import { failureText } from '../console/failure.ts';
import { checkedDevices, type DeviceConfig, parseDevice } from '../host/device-config.ts';
import type { WireDefaults } from '../iwarp/cm/cm-types.ts';
import type { FpduSizePolicy } from '../iwarp/engine/stream-api.ts';
import { MULPDU_MIN_BYTES, ULPDU_SEND_MAX_BYTES } from '../iwarp/wire/fpdu.ts';
import {
  checkedNativeDevices,
  type NativeDeviceConfig,
  parseNativeDevice,
} from '../native/native-config.ts';

/** A parser of whole numbers in decimal from `min` to `max`. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) {
      throw new InvalidArgumentError(
        max === Number.MAX_SAFE_INTEGER
          ? `must be a whole number, ${min} or more`
          : `must be a whole number from ${min} to ${max}`,
      );
    }
    return value;
  };
}

const UNIT_MS: Readonly<Partial<Record<string, number>>> = { ms: 1, s: 1000, m: 60_000 };

/** A parser of times with a unit, such as `7s`, of at most `maxMs`. Returns whole milliseconds. */
export function duration(maxMs: number): (text: string) => number {
  return (text) => {
    const [, count, unit = ''] = /^([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m)$/.exec(text) ?? [];
    const ms = Math.round(Number(count) * (UNIT_MS[unit] ?? Number.NaN));
    if (ms >= 1 && ms <= maxMs) return ms;
    throw new InvalidArgumentError(
      `must be a time of 1ms to ${maxMs / 60_000}m, with its unit: 7s, 200ms, 2m`,
    );
  };
}

/** A port, 1 to 65535. */
export const parsePort = wholeNumber(1, 65535);

/** A port to listen on, 0 to 65535. 0 means any free port. */
export const parseAnyPort = wholeNumber(0, 65535);

export function parseAddress(text: string): string {
  if (isIP(text) !== 0) return text;
  throw new InvalidArgumentError('must be an IPv4 or IPv6 address');
}

/** Queue pair numbers have 24 bits. */
const parseQpNumber = wholeNumber(1, 0xff_ffff);

/** Collects the values of a repeatable `--qp NUMBER`. */
export function collectQpNumber(text: string, earlier: readonly number[] | undefined): number[] {
  return [...(earlier ?? []), parseQpNumber(text)];
}

/** MPA revision, 1 or 2. */
export function parseMpaRevision(text: string): 1 | 2 {
  if (text === '1') return 1;
  if (text === '2') return 2;
  throw new InvalidArgumentError('must be 1 or 2');
}

/** `emss`, `large` or a ULPDU size in bytes that MPA allows a sender (RFC 5044 §3). */
export function parseFpduSize(text: string): 'emss' | 'large' | number {
  if (text === 'emss' || text === 'large') return text;
  if (!/^[0-9]+$/.test(text)) {
    throw new InvalidArgumentError('must be emss, large or a number of bytes');
  }
  return wholeNumber(MULPDU_MIN_BYTES, ULPDU_SEND_MAX_BYTES)(text);
}

/** An error's message without its code; it quotes the typed value. */
function reasonOf(error: unknown): string {
  return failureText(error).replace(/ \(E[A-Z]+\)$/, '');
}

/** A device of `--device`: emulated, or native. */
export type GivenDevice = DeviceConfig | NativeDeviceConfig;

export function isNative(device: GivenDevice): device is NativeDeviceConfig {
  return 'native' in device;
}

/**
 * Collects the values of a repeatable `--device NAME=[KIND:]ADDR[,ADDR]`. `NAME` and `NAME=KIND`
 * answer for every address, except for `sctp`; `NAME=native:DEVICE` is a native device. Rejects a name
 * or an address given twice.
 */
export function collectDevice(
  text: string,
  earlier: readonly GivenDevice[] | undefined,
): GivenDevice[] {
  const before = earlier ?? [];
  const emulated = before.filter((device): device is DeviceConfig => !isNative(device));
  const native = before.filter(isNative);
  try {
    const given = parseNativeDevice(text);
    const devices =
      given === undefined ? checkedDevices([...emulated, parseDevice(text)]) : emulated;
    const names = devices.map(({ name }) => name);
    const natives = given === undefined ? native : [...native, given];
    return [...devices, ...checkedNativeDevices(natives, names)];
  } catch (error) {
    throw new InvalidArgumentError(reasonOf(error));
  }
}

export interface HttpPlace {
  readonly address: string;
  readonly port: number;
}

/** `HOST:PORT`: an IPv4 address, an IPv6 address in brackets or localhost. Port 0 means any free port. */
export function parseHttpPlace(text: string): HttpPlace {
  const parts =
    /^(?:\[(?<bracketed>[0-9a-fA-F:.%a-z]+)\]|(?<plain>[^:[\]]+)):(?<port>[0-9]{1,5})$/.exec(text);
  const { bracketed, plain, port } = parts?.groups ?? {};
  const address = bracketed ?? plain;
  const known =
    address === 'localhost' || isIP(address ?? '') === (bracketed === undefined ? 4 : 6);
  if (address === undefined || !known || Number(port) > 65535) {
    throw new InvalidArgumentError(
      'must be HOST:PORT, for example 127.0.0.1:7470, [::1]:7470 or localhost:0',
    );
  }
  return { address, port: Number(port) };
}

/** The wire options as commander passes them; undefined if not given. */
export interface WireArguments {
  readonly mpaRevision?: 1 | 2;
  readonly crc?: boolean;
  readonly markers?: boolean;
  readonly peerToPeer?: boolean;
  readonly fpduSize?: 'emss' | 'large' | number;
}

/** The kernel's limit for TCP_KEEPIDLE. */
const KEEPALIVE_IDLE_MAX_SECONDS = 32_767;
/** The interval between two probes is a sixth of the idle time, but at most this. */
const KEEPALIVE_INTERVAL_MAX_SECONDS = 10;

/** `--keepalive`: whole seconds from 0 to the kernel's limit. */
export function parseKeepalive(text: string): number {
  const seconds = Number(text);
  if (!/^[0-9]{1,5}$/.test(text) || seconds > KEEPALIVE_IDLE_MAX_SECONDS) {
    throw new InvalidArgumentError(
      `must be 0 to ${KEEPALIVE_IDLE_MAX_SECONDS} seconds; 0 switches keepalive off`,
    );
  }
  return seconds;
}

/** The wire defaults that `--keepalive` sets. */
export function keepaliveDefaults(idleSeconds: number | undefined): Partial<WireDefaults> {
  if (idleSeconds === undefined) return {};
  const spacing = Math.max(1, Math.min(KEEPALIVE_INTERVAL_MAX_SECONDS, Math.ceil(idleSeconds / 6)));
  return {
    keepaliveIdleMicros: idleSeconds * 1_000_000,
    keepaliveIntervalMicros: spacing * 1_000_000,
  };
}

/** The wire options that were given; undefined if there are none. */
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

/** The wire options that were given, as defaults of a device. */
export function wireDefaults(given: WireArguments): Partial<WireDefaults> {
  const { mpaRevision, crc, markers, peerToPeer, fpduSize } = given;
  return {
    ...(mpaRevision === undefined ? {} : { mpaRevision }),
    ...(crc === undefined ? {} : { crcRequested: crc }),
    ...(markers === undefined ? {} : { markersRequested: markers }),
    ...(peerToPeer === undefined ? {} : { peerToPeer }),
    ...(fpduSize === undefined ? {} : { fpduSize: fpduSizePolicy(fpduSize) }),
  };
}

function fpduSizePolicy(size: 'emss' | 'large' | number): FpduSizePolicy {
  return typeof size === 'number' ? { kind: 'fixed', mulpduBytes: size } : { kind: size };
}

/** The warning that RFC 5044 §4.4 requires when CRCs are off; undefined when they are on. */
export function crcWarning(wire: WireOptions | undefined): string | undefined {
  if (wire?.crc !== false) return undefined;
  return 'without CRCs, corrupted data is placed unnoticed: TCP checksums miss some errors (RFC 5044 §4.4); both peers must agree';
}
