/** Networks that seeds run over: TCP or SCTP for iWARP, or RoCE's. */
import { runPackets } from './packets/packet-run.ts';
import { CARRIERS } from './plan.ts';
import { type RunResult, run } from './run.ts';

export const NETWORKS = [...CARRIERS, 'roce'] as const;
export type SimulatedOver = (typeof NETWORKS)[number];

/** Runs a seed and logs its steps to `log`. Rejects with `BrokenRule` if a rule is broken. */
export function runOver(
  seed: number,
  over: SimulatedOver,
  log?: (text: string) => void,
): Promise<RunResult> {
  return over === 'roce' ? runPackets(seed, log) : run(seed, over, log);
}
