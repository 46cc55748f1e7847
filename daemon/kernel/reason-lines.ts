/**
 * Queues reasons for programs that asked for them, until their next reply. There is one queue per
 * process, since reasons for completions in error and events belong to no request.
 */
import { type Refusal, refusalLine } from '#contract/protocol/refusals';

/** Maximum queued lines of one process; further ones are only counted. */
const LINES_MAX = 64;
/** Lines per reply. Even lines of maximum length stay far below the longest reply. */
const LINES_OF_REPLY_MAX = 16;

interface WaitingLines {
  connections: number;
  readonly lines: string[];
  left: number;
}

export class ReasonLines {
  /** By pid, for processes that asked for reasons. */
  readonly #programs = new Map<number, WaitingLines>();

  /** A connection of a process asks for reasons. Call `leave` when it ends. */
  join(pid: number): void {
    const known = this.#programs.get(pid) ?? { connections: 0, lines: [], left: 0 };
    known.connections += 1;
    this.#programs.set(pid, known);
  }

  /** That connection has ended. */
  leave(pid: number): void {
    const known = this.#programs.get(pid);
    if (known === undefined) return;
    known.connections -= 1;
    if (known.connections === 0) this.#programs.delete(pid);
  }

  /** Queues the reason of a refusal. Ignores repeats. */
  note(refusal: Refusal): void {
    const waiting = this.#programs.get(refusal.pid);
    if (waiting === undefined || refusal.times > 1) return;
    if (waiting.lines.length < LINES_MAX) waiting.lines.push(refusalLine(refusal));
    else waiting.left += 1;
  }

  /** Takes the next lines for a process. */
  take(pid: number): readonly string[] {
    const waiting = this.#programs.get(pid);
    if (waiting === undefined || waiting.lines.length === 0) return NO_LINES;
    const taken = waiting.lines.splice(0, LINES_OF_REPLY_MAX);
    if (waiting.lines.length === 0 && waiting.left > 0) {
      taken.push(`${waiting.left} more; \`iwarpd explain --pid ${pid}\` shows the last`);
      waiting.left = 0;
    }
    return taken;
  }
}

const NO_LINES: readonly string[] = [];
