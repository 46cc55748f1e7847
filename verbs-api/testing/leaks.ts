/** What programs had not given back when a test was over. */
import type { DaemonControl } from '../client/daemon-control.ts';
import type { MRSummary, ObjectOwner, QPSummary, ResetReport } from '../contract/control.ts';

/** Objects of each kind that a message tells of one client. */
const TOLD_OBJECTS = 4;

/** Queue pairs and memory regions: what tells one piece of a program from another. */
export interface OpenObjects {
  readonly qps: readonly QPSummary[];
  readonly mrs: readonly MRSummary[];
}

/** Lists them. */
export async function openObjects(control: DaemonControl): Promise<OpenObjects> {
  return { qps: await control.queuePairs(), mrs: await control.memoryRegions() };
}

/** Programs still held objects when the daemon was reset. The message names them. */
export class LeakError extends Error {
  override readonly name = 'LeakError';
  readonly report: ResetReport;

  /** `open` tells more of the objects in the report. */
  constructor(report: ResetReport, open: OpenObjects = { qps: [], mrs: [] }) {
    const lines = report.leaks.map(({ id, pid, program, usage }) => {
      const who = pid === process.pid ? 'this process' : `pid ${pid}`;
      const named = program === '' ? who : `${program} (${who})`;
      const objects = Object.entries(usage.objects).filter(([, count]) => count > 0);
      const counts = objects.map(([kind, count]) => `${count} ${kind}`).join(', ');
      const details = [
        ...told(open.qps, id, ({ qpNum, state, device }) => `QP ${qpNum} of ${device} in ${state}`),
        ...told(
          open.mrs,
          id,
          ({ key, lengthBytes, device }) => `MR ${hex(key)} of ${device}, ${lengthBytes} octets`,
        ),
      ];
      return `  ${named}: ${[counts, ...details].join('; ')}`;
    });
    super(['objects were not given back:', ...lines].join('\n'));
    this.report = report;
  }
}

/** The first objects of a client in words, and how many more there are. */
function told<T extends ObjectOwner>(
  objects: readonly T[],
  client: number,
  text: (object: T) => string,
): string[] {
  const own = objects.filter((each) => each.client === client);
  const more = own.length - TOLD_OBJECTS;
  return [...own.slice(0, TOLD_OBJECTS).map(text), ...(more > 0 ? [`and ${more} more`] : [])];
}

function hex(key: number): string {
  return `0x${key.toString(16).padStart(8, '0')}`;
}
