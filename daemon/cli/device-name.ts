/** Checks names of a running daemon's devices on the command line. */
import type { DeviceInfo } from '#contract/verbs/attributes';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { didYouMean } from '../console/closest.ts';
import { CommandFailure } from '../console/failure.ts';

/** CommandFailure for a device that the daemon does not have. VerbsError if no daemon is running. */
export async function findDevice(
  name: string,
  socketPath: string | undefined,
): Promise<DeviceInfo> {
  const found = await queryDaemon('listDevices', {}, { socketPath });
  const devices = found.map(({ device }) => device);
  const device = devices.find((each) => each.name === name);
  if (device !== undefined) return device;
  throw noSuchDevice(
    name,
    devices.map((each) => each.name),
  );
}

/** The failure for a name that is not among `names`. */
export function noSuchDevice(name: string, names: readonly string[]): CommandFailure {
  return wrongDevice(`no device ${name}${didYouMean(name, names)}`, names);
}

/** A failure that lists the available devices. */
export function wrongDevice(reason: string, names: readonly string[]): CommandFailure {
  return new CommandFailure(
    `${reason}; the daemon has ${names.join(', ')}; see \`iwarpd devices\``,
  );
}
