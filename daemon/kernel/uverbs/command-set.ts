/** The commands that one persona supports, as data. */
import type { KernelReply } from '../kernel-file.ts';
import type { CommandCall } from './open-device.ts';

/** A command: sizes in bytes, with headers and without private parts, and its handler. */
export interface UverbsCommand {
  /** A shorter request fails with ENOSPC. */
  readonly requestBytes: number;
  /** A smaller response buffer fails with ENOSPC. */
  readonly responseBytes: number;
  readonly execute: (call: CommandCall) => KernelReply;
}

/** The supported commands by number; every other number fails with EOPNOTSUPP. */
export interface CommandSet {
  readonly plain: ReadonlyMap<number, UverbsCommand>;
  readonly extended: ReadonlyMap<number, UverbsCommand>;
}

interface Size {
  readonly bytes: number;
}

/** A request with nothing but the response pointer. */
export const NO_FIELDS: Size = { bytes: 16 };
export const NO_RESPONSE: Size = { bytes: 0 };

/** A command with the given layouts of its shared parts. */
export function command(
  request: Size,
  response: Size,
  execute: (call: CommandCall) => KernelReply,
): UverbsCommand {
  return { requestBytes: request.bytes, responseBytes: response.bytes, execute };
}
