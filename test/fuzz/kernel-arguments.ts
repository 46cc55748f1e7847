/** Shared by the targets of the kernel's files: arguments, and turns of the event loop. */
import type { Draws } from '../support/draws.ts';

/** Inputs between two turns of the event loop, which let sockets act. */
export const LOOK_EVERY = 64;

/** A handle; in the kernel's files handles are dense from 0. */
export function handle(draws: Draws): number {
  return draws.oneIn(12) ? draws.word() : draws.below(12);
}

/** A number up to `usual`, sometimes a larger one. */
export function size(draws: Draws, usual: number): number {
  return draws.oneIn(8) ? draws.word() : draws.below(usual + 1);
}
