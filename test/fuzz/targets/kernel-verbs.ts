/**
 * uverbs commands, mappings, doorbells and ring contents of a hostile program, through the daemon's
 * own files over a real host.
 */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { RQE_BYTES, SGE_BYTES, SQE, SQE_BYTES } from '#contract/protocol/queue-layout';
import type { DeviceTransport } from '#contract/verbs/attributes';
import { RingMappings } from '#daemon/kernel/ring-mapping';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import type { UverbsFile } from '#daemon/kernel/uverbs/file';
import { addressOf, SystemCallError } from '#native-bridge/libc/libc';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import type { Draws } from '#test/support/draws';
import { bytesOf, hexOf, NO_BYTES } from '#test/support/hex';
import { commands, le } from '#test/support/kernel-commands';
import { mutated, scribble } from '#test/support/mutate';
import { SELF } from '#test/support/own-process';
import { RINGS, request, UverbsRig } from '#test/support/uverbs-rig';
import { handle, LOOK_EVERY, size } from '../kernel-arguments.ts';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

const { child, doorbell, rings, write } = ShimOp;

/** Average number of inputs until a file is closed and reopened. */
const LIFE_INPUTS = 300;
/** Maximum rings mapped at the same time. */
const MAPPED_MAX = 24;

/** Memory of this process that a hostile program may register; writes to it are harmless. */
const OWN = new Uint8Array(65_536);
const OWN_START = addressOf(OWN);

/** A well-formed uverbs command with arbitrary arguments. */
function verbsCommand(draws: Draws): Uint8Array {
  switch (draws.below(24)) {
    case 0:
      return commands.getContext();
    case 1:
      return commands.queryDevice();
    case 2:
      return commands.queryPort(size(draws, 2) & 0xff);
    case 3:
    case 4:
      return commands.allocPD();
    case 5:
      return commands.deallocPD(handle(draws));
    case 6:
    case 7: {
      const length = draws.oneIn(6) ? draws.wide() : BigInt(draws.below(4096));
      const start = draws.oneIn(6) ? draws.wide() : OWN_START + BigInt(draws.below(60_000));
      const access = size(draws, 63);
      const key = draws.below(256);
      const asked = { start, length, pd: handle(draws), access, key };
      return commands.regMR(draws.oneIn(3) ? { ...asked, hcaVa: draws.wide() } : asked);
    }
    case 8:
      return commands.deregMR(handle(draws));
    case 9:
      return commands.createCompChannel();
    case 10:
    case 11: {
      const channel = draws.oneIn(2) ? -1 : handle(draws);
      return commands.createCQ(draws.wide(), size(draws, 64), channel, size(draws, 1));
    }
    case 12:
      return commands.destroyCQ(handle(draws));
    case 13:
    case 14:
    case 15: {
      const queues = { pd: handle(draws), sendCQ: handle(draws), recvCQ: handle(draws) };
      const sizes = {
        sendWr: size(draws, 16),
        recvWr: size(draws, 16),
        sendSge: size(draws, 6),
        recvSge: size(draws, 6),
        inline: size(draws, 80),
        sigAll: draws.oneIn(2),
        type: draws.oneIn(8) ? draws.below(256) : 2,
      };
      const asked = { user: draws.wide(), ...queues, ...sizes };
      return commands.createQP(draws.oneIn(4) ? { ...asked, srq: handle(draws) } : asked);
    }
    case 16:
      return commands.queryQP(handle(draws));
    case 17:
    case 18: {
      const to = { state: draws.below(8), access: size(draws, 15), port: 1, cur: draws.below(8) };
      return commands.modifyQP(handle(draws), draws.oneIn(2) ? 1 : size(draws, 0xfff), to);
    }
    case 19:
      return commands.destroyQP(handle(draws));
    case 20:
      return commands.postSend(handle(draws), size(draws, 4), size(draws, 256));
    case 21:
      return commands.createSRQ(draws.wide(), handle(draws), size(draws, 16), size(draws, 6));
    case 22:
      return commands.modifySRQ(handle(draws), size(draws, 3), size(draws, 16), size(draws, 16));
    default:
      return draws.oneIn(2)
        ? commands.destroySRQ(handle(draws))
        : commands.extendedQueryDevice(8 * size(draws, 64));
  }
}

/** A whole conversation with a uverbs file, to mutate. */
export const VERBS_CORPUS: readonly Uint8Array[] = [
  commands.getContext(),
  commands.allocPD(),
  commands.createCompChannel(),
  commands.createCQ(1n, 16),
  commands.createSRQ(2n, 0, 8, 2, 1),
  commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, srq: 2 }),
  commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }),
  commands.queryDevice(),
  commands.queryPort(),
  commands.extendedQueryDevice(),
  commands.modifyQP(3, 1 | 8 | 32, { state: 1, access: 6, port: 1 }),
  commands.queryQP(3),
  commands.postSend(3),
  commands.modifySRQ(2, 2, 3),
  commands.regMR({ start: OWN_START, length: 64, pd: 0, access: 7 }),
  commands.modifyQP(4, 1, { state: 6 }),
  commands.destroyQP(4),
  commands.destroySRQ(2),
  commands.destroyCQ(1),
  commands.deallocPD(0),
];
/** Commands that create one object of each kind. */
const VERBS_START = VERBS_CORPUS.slice(0, 7);

