/** The machine that figures come from. */
import { availableParallelism, cpus, release } from 'node:os';

/** What a report says of it. */
export interface MachineFacts {
  readonly node: string;
  readonly kernel: string;
  readonly cpu: string;
  readonly cores: number;
}

/** Of this machine. */
export function machineFacts(): MachineFacts {
  return {
    node: process.version,
    kernel: release(),
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
  };
}
