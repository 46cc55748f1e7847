/** `iwarpd rail play`: takes devices down and up at the times in a file. */
import { setTimeout as sleep } from 'node:timers/promises';
import { FAULT_MS_MAX } from '#contract/protocol/faults';
import { CommandFailure, failureText, fileFailureText } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import { readTextFile } from '#daemon/console/text-file';
import { duration } from '../arguments.ts';
import { findDevice } from '../device-name.ts';
import { endRailDown, type RailDownArguments, runRailDown, runRailUp } from './rail.ts';

/** More than a person writes; a program that wants more calls `rail down`. */
const STEPS_MAX = 10_000;

const SYNTAX = 'TIME down DEVICE [--silent] [--for TIME], or TIME up DEVICE';

interface Step {
  /** Since the start of its round. */
  readonly atMs: number;
  readonly device: string;
  /** Undefined: takes it up. */
  readonly down: Pick<RailDownArguments, 'silent' | 'for'> | undefined;
}

export interface RailPlayArguments {
  readonly socket?: string;
  readonly times: number;
}

/**
 * Plays the file `times` times, one line of output for each step. In the end, and when `signal` aborts, the
 * devices are up. CommandFailure names the first wrong line, before anything happens.
 */
export async function runRailPlay(
  path: string,
  given: RailPlayArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const steps = parseSteps(path, readSteps(path));
  const devices = new Set(steps.map(({ device }) => device));
  for (const device of devices) await findDevice(device, given.socket);
  const place = given.socket === undefined ? {} : { socket: given.socket };
  const roundMs = Math.max(...steps.map(({ atMs, down }) => atMs + (down?.for ?? 0)));
  try {
    for (let round = 0; round < given.times; round += 1) {
      const start = performance.now();
      for (const { atMs, device, down } of steps) {
        await until(start + atMs, signal);
        if (down === undefined) await runRailUp(device, place, output);
        else await runRailDown(device, { ...place, ...down }, output);
      }
      await until(start + roundMs, signal);
    }
  } finally {
    for (const device of devices) await endRailDown(device, { socketPath: given.socket });
  }
}

async function until(when: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const ms = when - performance.now();
  if (ms <= 0) return;
  // The command ends with the signal's reason.
  await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}

function readSteps(path: string): string {
  try {
    return readTextFile(path);
  } catch (error) {
    throw new CommandFailure(`cannot read ${path}: ${fileFailureText(error)}`, { cause: error });
  }
}

/** The steps in the order of their times. Lines that begin with # are comments. */
export function parseSteps(path: string, text: string): Step[] {
  const steps: Step[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    const words = line.trim().split(/\s+/);
    if (words[0] === '' || words[0]?.startsWith('#')) continue;
    const where = `${path}:${index + 1}`;
    if (steps.length === STEPS_MAX) {
      throw new CommandFailure(`${where}: more than ${STEPS_MAX} steps`);
    }
    try {
      steps.push(parseStep(words));
    } catch (error) {
      throw new CommandFailure(`${where}: ${failureText(error)}`, { cause: error });
    }
  }
  if (steps.length === 0) throw new CommandFailure(`${path} has no steps: write ${SYNTAX}`);
  return steps.sort((one, other) => one.atMs - other.atMs);
}

function parseStep([at = '', verb, device, ...options]: readonly string[]): Step {
  const atMs = /^0(?:ms|s|m)?$/.test(at) ? 0 : timeOf(at);
  if (device === undefined || device.startsWith('-')) throw new CommandFailure(`write ${SYNTAX}`);
  if (verb === 'up' && options.length === 0) return { atMs, device, down: undefined };
  if (verb !== 'down') throw new CommandFailure(`write ${SYNTAX}`);
  let down: Step['down'] = {};
  for (let next = options.shift(); next !== undefined; next = options.shift()) {
    if (next === '--silent') down = { ...down, silent: true };
    else if (next === '--for') down = { ...down, for: timeOf(options.shift() ?? '') };
    else throw new CommandFailure(`unknown option '${next}': write ${SYNTAX}`);
  }
  return { atMs, device, down };
}

const parseTime = duration(FAULT_MS_MAX);

function timeOf(text: string): number {
  try {
    return parseTime(text);
  } catch (error) {
    throw new CommandFailure(`'${text}' ${failureText(error)}`, { cause: error });
  }
}
