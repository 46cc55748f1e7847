/**
 * Distinguishes a worker that hangs from one without a processor: by the processor time that it used and
 * wanted since its last message, whatever the clock says.
 */
import { readdirSync, readFileSync } from 'node:fs';

/** A worker silent for this long may hang. Inputs take microseconds, but machines are busy. */
export const SILENCE_MAX_MS = 120_000;
/** It hangs if it has since used this much processor time, or wanted none. */
const SILENT_CPU_MAX_MS = 30_000;
/** Looks in a row that find all of its threads asleep, and no processor time used in between. */
const SLEEPING_LOOKS = 3;
/** Ticks of `/proc/PID/stat` in a second, on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;
/** States of a thread that wants the processor, waits for a disk, or is stopped. */
const NOT_ASLEEP = new Set(['R', 'D', 'T', 't']);
/** Position of state, user and system time after the name in `/proc/PID/stat`. */
const STATE = 0;
const USER_TICKS = 11;
const SYSTEM_TICKS = 12;

/** A process, as its kernel sees it. */
export interface ProcessLook {
  readonly cpuMs: number;
  /** None of its threads wants the processor. */
  readonly asleep: boolean;
}

export class SilenceWatch {
  #messageMs = 0;
  /** Processor time used until then, and at the last look. */
  #messageCpuMs = 0;
  #lastCpuMs = 0;
  #sleepingLooks = 0;

  /** The worker sent a message. `look` is undefined when it is gone, or just starts. */
  noteMessage(nowMs: number, look: ProcessLook | undefined): void {
    this.#messageMs = nowMs;
    this.#messageCpuMs = look?.cpuMs ?? 0;
    this.#lastCpuMs = this.#messageCpuMs;
    this.#sleepingLooks = 0;
  }

  /** Call now and then. A worker that is gone does not hang. */
  hangs(nowMs: number, look: ProcessLook | undefined): boolean {
    if (look === undefined) return false;
    const idle = look.asleep && look.cpuMs <= this.#lastCpuMs;
    this.#lastCpuMs = look.cpuMs;
    if (nowMs - this.#messageMs < SILENCE_MAX_MS) return false;
    this.#sleepingLooks = idle ? this.#sleepingLooks + 1 : 0;
    const isBusy = look.cpuMs - this.#messageCpuMs > SILENT_CPU_MAX_MS;
    return isBusy || this.#sleepingLooks >= SLEEPING_LOOKS;
  }
}

/** A process with its threads: one may wait for another that gets no processor. */
export function lookAt(pid: number | undefined): ProcessLook | undefined {
  try {
    const fields = statOf(`/proc/${pid}/stat`);
    const ticks = Number(fields[USER_TICKS]) + Number(fields[SYSTEM_TICKS]);
    const folder = `/proc/${pid}/task`;
    const asleep = !readdirSync(folder).some((thread) => {
      return NOT_ASLEEP.has(statOf(`${folder}/${thread}/stat`)[STATE] ?? '');
    });
    return { cpuMs: (ticks * 1000) / TICKS_PER_SECOND, asleep };
  } catch {
    return undefined;
  }
}

/** Milliseconds that this thread has waited for the processor; 0 if the system does not count. */
export function starvedMs(): number {
  try {
    const [, waitedNanos] = readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ');
    return Number(waitedNanos) / 1e6;
  } catch {
    return 0;
  }
}

/** Fields after the name, which may hold anything. */
function statOf(path: string): readonly string[] {
  const text = readFileSync(path, 'latin1');
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}
