/** `iwarpd rail`: takes devices down and up, as rails of a machine fail and return. */
import type { FaultSpec, FaultStatus } from '#contract/protocol/faults';
import { type DeviceInfo, protocolText } from '#contract/verbs/attributes';
import { isVerbsError } from '#contract/verbs/errors';
import { CommandFailure } from '#daemon/console/failure';
import { type Output, printJson } from '#daemon/console/output';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { findDevice } from '../device-name.ts';

interface RailArguments {
  readonly socket?: string;
  readonly json?: boolean;
}

export interface RailDownArguments extends RailArguments {
  readonly silent?: boolean;
  /** Milliseconds. */
  readonly for?: number;
}

interface Place {
  readonly socketPath: string | undefined;
}

/** The fields of a fault that takes down a whole rail. */
const FIELDS: ReadonlySet<string> = new Set(['kind', 'device', 'ms']);

/** The kinds of such faults, each with what the device then does. */
const WAYS = {
  'port-down': 'is down',
  drop: 'loses every packet',
  // TCP repeats what the network loses.
  stall: 'delivers nothing',
} as const;

/**
 * Takes a device down: its port, with an event, or with `silent` only its packets. Replaces an earlier
 * command. CommandFailure for an unknown device; VerbsError.
 */
export async function runRailDown(
  device: string,
  given: RailDownArguments,
  output: Output,
): Promise<void> {
  const place = { socketPath: given.socket };
  const found = await findDevice(device, given.socket);
  const kind = given.silent === true ? silentWay(found) : 'port-down';
  const earlier = await faultsOf(device, place);
  const spec: FaultSpec = {
    kind,
    device,
    ...(given.for === undefined ? {} : { ms: given.for }),
  };
  const fault = await queryDaemon('addFault', spec, place);
  await removeAll(earlier, place);
  if (given.json === true) return printJson(output, fault);
  const until =
    given.for === undefined ? `until \`iwarpd rail up ${device}\`` : `for ${given.for / 1000} s`;
  output.line(`${device} ${WAYS[kind]} ${until} (fault ${fault.id})`);
}

/**
 * Takes a device up again. CommandFailure for an unknown device, and where another fault still holds it down;
 * VerbsError.
 */
export async function runRailUp(
  device: string,
  given: RailArguments,
  output: Output,
): Promise<void> {
  const place = { socketPath: given.socket };
  await findDevice(device, given.socket);
  const removed = await endRailDown(device, place);
  const devices = await queryDaemon('listDevices', {}, place);
  if (devices.some((each) => each.device.name === device && each.portState === 'down')) {
    const by = 'another fault: find it with `iwarpd fault list`, and remove it';
    throw new CommandFailure(`${device} is still down by ${by}`);
  }
  if (given.json === true) return printJson(output, { removed });
  output.line(`${device} is up${removed.length === 0 ? '; it was not down' : ''}`);
}

function silentWay(device: DeviceInfo): 'drop' | 'stall' {
  return protocolText(device) === undefined ? 'stall' : 'drop';
}

/** Ends what `rail down` did to the device. Returns the faults that it was. */
export async function endRailDown(device: string, place: Place): Promise<FaultStatus[]> {
  return await removeAll(await faultsOf(device, place), place);
}

/** The faults by which `rail down` took the device down. */
async function faultsOf(device: string, place: Place): Promise<FaultStatus[]> {
  const faults = await queryDaemon('listFaults', {}, place);
  return faults.filter(({ spec }) => {
    return (
      spec.kind in WAYS &&
      spec.device === device &&
      Object.keys(spec).every((field) => FIELDS.has(field))
    );
  });
}

/** Removes the faults. Returns those that had not ended meanwhile. */
async function removeAll(faults: readonly FaultStatus[], place: Place): Promise<FaultStatus[]> {
  const removed: FaultStatus[] = [];
  for (const { id } of faults) {
    try {
      removed.push(await queryDaemon('removeFault', { id }, place));
    } catch (error) {
      if (!isVerbsError(error) || error.code !== 'ENOENT') throw error;
    }
  }
  return removed;
}
