/** Client input that involves no objects: values, requests, frames and records. */
import {
  CLIENT_FRAME_MAX_BYTES,
  emitFrame,
  emitHello,
  FrameType,
  IpcFrameReader,
  parseHello,
  Role,
} from '#contract/protocol/ipc-frames';
import {
  decodeValue,
  encodeValue,
  IpcFormatError,
  type IpcValue,
} from '#contract/protocol/ipc-value';
import { isVerbsError } from '#contract/verbs/errors';
import { COMMAND_SCHEMAS, isCommandName } from '#daemon/ipc/command-schemas';
import { parseTapFilter } from '#daemon/ipc/tap-stream';
import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { inPieces, join, mutated, rearranged } from '#test/support/mutate';
import { LIFE } from '../ipc-commands.ts';
import { canary, claim, type FuzzTarget } from '../target.ts';

const values = LIFE.map((value) => encodeValue(value));
const frames = values.map((value, index) => emitFrame(FrameType.request, index, value));
const hellos = Object.values(Role).map((role) => emitHello(role));

/** Values and requests. */
export const ipcValue: FuzzTarget = {
  name: 'ipc-value',
  about: 'values of the IPC, and the schemas of every command',
  batchInputs: 20_000,
  weight: 25_000,
  smokeInputs: 12_000,
  // A decoder that throws an untyped error.
  canary: canary(20_000, DataView.prototype, 'getFloat64', () => {
    throw new RangeError('planted');
  }),
  open: () => ({
    run(draws) {
      const input = mutated(draws.pick(values), values, draws, draws.below(4));
      if (draws.recording) draws.show(hexOf(input));
      const value = decoded(input);
      if (value instanceof IpcFormatError) return 'no value';
      // A decoded value must encode again.
      const again = encodeValue(value);
      claim(hexOf(encodeValue(decodeValue(again))) === hexOf(again), 'a value changes');
      if (draws.oneIn(4)) filter(value);
      const [name, request] = Array.isArray(value) ? value : [];
      if (!isCommandName(name)) return 'no command';
      const { success } = COMMAND_SCHEMAS[name].safeParse(request);
      return success ? 'request' : 'refused';
    },
    close: () => undefined,
  }),
};

function decoded(input: Uint8Array): IpcValue | IpcFormatError {
  try {
    return decodeValue(input);
  } catch (error) {
    if (!(error instanceof IpcFormatError)) throw error;
    return error;
  }
}

function filter(value: IpcValue): void {
  try {
    parseTapFilter(value);
  } catch (error) {
    if (!isVerbsError(error) && !(error instanceof IpcFormatError)) throw error;
  }
}

/** Decodes bytes into frames. Returns the refusal, if any. */
function cut(input: Uint8Array, seen: string[], draws: Draws | undefined): string {
  const reader = new IpcFrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
    const { type, id, payload } = frame;
    seen.push(`${type} ${id} ${payload.length}`);
    if (type === FrameType.hello) parseHello(frame);
  });
  try {
    if (draws === undefined) reader.push(input);
    else inPieces(input, draws, (start, end) => reader.push(input.subarray(start, end)));
    return 'taken';
  } catch (error) {
    if (!(error instanceof IpcFormatError)) throw error;
    return error.message;
  }
}

/** Frames, split at random. */
export const ipcFrame: FuzzTarget = {
  name: 'ipc-frame',
  about: 'frames and greetings of the IPC, which any pieces have to give alike',
  batchInputs: 20_000,
  weight: 30_000,
  smokeInputs: 10_000,
  // A reader that loses a piece.
  canary: canary(5_000, IpcFrameReader.prototype, 'push', (push, bytes) =>
    bytes.length === 3 ? 3 : push(bytes),
  ),
  open: () => ({
    run(draws) {
      const list = rearranged(frames.slice(0, draws.below(8)), [...frames, ...hellos], draws);
      const input = mutated(join(list), frames, draws, draws.below(4));
      if (draws.recording) draws.show(hexOf(input));
      const whole: string[] = [];
      const pieces: string[] = [];
      const outcome = cut(input, whole, undefined);
      claim(cut(input, pieces, draws) === outcome, 'the refusal depends on the pieces');
      claim(pieces.join() === whole.join(), 'the frames depend on the pieces');
      return outcome === 'taken' ? 'taken' : 'refused';
    },
    close: () => undefined,
  }),
};
