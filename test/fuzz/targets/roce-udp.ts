/**
 * Datagrams to a RoCE device from another host, through real sockets: raw bytes, and packets with a
 * right ICRC and hostile content, from a queue pair's peer and from strangers.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { QPState, QPType } from '#contract/verbs/enums';
import { gidBytes } from '#daemon/host/host-addresses';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { QP } from '#daemon/rnic/queue-pair';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, ROCE_PORT, writeIcrc } from '#daemon/roce/wire/icrc';
import { packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import {
  IncomingBatch,
  OutgoingBatch,
  type UdpDestination,
} from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp } from '#native-bridge/libc/udp-socket';
import type { Draws } from '#test/support/draws';
import { ReceiveProducer } from '#test/support/flag-ring-client';
import { hexOf } from '#test/support/hex';
import { scribble } from '#test/support/mutate';
import { ownAddress } from '#test/support/own-address';
import { MASKS, PEER, VALUES } from '#test/support/program-steps';
import { queueSizes } from '#test/support/queue-sizes';
import { OPCODES, packetOf } from '#test/support/roce-packets';
import { ALL_ACCESS, MEMORY_ADDRESS } from '#test/support/test-memory';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

const [OWN, THEIRS, STRANGE] = [ownAddress(20), ownAddress(21), ownAddress(22)];
/** The middle part is registered; the others catch writes beside it. */
const REGION_BYTES = 0x4000;
const GUARD = 0x5a;
/** Datagrams of one input, and bytes of one: more than any packet has. */
const DATAGRAMS_MAX = 16;
const DATAGRAM_BYTES_MAX = 4400;
const BUFFER_BYTES = 1 << 20;
const PSN = 0xfffff0;
const QKEY = 0x1111;
const PEER_QPN = 0x77;
const TURNS_MAX = 20_000;
const TYPES = [QPType.rc, QPType.uc, QPType.ud] as const;

/** The expected counter of a sent datagram. */
interface Expectation {
  sent: number;
  /** Datagrams with a right ICRC. */
  whole: number;
}

