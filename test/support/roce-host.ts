/** A host with RoCE devices on simulated time, and queue pairs of programs on them. */
import { SQOpcode } from '#contract/protocol/queue-layout';
import { Access, QPState, QPType } from '#contract/verbs/enums';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK, type RoceNetwork } from '#daemon/host/roce/roce-network';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import { CompletionConsumer, ReceiveProducer, SendProducer } from './flag-ring-client.ts';
import { Prng } from './prng.ts';
import { MASKS, mappedGid, PEER, VALUES } from './program-steps.ts';
import { queueSizes } from './queue-sizes.ts';
import { ALL_ACCESS, MEMORY_ADDRESS } from './test-memory.ts';
import { VirtualClock, VirtualTime } from './virtual-time.ts';

/** Local write, and remote write, read and atomic. */
const ALL_RIGHTS = 15;
const MEMORY_BYTES = 1 << 20;
const DEPTH = 64;
/** More than any of the suite's conversations takes. */
const STEPS_MAX = 100_000;

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** GID of the device with this number, at index 1 of its table; index 2 has another one. */
function gidOf(device: number): Uint8Array {
  return mappedGid(127, 0, 0, 2 + device);
}

/** The host and the device of a queue pair. */
type Home = Pick<RoceWorld, 'host' | 'device'>;

/** A queue pair with its own memory and queues. */
export class RoceEnd {
  readonly qp: QP;
  readonly mr: MR;
  readonly memory = new Uint8Array(MEMORY_BYTES);
  readonly sends: SendProducer;
  readonly receives: ReceiveProducer;
  readonly completions: CompletionConsumer;
  readonly device: number;
  readonly #world: Home;

  constructor(
    world: Home,
    device: number,
    type: QPType,
    backing: (bytes: Uint8Array) => MemoryBacking,
  ) {
    this.#world = world;
    this.device = device;
    const { nic } = world.device(device);
    const pd = nic.allocPD();
    const reached = backing(this.memory);
    // Atomics run at once, so they cannot use slow memory.
    const withheld = reached.tier === 'agent' ? Access.remoteAtomic : 0;
    this.mr = nic.regMR(pd, {
      backing: reached,
      backingOffset: 0,
      lengthBytes: MEMORY_BYTES,
      address: MEMORY_ADDRESS,
      iova: MEMORY_ADDRESS,
      access: ALL_ACCESS & ~withheld,
      key: undefined,
    });
    const cq = nic.createCQ({ cqe: 4 * DEPTH, ring, tag: undefined });
    const capabilities = queueSizes(DEPTH, DEPTH, 2, 32);
    const queues = { sendCQ: cq, recvCQ: cq, srq: undefined, ring, tag: undefined };
    this.qp = nic.createQP(pd, { type, ...queues, capabilities, sqSigAll: false });
    this.sends = new SendProducer(this.qp);
    this.receives = new ReceiveProducer(this.qp.ring, this.qp.rqOffset, this.qp.rqCount);
    this.completions = new CompletionConsumer(cq);
  }

  /** A piece of the end's memory. */
  piece(offset: number, length: number): { addr: number; length: number; lkey: number } {
    return { addr: MEMORY_ADDRESS + offset, length, lkey: this.mr.lkey };
  }

  /** Address of a byte of this end's memory, as the peer names it. */
  address(offset: number): bigint {
    return BigInt(MEMORY_ADDRESS + offset);
  }

  /** Posts a Send of a piece of its memory. */
  send(wrId: number, offset: number, length: number): void {
    this.sends.post({ opcode: SQOpcode.send, wrId, sges: [this.piece(offset, length)] });
  }

  /** Posts a Write of a piece of its memory to `at` in the peer's. */
  write(wrId: number, offset: number, length: number, peer: RoceEnd, at = 0): void {
    this.#postRemote(SQOpcode.write, wrId, offset, length, peer, at);
  }

  /** Posts a Read into a piece of its memory from `at` in the peer's. */
  read(wrId: number, offset: number, length: number, peer: RoceEnd, at = 0): void {
    this.#postRemote(SQOpcode.read, wrId, offset, length, peer, at);
  }

