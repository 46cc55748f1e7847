/** Loads the bench of another checkout, so that both run in one process and take turns. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Measurement } from '#daemon/bench/measurement';
import { MEASUREMENTS } from '#daemon/bench/measurements';
import { Rig } from '#daemon/bench/rig';
import { CommandFailure, failureText } from '#daemon/console/failure';

/** A build of the bench, whose daemons and programs are those of its checkout. */
export interface Build {
  readonly measurements: readonly Measurement[];
  newRig(): Pick<Rig, 'close'>;
}

/** The bench of this checkout. */
export const OWN_BUILD: Build = { measurements: MEASUREMENTS, newRig: () => new Rig(undefined) };

/** The built bench of the checkout in `directory`. CommandFailure if there is none. */
export async function otherBuild(directory: string): Promise<Build> {
  const folder = resolve(directory, 'dist/daemon/bench');
  const fail = (why: string, cause?: unknown): never => {
    throw new CommandFailure(`cannot compare with ${directory}: ${why}`, { cause });
  };
  if (!existsSync(join(folder, 'rig.js'))) {
    fail("it has no dist/daemon/bench/rig.js; run 'npm run setup' there");
  }
  const load = async (name: string): Promise<unknown> =>
    import(pathToFileURL(join(folder, name)).href).catch((error: unknown) =>
      fail(failureText(error), error),
    );
  const rig = await load('rig.js');
  const all = await load('measurements.js');
  if (!hasRig(rig) || !hasMeasurements(all)) return fail('its bench has another form');
  return { measurements: all.MEASUREMENTS, newRig: () => new rig.Rig(undefined) };
}

function hasRig(module: unknown): module is { readonly Rig: typeof Rig } {
  return isObject(module) && 'Rig' in module && typeof module.Rig === 'function';
}

function hasMeasurements(
  module: unknown,
): module is { readonly MEASUREMENTS: readonly Measurement[] } {
  if (!isObject(module) || !('MEASUREMENTS' in module)) return false;
  const { MEASUREMENTS: all } = module;
  return Array.isArray(all) && all.every((each) => isObject(each) && 'run' in each);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