class UdpState implements FuzzState {
  readonly #host = new RnicHost({
    system: hostSystem(),
    roce: ROCE_NETWORK,
    devices: [
      { name: 'fuzzed', addresses: [OWN], transport: 'roce' },
      { name: 'beside', addresses: [ownAddress(23)], transport: 'roce' },
    ],
  });
  readonly #memory = new Uint8Array(3 * REGION_BYTES).fill(GUARD);
  readonly #qps = new Map<QPType, QP>();
  readonly #sockets = [THEIRS, STRANGE].map((address) => {
    return { ...openUdp(address, ROCE_PORT, BUFFER_BYTES), gid: gidBytes(address) };
  });
  readonly #out = new OutgoingBatch(DATAGRAMS_MAX, DATAGRAM_BYTES_MAX);
  readonly #answers = new IncomingBatch(DATAGRAMS_MAX, DATAGRAM_BYTES_MAX);
  readonly #target: UdpDestination = {
    name: socketAddress(OWN, ROCE_PORT),
    trafficClass: 0,
    hopLimit: 0,
  };
  readonly #makeQP: (type: QPType) => QP;
  readonly #rkey: number;
  readonly #witness: QP;

  constructor() {
    const [fuzzed, beside] = this.#host.devices;
    if (fuzzed === undefined || beside === undefined) throw new Error('the host has two devices');
    const { nic } = fuzzed;
    const pd = nic.allocPD();
    const mr = nic.regMR(pd, {
      backing: new ViewBacking(this.#memory),
      backingOffset: REGION_BYTES,
      lengthBytes: REGION_BYTES,
      address: MEMORY_ADDRESS,
      iova: MEMORY_ADDRESS,
      access: ALL_ACCESS,
      key: undefined,
    });
    this.#rkey = mr.rkey;
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    const capabilities = queueSizes(4, 64);
    const cq = nic.createCQ({ cqe: 32_000, ring, tag: undefined });
    this.#makeQP = (type) => {
      const queues = { sendCQ: cq, recvCQ: cq, srq: undefined, ring, tag: undefined };
      const qp = nic.createQP(pd, { type, ...queues, capabilities, sqSigAll: false });
      const receives = new ReceiveProducer(qp.ring, qp.rqOffset, qp.rqCount);
      for (let count = 0; count < 32; count += 1) {
        receives.post(count, [{ addr: MEMORY_ADDRESS, length: REGION_BYTES, lkey: mr.lkey }]);
      }
      this.#bring(qp, THEIRS, PEER_QPN);
      return qp;
    };
    for (const type of TYPES) this.#qps.set(type, this.#makeQP(type));
    const far = beside.nic;
    const witnessQueue = far.createCQ({ cqe: 16, ring, tag: undefined });
    this.#witness = far.createQP(far.allocPD(), {
      type: QPType.rc,
      ...{ sendCQ: witnessQueue, recvCQ: witnessQueue, srq: undefined, ring, tag: undefined },
      capabilities,
      sqSigAll: false,
    });
    this.#bring(this.#witness, OWN, 1);
  }

  #bring(qp: QP, address: string, destQpNum: number): void {
    const ahAttr = { ...PEER, dgid: gidBytes(address) };
    const values = { ...VALUES, ahAttr, destQpNum, qkey: QKEY, rqPsn: PSN };
    const [init, rtr, rts] = MASKS[qp.type];
    for (const [state, mask] of [
      [QPState.INIT, init],
      [QPState.RTR, rtr],
      [QPState.RTS, rts],
    ] as const) {
      const change = { ...values, accessFlags: 15, state, curState: qp.state, mask };
      qp.modifyPath(change, this.#host.now());
    }
    this.#host.drain();
  }

  async run(draws: Draws): Promise<Outcome> {
    const before = this.#counted();
    const expected: Expectation = { sent: 0, whole: 0 };
    const socket = draws.oneIn(6) ? this.#sockets[1] : this.#sockets[0];
    if (socket === undefined) throw new Error('there are two sockets');
    for (let count = 1 + draws.below(DATAGRAMS_MAX); count > 0; count -= 1) {
      const start = this.#out.slotAt(this.#out.count);
      const length = draws.oneIn(3)
        ? this.#raw(draws, start)
        : this.#packet(draws, start, socket.gid, expected);
      if (draws.recording) draws.show(hexOf(this.#out.bytes.subarray(start, start + length)));
      this.#out.add(length, this.#target);
      expected.sent += 1;
    }
    const taken = this.#out.send(socket.fd, 0);
    claim(taken === expected.sent, `the kernel took ${taken} of ${expected.sent} datagrams`);
    this.#out.clear();
    for (let turns = 0; this.#counted().all - before.all < expected.sent; turns += 1) {
      claim(turns < TURNS_MAX, 'a datagram was not counted');
      await turn();
    }
    const after = this.#counted();
    claim(after.all - before.all === expected.sent, 'a datagram counts once');
    const passed = expected.sent - (after.damaged - before.damaged);
    claim(passed >= expected.whole, 'a packet with a right ICRC was dropped for its ICRC');
    this.#check();
    return after.taken > before.taken ? 'taken' : 'dropped';
  }

  /** Random bytes. */
  #raw(draws: Draws, start: number): number {
    const length = draws.oneIn(4) ? draws.below(DATAGRAM_BYTES_MAX) : draws.below(80);
    scribbleAll(this.#out.bytes, start, length, draws);
    return length;
  }

  /** A plausible packet, with a right ICRC in most cases. */
  #packet(draws: Draws, start: number, source: Uint8Array, expected: Expectation): number {
    const packet = packetOf(draws.pick(OPCODES));
    const qps = [...this.#qps.values()];
    const qp = draws.pick(qps);
    packet.pkey = draws.oneIn(20) ? draws.below(0x1_0000) : 0xffff;
    packet.destQpn = draws.oneIn(10) ? draws.below(2 ** 24) : qp.qpn;
    const { rqPsn = 0 } = qp.wire as { readonly rqPsn?: number };
    packet.psn = (rqPsn + (draws.oneIn(3) ? draws.below(8) - 4 : 0)) & 0xff_ffff;
    packet.qkey = draws.oneIn(4) ? draws.below(2 ** 32) : QKEY;
    packet.rkey = draws.oneIn(4) ? draws.below(2 ** 32) : this.#rkey;
    packet.vaHi = draws.oneIn(16) ? draws.below(2 ** 32) : 0;
    packet.vaLo = (MEMORY_ADDRESS + draws.below(REGION_BYTES + 64) - 32) >>> 0;
    packet.dmaLength = draws.oneIn(8) ? draws.below(2 ** 32) : draws.below(8192);
    if (packet.payloadLength > 0 && draws.oneIn(2)) {
      packet.payloadLength = draws.oneIn(2) ? 1024 : 1 + draws.below(4096);
    }
    const { bytes } = this.#out;
    const end = start + packetBytes(packet);
    bytes.fill(draws.below(256), writeHeaders(bytes, start, packet), end);
    if (draws.oneIn(3)) scribble(bytes.subarray(start, end), draws.below(24), draws);
    const datagram = new Datagram();
    datagram.sourceGid.set(source);
    datagram.destGid.set(gidBytes(OWN));
    datagram.sourcePort = ROCE_PORT;
    datagram.identification = draws.oneIn(2) ? draws.below(0x1_0000) : 0;
    datagram.packetLength = end - start;
    const whole = new Uint8Array(28 + datagram.packetLength);
    const bth = writeDatagramHeaders(whole, 0, datagram);
    whole.set(bytes.subarray(start, end), bth);
    writeIcrc(bytes, end, icrcOf(crc32, whole, 0, bth, whole.length));
    if (draws.oneIn(8)) scribble(bytes.subarray(start, end), draws.below(end - start), draws);
    else expected.whole += 1;
    return end - start + ICRC_BYTES;
  }

  #counted(): { readonly all: number; readonly damaged: number; readonly taken: number } {
    const { hwCounters, linkCounters } = this.#host.devices[0] ?? {};
    const taken = hwCounters?.['rcvd_pkts'] ?? 0;
    const damaged = linkCounters?.['rx_icrc_encapsulated'] ?? 0;
    const others = ['rx_malformed', 'rx_bad_pkey', 'rx_unexpected'].map((name) => {
      return linkCounters?.[name] ?? 0;
    });
    return { all: others.reduce((sum, each) => sum + each, taken + damaged), damaged, taken };
  }

  #check(): void {
    this.#host.assertDeepInvariants();
    for (const [from, to] of [
      [0, REGION_BYTES],
      [2 * REGION_BYTES, 3 * REGION_BYTES],
    ] as const) {
      claim(
        this.#memory.subarray(from, to).every((byte) => byte === GUARD),
        'memory that is not registered was written',
      );
    }
    claim(this.#witness.state === QPState.RTS, 'a queue pair beside the packets failed');
    // No peer waits for answers.
    for (const { fd } of this.#sockets) while (this.#answers.receive(fd) > 0);
    for (const [type, qp] of this.#qps) {
      if (qp.state === QPState.RTS) continue;
      qp.close(this.#host.now());
      this.#qps.set(type, this.#makeQP(type));
    }
  }

  async close(): Promise<void> {
    for (const qp of [...this.#qps.values(), this.#witness]) qp.close(this.#host.now());
    this.#host.drain();
    await this.#host.close();
    for (const { fd } of this.#sockets) closeDescriptor(fd);
  }
}

function scribbleAll(bytes: Uint8Array, start: number, length: number, draws: Draws): void {
  for (let at = 0; at < length; at += 4) {
    const word = draws.below(2 ** 32);
    for (let byte = 0; byte < 4 && at + byte < length; byte += 1) {
      bytes[start + at + byte] = word >>> (8 * byte);
    }
  }
}

export const roceUdp: FuzzTarget = {
  name: 'wire-roce-udp',
  about: 'datagrams of other hosts to RoCE queue pairs, through real sockets, beside a witness',
  batchInputs: 2000,
  weight: 2000,
  smokeInputs: 1000,
  // A receiver that sees datagrams without their end.
  canary: canary(200, IncomingBatch.prototype, 'lengthOf', (lengthOf, index) =>
    Math.max(lengthOf(index) - ICRC_BYTES, 0),
  ),
  open: () => new UdpState(),
};
