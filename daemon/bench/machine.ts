/** The machine on which results were measured. */
import { availableParallelism, cpus, release } from 'node:os';

/** Facts for a report. */
export interface MachineFacts {
  readonly node: string;
  readonly kernel: string;
  readonly cpu: string;
  readonly cores: number;
}

export function machineFacts(): MachineFacts {
  return {
    node: process.version,
    kernel: release(),
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
  };
}