/** Differences between the providers whose programs are played. */
export interface VerbsWorld {
  readonly transport: DeviceTransport;
  /** Creates one object of each kind. */
  readonly start: readonly Uint8Array[];
  /** Commands to mutate. */
  readonly corpus: readonly Uint8Array[];
  /** A well-formed command with arbitrary arguments. */
  command(draws: Draws): Uint8Array;
  /** The offset and the length of a ring, which need not be right. */
  ringAt(draws: Draws): readonly [key: number, lengthBytes: bigint];
  /** Writes work into a ring. */
  scribbleRing(ring: Uint8Array, draws: Draws): void;
  /** Sees the response of each command. */
  learn?(response: Uint8Array): void;
}

/** A uverbs file and a program that abuses it. */
export class VerbsState implements FuzzState {
  readonly #world: VerbsWorld;
  readonly #rig: UverbsRig;
  #file: UverbsFile | undefined;
  readonly #rings: SharedMemory[] = [];
  #numbers = 100;
  #inputs = 0;
  /** The draws of the command in progress. */
  #draws: Draws | undefined;

  constructor(world: VerbsWorld) {
    this.#world = world;
    const { transport } = world;
    this.#rig = new UverbsRig({
      devices: [{ name: 'fuzzed', addresses: ['127.0.0.1'], transport }],
    });
  }

  run(draws: Draws): Outcome | Promise<Outcome> {
    const outcome = this.#act(draws);
    if (draws.oneIn(LIFE_INPUTS)) this.#closeFile();
    this.#rig.host.drain();
    this.#inputs += 1;
    if (this.#inputs % LOOK_EVERY !== 0) return outcome;
    this.#file?.assertDeepInvariants();
    this.#rig.host.assertDeepInvariants();
    return new Promise((resolve) => setImmediate(() => resolve(outcome)));
  }

  async close(): Promise<void> {
    this.#closeFile();
    await this.#rig.close();
  }

  #open(): UverbsFile {
    const file = this.#rig.openFile(this.#numbers++);
    this.#rig.server.memories.hold(SELF, file);
    this.#meddle(file);
    for (const payload of this.#world.start) this.#execute(file, write, payload, 0);
    return file;
  }

  /** Another thread of the program often changes its rings while the daemon is making one. */
  #meddle({ mappings }: UverbsFile): void {
    const create = mappings.create.bind(mappings);
    mappings.create = (mappedBytes, memoryBytes) => {
      const made = create(mappedBytes, memoryBytes);
      const draws = this.#draws;
      if (draws === undefined || !draws.oneIn(2)) return made;
      for (const { view } of this.#rings) this.#world.scribbleRing(view, draws);
      return made;
    };
  }

  #closeFile(): void {
    const file = this.#file;
    if (file === undefined) return;
    this.#file = undefined;
    file.close();
    this.#rig.server.memories.release(SELF, file);
    this.#rig.host.drain();
    for (const ring of this.#rings.splice(0)) ring.release();
    const { objects, sharedBytes, pinnedBytes } = this.#rig.client.ledger.usage();
    const left = Object.entries(objects).filter(([kind, count]) => count > 0 && kind !== 'context');
    claim(left.length === 0, `left: ${left.join(' ')}`);
    claim(sharedBytes === 0 && pinnedBytes === 0, 'memory is left');
  }

  #act(draws: Draws): Outcome {
    this.#file ??= this.#open();
    const file = this.#file;
    const kind = draws.below(16);
    const { corpus } = this.#world;
    if (kind < 8) return this.#write(file, this.#world.command(draws), draws);
    if (kind < 10) {
      const payload = mutated(draws.pick(corpus), corpus, draws, draws.between(1, 3));
      return this.#write(file, payload, draws);
    }
    if (kind < 12) return this.#map(file, draws);
    if (kind < 15) return this.#ring(file, draws);
    const op = draws.oneIn(4) ? draws.below(10) : draws.pick(Object.values(ShimOp));
    if (op === rings) return this.#map(file, draws);
    const payload = op === child ? bytesOf(le(draws.word())) : draws.bytes(draws.below(12));
    if (draws.recording) draws.show(`op ${op} ${hexOf(payload)}`);
    return this.#execute(file, op, payload, handle(draws));
  }

  #write(file: UverbsFile, payload: Uint8Array, draws: Draws): Outcome {
    if (draws.recording) draws.show(`write ${hexOf(payload)}`);
    this.#draws = draws;
    const outcome = this.#execute(file, write, payload, 0);
    this.#draws = undefined;
    return outcome;
  }

  #execute(file: UverbsFile, op: number, payload: Uint8Array, argument: number): Outcome {
    try {
      const reply = this.#rig.execute(request(op, { payload, argument }), file);
      if (reply.response !== undefined) this.#world.learn?.(reply.response);
      return reply.refused?.code ?? (reply.status < 0 ? 'refused' : 'done');
    } catch (error) {
      // A request that breaks the protocol ends its file.
      if (!(error instanceof IpcFormatError)) throw error;
      this.#closeFile();
      return 'ended';
    }
  }

  /** Maps a queue as the provider does. */
  #map(file: UverbsFile, draws: Draws): Outcome {
    const [key, bytes] = this.#world.ringAt(draws);
    if (draws.recording) draws.show(`map ${key} ${bytes}`);
    const reply = file.execute(request(rings), { credentials: SELF, ownPid: true, isOpener: true });
    let outcome: Outcome = 'refused';
    reply.attach?.((descriptor) => {
      const memory = mapped(descriptor, key, Number(bytes));
      if (memory === undefined) return;
      if (this.#rings.length >= MAPPED_MAX) this.#rings.shift()?.release();
      this.#rings.push(memory);
      outcome = 'done';
    });
    return outcome;
  }

  /** Writes into a mapped queue and rings a doorbell. */
  #ring(file: UverbsFile, draws: Draws): Outcome {
    const ring = this.#rings[draws.below(Math.max(1, this.#rings.length))];
    if (ring !== undefined) {
      this.#world.scribbleRing(ring.view, draws);
      if (draws.recording) draws.show(`ring ${hexOf(ring.view.subarray(0, 2 * SQE_BYTES))}`);
    }
    return this.#execute(file, doorbell, NO_BYTES, handle(draws));
  }
}