  #postRemote(
    opcode: number,
    wrId: number,
    offset: number,
    length: number,
    peer: RoceEnd,
    at: number,
  ): void {
    const sges = [this.piece(offset, length)];
    this.sends.post({ opcode, wrId, sges, raddr: peer.address(at), rkey: peer.mr.rkey });
  }

  modify(state: QPState, mask: number, values: Partial<QPModification> = {}): void {
    const change = { ...VALUES, state, curState: this.qp.state, ...values, mask };
    this.qp.modifyPath(change, this.#world.host.now());
    this.#world.host.drain();
  }

  /** Goes to RTS towards `peer`, or no further than RTR. */
  connect(
    peer: RoceEnd,
    values: Partial<QPModification> = {},
    state: typeof QPState.RTR | typeof QPState.RTS = QPState.RTS,
  ): void {
    const [init, rtr, rts] = MASKS[this.qp.type];
    const path = {
      ahAttr: { ...PEER, dgid: gidOf(peer.device) },
      destQpNum: peer.qp.qpn,
      rqPsn: 0xfffffe,
      sqPsn: 0xfffffe,
      pathMtu: 5,
      accessFlags: ALL_RIGHTS,
      ...values,
    };
    this.modify(QPState.INIT, init, path);
    this.modify(QPState.RTR, rtr, path);
    if (state === QPState.RTS) this.modify(QPState.RTS, rts, path);
  }

  ring(): void {
    this.#world.host.doorbell(this.qp);
  }
}

export class RoceWorld {
  readonly time = new VirtualTime();
  readonly host: RnicHost;

  /** A host that sends no packets, except by a UDP of `roce` other than the kernel's. */
  constructor(devices = 2, roce: RoceNetwork | null = ROCE_NETWORK) {
    const outward = roce !== null && roce.udp !== ROCE_NETWORK.udp;
    const network = {
      hold: () => {
        throw new Error('no TCP here');
      },
      sourceAddress: () => '127.0.0.1',
    };
    this.host = new RnicHost({
      system: { clock: new VirtualClock(this.time, new Prng(1)), network, outward },
      roce: roce ?? undefined,
      devices: Array.from({ length: devices }, (_, index) => ({
        name: `roce${index}`,
        addresses: [`127.0.0.${2 + index}`, `127.0.1.${2 + index}`],
        transport: 'roce' as const,
      })),
    });
  }

  device(index: number): EmulatedDevice {
    const device = this.host.devices[index];
    if (device === undefined) throw new Error(`no device ${index}`);
    return device;
  }

  end(
    device: number,
    type: QPType = QPType.rc,
    backing: (bytes: Uint8Array) => MemoryBacking = (bytes) => new ViewBacking(bytes),
  ): RoceEnd {
    return new RoceEnd(this, device, type, backing);
  }

  /** Two connected ends, and the memory of the second, which `backing` makes. */
  pairOn<Backing extends MemoryBacking>(
    backing: (bytes: Uint8Array) => Backing,
  ): [RoceEnd, RoceEnd, Backing] {
    const made: Backing[] = [];
    const a = this.end(0);
    const b = this.end(1, QPType.rc, (bytes) => {
      const memory = backing(bytes);
      made.push(memory);
      return memory;
    });
    a.connect(b);
    b.connect(a);
    const [memory] = made;
    if (memory === undefined) throw new Error('an end without memory');
    return [a, b, memory];
  }

  /** Two ends that are connected with each other. */
  pair(type: QPType = QPType.rc, values: Partial<QPModification> = {}): [RoceEnd, RoceEnd] {
    const ends: [RoceEnd, RoceEnd] = [this.end(0, type), this.end(1, type)];
    ends[0].connect(ends[1], values);
    ends[1].connect(ends[0], values);
    return ends;
  }

  /** Runs everything that is due within `micros`. */
  run(micros = 0): void {
    const end = this.time.now + micros;
    for (let step = 0; step < STEPS_MAX; step += 1) {
      if (!this.time.busy && (this.time.nextDue ?? Number.POSITIVE_INFINITY) > end) {
        this.time.now = Math.max(this.time.now, end);
        this.host.assertDeepInvariants();
        return;
      }
      this.time.step();
    }
    throw new Error('the host does not come to rest');
  }
}
