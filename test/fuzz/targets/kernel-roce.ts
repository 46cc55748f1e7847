/**
 * Hostile programs on a RoCE device: commands as programs on the kernel's rxe wrote them, with
 * arbitrary arguments, and rings with indices.
 */
import { addressOf } from '#native-bridge/libc/libc';
import type { Draws } from '#test/support/draws';
import { bytesOf } from '#test/support/hex';
import { commands, le, plain, RSP } from '#test/support/kernel-commands';
import { scribble } from '#test/support/mutate';
import { recordedCommands } from '#test/support/rxe-recordings';
import { handle, size } from '../kernel-arguments.ts';
import type { FuzzTarget } from '../target.ts';
import { KEPT_RINGS, VerbsState, type VerbsWorld } from './kernel-verbs.ts';

/** Memory of this process that a hostile program may register; writes to it are harmless. */
const OWN = new Uint8Array(65_536);
const OWN_START = addressOf(OWN);
const OWN_GID = '00*10 ffff 7f000001';
/** Where commands have the handles of objects, and numbers such as sizes. */
const HEADER_BYTES = 8;
/** Rings that may be mapped, as `struct mminfo` named them. */
const KNOWN_MAX = 24;
const PAGE = 4096;
/** Handle of the shared receive queue that a world starts with. */
const SHARED_QUEUE = 2;
/** Offsets in a ring. */
const PRODUCER = 128;
const SLOTS = 384;
const SLOT_BYTES = 64;
const OPCODE = 12;
const NUM_SGE = 196;
const SGE = 208;

const RECORDED = recordedCommands().map(bytesOf);

/** Attributes that take a queue pair up to RTS. */
const CLIMB: readonly { readonly mask: number; readonly state: number }[] = [
  { mask: 0x39, state: 1 },
  { mask: 0x12_9181, state: 2 },
  { mask: 0x01_2e01, state: 3 },
];

function modify(qp: number, mask: number, state: number): Uint8Array {
  const bytes = plain(26, 0, `00*112`);
  const fields = new DataView(bytes.buffer);
  bytes.set(bytesOf(OWN_GID), 8);
  for (const [at, value] of [
    [32, 1],
    [38, 1],
    [39, 1],
    [104, state],
    [106, 3],
    [112, 1],
  ] as const) {
    fields.setUint8(at, value);
  }
  fields.setUint32(72, qp, true);
  fields.setUint32(76, mask, true);
  fields.setUint32(92, 17, true);
  fields.setUint32(96, 0xf, true);
  return bytes;
}

function command(draws: Draws): Uint8Array {
  const kind = draws.below(13);
  if (kind < 2) {
    const { mask, state } = draws.pick(CLIMB);
    return modify(handle(draws), mask, state);
  }
  if (kind === 2)
    return modify(handle(draws), draws.oneIn(2) ? 1 : draws.below(2 ** 21), draws.below(8));
  if (kind === 3) {
    const start = OWN_START + BigInt(draws.below(60_000));
    const range = `${le(start, 8)} ${le(draws.below(4096), 8)} ${le(start, 8)}`;
    return plain(9, 12, `${RSP} ${range} ${le(handle(draws))} ${le(size(draws, 63))}`);
  }
  if (kind === 4) return commands.allocPD();
  if (kind === 5) return plain(14, 8, `${RSP} ${le(handle(draws))} ${le(draws.below(4), 1)} 00*3`);
  if (kind === 6) {
    const sizes = `${le(draws.between(1, 3))} ${le(size(draws, 64))} ${le(size(draws, 8))}`;
    const srq = draws.oneIn(2) ? SHARED_QUEUE : handle(draws);
    return plain(33, 0, `${le(srq)} ${sizes} ${RSP}`);
  }
  const bytes = draws.pick(RECORDED).slice();
  // Handles and sizes are small numbers anywhere after the response pointer.
  const fields = new DataView(bytes.buffer);
  const words = Math.floor((bytes.length - HEADER_BYTES) / 4);
  for (let count = draws.between(1, 4); count > 0 && words > 0; count--) {
    const at = HEADER_BYTES + 4 * draws.below(words);
    const value = draws.oneIn(6) ? draws.word() : draws.oneIn(2) ? handle(draws) : size(draws, 64);
    fields.setUint32(at, value, true);
  }
  return bytes;
}

/** One program on a RoCE device; it remembers the rings that the daemon reported. */
function roceWorld(): VerbsWorld {
  const known: (readonly [number, bigint])[] = [];
  return {
    transport: 'roce',
    start: [
      plain(0, 8, RSP),
      commands.allocPD(),
      commands.createCompChannel(),
      commands.createCQ(1n, 16),
      plain(32, 40, `${RSP} ${le(2, 8)} ${le(0)} ${le(8)} ${le(2)} ${le(1)}`),
      commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, srq: 2 }),
      commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }),
      commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, type: 4 }),
    ],
    corpus: RECORDED,
    command,
    learn(response) {
      const fields = new DataView(response.buffer, response.byteOffset, response.length);
      for (let at = 0; at + 16 <= response.length; at += 8) {
        const offset = Number(fields.getBigUint64(at, true));
        const bytes = fields.getUint32(at + 8, true);
        const isRing = offset > 0 && offset % PAGE === 0 && bytes > 0 && bytes % PAGE === 0;
        if (isRing && Number.isSafeInteger(offset)) known.push([offset, BigInt(bytes)]);
      }
      known.splice(0, Math.max(0, known.length - KNOWN_MAX));
    },
    ringAt(draws) {
      const found = known[draws.below(Math.max(1, known.length))];
      if (found === undefined || draws.oneIn(6)) {
        return [Number(draws.wide() >> 11n), draws.wide()];
      }
      return found;
    },
    scribbleRing(ring, draws) {
      if (ring.length < SLOTS + SLOT_BYTES) return;
      const view = new DataView(ring.buffer, ring.byteOffset, ring.length);
      for (let count = draws.between(1, 3); count > 0; count--) {
        const slots = Math.floor((ring.length - SLOTS) / SLOT_BYTES);
        const at = SLOTS + SLOT_BYTES * draws.below(Math.min(slots, 16));
        for (const [place, value] of [
          [OPCODE, draws.below(draws.oneIn(8) ? 256 : 16)],
          [OPCODE + 4, draws.below(16)],
          [24, draws.word()],
          [32, draws.below(40)],
          [NUM_SGE, draws.oneIn(8) ? draws.word() : draws.below(3)],
          [SGE + 8, size(draws, 200)],
          [SGE + 12, draws.word()],
        ] as const) {
          if (at + place + 4 <= ring.length) view.setUint32(at + place, value, true);
        }
        if (at + SGE + 8 <= ring.length) view.setBigUint64(at + SGE, OWN_START, true);
        if (draws.oneIn(4)) scribble(ring, at, draws);
      }
      view.setUint32(PRODUCER, draws.oneIn(8) ? draws.word() : draws.below(16), true);
      if (draws.oneIn(8)) scribble(ring, draws.below(SLOTS), draws);
    },
  };
}

/** Commands, mappings, rings and doorbells of a file on a RoCE device. */
export const kernelRoce: FuzzTarget = {
  name: 'kernel-roce',
  about: "uverbs commands of rxe's provider, mappings, doorbells and rings with indices",
  batchInputs: 4_000,
  weight: 10_000,
  smokeInputs: 5_000,
  canary: KEPT_RINGS,
  open: () => new VerbsState(roceWorld()),
};