/** A part of the file of rings, if it exists: the kernel refuses offsets past the file. */
function mapped(descriptor: number, offset: number, bytes: number): SharedMemory | undefined {
  if (offset % 4096 !== 0) return undefined;
  try {
    return SharedMemory.mapPart(descriptor, offset, bytes);
  } catch (error) {
    if (error instanceof SystemCallError) return undefined;
    throw error;
  }
}

/** Lengths of rings of the requested sizes. */
const RING_BYTES = [1, 2, 4, 8, 16].flatMap((count) => [
  count * SQE_BYTES,
  count * RQE_BYTES,
  count * 32 + 8,
]);

/** One element, valid for a send queue and, by its flags, for a receive queue. */
function element(ring: Uint8Array, draws: Draws): void {
  const bytes = draws.oneIn(3) ? RQE_BYTES : SQE_BYTES;
  const at = draws.below(Math.max(1, Math.min(6, Math.floor(ring.length / bytes)))) * bytes;
  if (at + bytes > ring.length) return;
  const view = new DataView(ring.buffer, ring.byteOffset + at, bytes);
  view.setUint8(SQE.numSge, draws.oneIn(8) ? draws.below(256) : draws.below(3));
  view.setUint8(SQE.opcode, draws.below(draws.oneIn(8) ? 256 : 22));
  for (let place = 24; place + SGE_BYTES <= bytes; place += SGE_BYTES) {
    view.setBigUint64(place, OWN_START + BigInt(draws.below(60_000)), true);
    view.setUint32(place + 8, size(draws, 200), true);
    view.setUint32(place + 12, draws.oneIn(2) ? draws.word() : 0, true);
  }
  if (draws.oneIn(4)) scribble(ring, at + draws.below(bytes), draws);
  view.setUint16(SQE.flags, draws.oneIn(4) ? draws.next() : 1 | (draws.next() & 0x1c), true);
}

const SIW_WORLD: VerbsWorld = {
  transport: 'iwarp',
  start: VERBS_START,
  corpus: VERBS_CORPUS,
  command: verbsCommand,
  ringAt(draws) {
    const bytes = draws.oneIn(4) ? draws.wide() : BigInt(draws.pick(RING_BYTES));
    return [
      draws.oneIn(8) ? Number(draws.wide() >> 11n) : RINGS.first + RINGS.step * draws.below(16),
      bytes,
    ];
  },
  scribbleRing(ring, draws) {
    for (let count = draws.between(1, 3); count > 0; count--) element(ring, draws);
  },
};

/** Rings that stay charged to their owner's quota. */
export const KEPT_RINGS: FuzzTarget['canary'] = canary(
  2_000,
  RingMappings.prototype,
  'release',
  () => undefined,
);

/** Commands, mappings, rings and doorbells of a uverbs file. */
export const kernelVerbs: FuzzTarget = {
  name: 'kernel-verbs',
  about: 'uverbs commands, mmap keys, doorbells and ring contents',
  batchInputs: 4_000,
  weight: 10_000,
  smokeInputs: 5_000,
  canary: KEPT_RINGS,
  open: () => new VerbsState(SIW_WORLD),
};
