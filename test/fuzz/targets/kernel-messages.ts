/** Program input that involves no objects: frames of the preload library, and netlink. */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { kernelDevices } from '#daemon/kernel/nldev/devices';
import { RequestReader } from '#daemon/kernel/shim-protocol';
import type { Draws } from '#test/support/draws';
import { bytesOf, concat, hexOf } from '#test/support/hex';
import { le } from '#test/support/kernel-commands';
import { inPieces, join, mutated, rearranged } from '#test/support/mutate';
import { netlinkDatagrams } from '#test/support/netlink-answers';
import { canary, claim, type FuzzTarget } from '../target.ts';
import { CM_CORPUS } from './kernel-cm.ts';
import { VERBS_CORPUS } from './kernel-verbs.ts';

function frame(op: number, payload: Uint8Array, argument: number, draws: Draws): Uint8Array {
  const head = new Uint8Array(24);
  const fields = new DataView(head.buffer);
  fields.setUint32(0, 24 + payload.length, true);
  fields.setUint16(4, op, true);
  fields.setUint16(6, draws.oneIn(8) ? draws.below(4) : 0, true);
  fields.setUint32(8, draws.oneIn(8) ? draws.word() : process.pid, true);
  fields.setUint32(12, draws.below(4), true);
  fields.setUint32(16, argument >>> 0, true);
  fields.setUint32(20, Math.floor(argument / 2 ** 32) >>> 0, true);
  return concat(head, payload);
}

/** A request as libnl builds it. */
function netlinkMessage(type: number, flags: number, attributes: string): Uint8Array {
  const body = bytesOf(attributes);
  return concat(bytesOf(le(16 + body.length) + le(type, 2) + le(flags, 2) + le(7) + le(9)), body);
}

const NETLINK_CORPUS: readonly Uint8Array[] = [
  netlinkMessage(0x1401, 0x301, ''),
  netlinkMessage(0x1401, 5, `0800 0100 ${le(0)}`),
  netlinkMessage(0x1405, 5, `0800 0100 ${le(0)} 0800 0300 ${le(1)}`),
  netlinkMessage(0x1406, 1, ''),
  netlinkMessage(0x140f, 1, '0b00 4500 757665726273 0000 0800 0100 00000000'),
  netlinkMessage(0x140f, 1, '0c00 4500 72646d615f636d00'),
  netlinkMessage(0x1409, 0x301, ''),
];

/** Messages to the RDMA family of netlink. */
export const kernelNetlink: FuzzTarget = {
  name: 'kernel-netlink',
  about: 'messages to the RDMA family of netlink',
  batchInputs: 20_000,
  weight: 60_000,
  smokeInputs: 15_000,
  canary: canary(50_000, DataView.prototype, 'getUint16', (get, at, isLittle) => {
    const value = get(at, isLittle);
    if (value === 0x0102) throw new RangeError('planted');
    return value;
  }),
  open() {
    const host = new RnicHost({
      system: hostSystem(),
      devices: [{ name: 'fuzzed', addresses: ['127.0.0.1'] }],
    });
    const devices = kernelDevices(host);
    return {
      run(draws) {
        const input = mutated(draws.pick(NETLINK_CORPUS), NETLINK_CORPUS, draws, draws.below(4));
        if (draws.recording) draws.show(hexOf(input));
        try {
          const answers = netlinkDatagrams(input, devices);
          const bytes = answers.reduce((sum, { length }) => sum + length, 0);
          claim(answers.length > 0 && bytes < 16_384, `${answers.length} answers, ${bytes} bytes`);
          return 'answered';
        } catch (error) {
          if (!(error instanceof IpcFormatError)) throw error;
          return 'refused';
        }
      },
      close: () => host.close(),
    };
  },
};

/** Frames of the preload library, split at random. */
export const kernelFrame: FuzzTarget = {
  name: 'kernel-frame',
  about: 'frames between the shim and the daemon, which any pieces have to give alike',
  batchInputs: 20_000,
  weight: 40_000,
  smokeInputs: 10_000,
  canary: canary(5_000, RequestReader.prototype, 'push', (push, bytes) =>
    bytes.length === 3 ? 3 : push(bytes),
  ),
  open: () => ({
    run(draws) {
      const frames = draws
        .pick([VERBS_CORPUS, CM_CORPUS])
        .slice(0, draws.below(6))
        .map((payload) => frame(draws.below(9), payload, draws.word(), draws));
      const input = mutated(
        join(frames.length > 0 ? rearranged(frames, frames, draws) : []),
        VERBS_CORPUS,
        draws,
        draws.below(3),
      );
      if (draws.recording) draws.show(hexOf(input));
      const whole: string[] = [];
      const pieces: string[] = [];
      const outcome = cutRequests(input, whole, undefined);
      claim(cutRequests(input, pieces, draws) === outcome, 'the refusal depends on the pieces');
      claim(pieces.join() === whole.join(), 'the requests depend on the pieces');
      return outcome === 'taken' ? 'taken' : 'refused';
    },
    close: () => undefined,
  }),
};

function cutRequests(input: Uint8Array, seen: string[], draws: Draws | undefined): string {
  const reader = new RequestReader(({ op, flags, pid, id, argument, payload }) => {
    seen.push(`${op} ${flags} ${pid} ${id} ${argument} ${payload.length}`);
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
