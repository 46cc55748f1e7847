/** How close the daemon is to its limits, and which processes it ended to keep running. */
import type { DaemonHealth, EndedProcess } from '#contract/protocol/ipc-admin';
import { copyGuard, STALL_LIMIT_MS } from '#native-bridge/libc/copy-guard';
import { reserveDescriptors } from '#native-bridge/libc/descriptor-limit';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import { programName } from '../clients/client-identity.ts';
import { DaemonBudget } from '../clients/objects/daemon-budget.ts';
import type { DaemonConfig } from './config.ts';
import {
  daemonLimits,
  descriptorLimit,
  descriptorsUsed,
  RESERVED_DESCRIPTORS,
  uncollectedMappings,
} from './host-limits.ts';
import type { Note } from './log.ts';
import { TurnMeter } from './turn-meter.ts';

/** Maximum ended processes remembered. */
const ENDED_MAX = 8;

export class HealthWatch {
  /** Limits of all clients together. */
  readonly budget: DaemonBudget;
  readonly turns = new TurnMeter();
  readonly #descriptorLimit: number;
  readonly #logLinesDropped: () => number;
  readonly #note: Note;
  readonly #ended: EndedProcess[] = [];

  /** Throws `VerbsError` EMFILE if the process's descriptor limit is too low to serve. */
  constructor(config: DaemonConfig, note: Note, logLinesDropped: () => number) {
    this.#descriptorLimit = descriptorLimit();
    this.#note = note;
    this.#logLinesDropped = logLinesDropped;
    const limits = daemonLimits({
      ...config.limits,
      connections: config.connectionsMax,
      descriptors: this.#descriptorLimit,
    });
    this.budget = new DaemonBudget(limits, {
      measures: { mappings: () => SharedMemory.mappings },
      lingering: { mappings: uncollectedMappings(limits.mappings) },
      onRefused: (uid, { message }) => note('warn', 'limit', { kind: 'limit', uid }, message),
    });
    reserveDescriptors({ limit: this.#descriptorLimit, reserve: RESERVED_DESCRIPTORS });
    copyGuard.onEnded.add(this.#noteEnded);
    this.turns.start();
  }

  /** Stops logging. */
  close(): void {
    copyGuard.onEnded.delete(this.#noteEnded);
    this.turns.close();
  }

  health(): DaemonHealth {
    const { descriptors, ...rest } = this.budget.uses();
    // All descriptors of the process, the daemon's own included.
    const open = { ...descriptors, used: descriptorsUsed(), limit: this.#descriptorLimit };
    return {
      // JSON has no infinity: omit an unlimited one.
      limits: Number.isFinite(open.limit) ? { descriptors: open, ...rest } : rest,
      logLinesDropped: this.#logLinesDropped(),
      longestTurnSeconds: this.turns.longestSeconds,
      ended: [...this.#ended],
    };
  }

  readonly #noteEnded = (pid: number): void => {
    const program = programName(pid);
    this.#ended.push({ pid, program, at: new Date().toISOString() });
    if (this.#ended.length > ENDED_MAX) this.#ended.shift();
    const text = `ended pid ${pid}: its memory did not respond for ${STALL_LIMIT_MS} ms and blocked the daemon`;
    this.#note('error', 'memory', { kind: 'memory', pid, program }, text);
  };
}
