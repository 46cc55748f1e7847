/** Configuration of native devices: which ones to serve, and under which names. */
import { canonicalAddress, isWildcard } from '#base/address';
import { invalid } from '#contract/verbs/errors';

export interface NativeDeviceConfig {
  /** Name for clients: letters, digits, `_`, `-`, `.`; at most 63. */
  readonly name: string;
  /** Name in the RDMA subsystem (`ibv_devices`). */
  readonly native: string;
  /** Its addresses; empty: those of its network interface. */
  readonly addresses: readonly string[];
}

/** The prefix between `=` and the device's name on a command line. */
const NATIVE_PREFIX = 'native:';

/**
 * Parses `NAME=native:DEVICE[,ADDRESS…]`; undefined for anything but a native device. Throws
 * `VerbsError` EINVAL.
 */
export function parseNativeDevice(text: string): NativeDeviceConfig | undefined {
  const at = text.indexOf('=');
  if (at < 0 || !text.startsWith(NATIVE_PREFIX, at + 1)) return undefined;
  const [native = '', ...addresses] = text.slice(at + 1 + NATIVE_PREFIX.length).split(',');
  const [checked] = checkedNativeDevices([{ name: text.slice(0, at), native, addresses }], []);
  return checked;
}

/**
 * The configurations with canonical addresses. Throws `VerbsError` EINVAL for a bad or duplicate
 * name, `others` included, a device named twice, or a bad or duplicate address.
 */
export function checkedNativeDevices(
  configs: readonly NativeDeviceConfig[],
  others: readonly string[],
): readonly NativeDeviceConfig[] {
  const names = new Set(others);
  const natives = new Set<string>();
  const taken = new Set<string>();
  return configs.map(({ name, native, addresses }) => {
    if (!isDeviceName(name)) throw invalid(`bad device name '${name}'`);
    if (!isDeviceName(native)) throw invalid(`bad native device name '${native}'`);
    claim(names, name, `two devices are called ${name}`);
    claim(natives, native, `the native device ${native} is named twice`);
    const canonical = addresses.map((text) => hostAddress(name, text));
    for (const address of canonical)
      claim(taken, address, `two devices have the address ${address}`);
    return { name, native, addresses: canonical };
  });
}

/** A name for a native device without a configured one: its own, unless taken. */
export function freeName(native: string, taken: ReadonlySet<string>): string {
  if (!taken.has(native)) return native;
  const beside = `${native}-native`;
  for (let count = 2; ; count += 1) {
    const name = count === 2 ? beside : `${beside}${count - 1}`;
    if (!taken.has(name)) return name;
  }
}

function isDeviceName(name: string): boolean {
  return /^[\w.-]{1,63}$/.test(name);
}

function claim(taken: Set<string>, what: string, refusal: string): void {
  if (taken.has(what)) throw invalid(refusal);
  taken.add(what);
}

function hostAddress(name: string, text: string): string {
  const address = canonicalAddress(text.trim());
  if (address === undefined || isWildcard(address)) {
    throw invalid(`device ${name}: '${text}' is not the address of an interface`);
  }
  return address;
}
