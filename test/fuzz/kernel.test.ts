import { afterAll, describe, expect, it } from 'vitest';
import { emitReply, RequestReader, ShimOp } from '../../daemon/ipc/kernel/shim-protocol.ts';
import { isVerbsError } from '../../verbs-api/contract/errors.ts';
import { IpcFormatError } from '../../verbs-api/contract/ipc-value.ts';
import { concat, octetsOf } from '../support/hex.ts';
import { commands, le, SELF, UverbsRig } from '../support/uverbs-rig.ts';
import { fuzz } from './octet-fuzzer.ts';

const rig = new UverbsRig();

afterAll(async () => {
  await rig.close();
});

function frame(op: number, payload: Uint8Array, argument = 0): Uint8Array {
  const head = `${le(24 + payload.length)} ${le(op, 2)} 0000 ${le(process.pid)} ${le(1)}`;
  return concat(octetsOf(`${head} ${le(argument, 8)}`), payload);
}

function writes(...payloads: readonly Uint8Array[]): Uint8Array {
  return concat(...payloads.map((payload) => frame(ShimOp.write, payload)));
}

const NOTHING = new Uint8Array(0);
const START = writes(
  commands.getContext(),
  commands.allocPD(),
  commands.createCompChannel(),
  commands.createCQ(1n, 16),
  commands.createSRQ(2n, 0, 8, 2, 1),
  commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, srq: 2 }),
  commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }),
);
const LIVES = [
  START,
  concat(
    START,
    writes(commands.queryDevice(), commands.queryPort(), commands.extendedQueryDevice()),
    frame(ShimOp.mmap, octetsOf(le(16 * 32 + 8, 8))),
    frame(ShimOp.mmap, octetsOf(le(480, 8)), 0x2000),
    writes(commands.modifyQP(3, 1 | 8 | 32, { state: 1, access: 6, port: 1 })),
    writes(commands.queryQP(3), commands.postSend(3), commands.modifySRQ(2, 2, 3)),
    frame(ShimOp.doorbell, NOTHING, 4),
    frame(ShimOp.child, octetsOf(le(1))),
  ),
  concat(
    START,
    writes(
      commands.regMR({ start: 0x1000n, length: 64, pd: 0, access: 7 }),
      commands.modifyQP(4, 1, { state: 6 }),
      commands.postSend(4),
      commands.destroyQP(4),
      commands.destroyQP(3),
      commands.destroySRQ(2),
      commands.destroyCQ(1),
      commands.deallocPD(0),
    ),
  ),
];

/** Lives a whole life of a file on `octets`; throws when it leaves anything behind. */
function live(octets: Uint8Array, cut: number): void {
  const file = rig.openFile(78);
  rig.server.memories.hold(SELF, file);
  const reader = new RequestReader((request) => {
    try {
      const reply = file.execute(request, { credentials: SELF, ownPid: true });
      reply.attach?.(() => undefined);
      emitReply(request.id, reply);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
    }
  });
  try {
    reader.push(octets.slice(0, cut));
    reader.push(octets.slice(cut));
  } catch (error) {
    if (!(error instanceof IpcFormatError)) throw error;
  } finally {
    file.close();
    rig.server.memories.release(SELF, file);
    rig.host.drain();
  }
  const { objects, sharedBytes, pinnedBytes } = rig.client.status().usage;
  const left = Object.entries(objects).filter(([, count]) => count > 0);
  if (JSON.stringify(left) !== '[["context",1]]') throw new Error(`left: ${left.join(' ')}`);
  if (sharedBytes !== 0 || pinnedBytes !== 0) throw new Error('memory is left');
}

describe('fuzzing what the shim sends', () => {
  it('canary: a planted fault is found, so that silence means something', () => {
    const finding = fuzz({
      corpus: LIVES,
      rounds: 2000,
      target(octets) {
        const reader = new RequestReader(({ id }) => {
          if (id !== 1) throw new Error('planted');
        });
        try {
          reader.push(octets);
        } catch (error) {
          if (!(error instanceof IpcFormatError)) throw error;
        }
      },
    });
    expect(finding?.text).toBe('planted');
  });

  it('no life of a file breaks the device or leaves anything behind', () => {
    const finding = fuzz({
      corpus: LIVES,
      rounds: 4000,
      target: (octets, prng) => live(octets, prng.below(octets.length + 1)),
    });
    expect(finding).toBeUndefined();
  });
});
