/** Objects that programs had not released when a test was over. */
import type { MRSummary, ObjectOwner, QPSummary, ResetReport } from '#contract/protocol/control';
import type { DaemonControl } from '../client/daemon-control.ts';

/** Objects of each kind that a message lists per client. */
const LISTED_OBJECTS = 4;

/** Queue pairs and memory regions: they identify the part of a program that leaks. */
export interface OpenObjects {
  /** Queue pairs. */
  readonly qps: readonly QPSummary[];
  /** Memory regions. */
  readonly mrs: readonly MRSummary[];
}

export async function openObjects(control: DaemonControl): Promise<OpenObjects> {
  return { qps: await control.queuePairs(), mrs: await control.memoryRegions() };
}

/**
 * Programs still held objects when the daemon was reset, or had ended without releasing theirs. The
 * message names them.
 */
export class LeakError extends Error {
  /** Stable code. */
  readonly code = 'leak';
  /** Objects still held, objects left by ended programs, and what the reset ended. */
  declare readonly report: ResetReport;

  /** `open` describes the objects in the report. */
  constructor(report: ResetReport, open: OpenObjects = { qps: [], mrs: [] }) {
    const held = report.leaks.map(({ id, pid, program, usage }) => {
      const details = [
        ...listed(
          open.qps,
          id,
          ({ qpNum, state, device }) => `QP ${qpNum} of ${device} in ${state}`,
        ),
        ...listed(
          open.mrs,
          id,
          ({ key, lengthBytes, device }) => `MR ${hex(key)} of ${device}, ${lengthBytes} bytes`,
        ),
      ];
      return `  ${named(program, pid)}: ${[counted(usage.objects), ...details].join('; ')}`;
    });
    const left = report.endedHolding.map(({ pid, program, objects }) => {
      return `  ${named(program, pid)}: ${counted(objects)}`;
    });
    const lines = [
      ...(held.length === 0 ? [] : ['objects were not released:', ...held]),
      ...(left.length === 0 ? [] : ['programs ended without releasing objects:', ...left]),
    ];
    super(lines.join('\n'));
    // Not enumerable, so an uncaught error prints only its message, which is enough.
    Object.defineProperty(this, 'report', { value: report });
  }

  override get name(): string {
    return 'LeakError';
  }
}

/** `rping (pid 7)`. */
function named(program: string, pid: number): string {
  const who = pid === process.pid ? 'this process' : `pid ${pid}`;
  return program === '' ? who : `${program} (${who})`;
}

/** `1 context, 2 pd`. */
function counted(objects: Readonly<Record<string, number>>): string {
  const held = Object.entries(objects).filter(([, count]) => count > 0);
  return held.map(([kind, count]) => `${count} ${kind}`).join(', ');
}

/** The first objects of a client as text, and the number of the rest. */
function listed<T extends ObjectOwner>(
  objects: readonly T[],
  client: number,
  text: (object: T) => string,
): string[] {
  const own = objects.filter((each) => each.client === client);
  const more = own.length - LISTED_OBJECTS;
  return [...own.slice(0, LISTED_OBJECTS).map(text), ...(more > 0 ? [`and ${more} more`] : [])];
}

/** Omits a key that this process may not see. */
function hex(key: number | undefined): string {
  return key === undefined ? 'of another user' : `0x${key.toString(16).padStart(8, '0')}`;
}
