/** IP and UDP headers of RoCEv2: a real queue pair and a raw peer that reads and sets them. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { QPType } from '#contract/verbs/enums';
import { gidBytes } from '#daemon/host/host-addresses';
import {
  IncomingBatch,
  OutgoingBatch,
  type UdpDestination,
} from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { until } from '../support/patience.ts';
import { PEER } from '../support/program-steps.ts';
import { digits, Op, RAW_PORT } from '../support/raw-roce.ts';
import { PEER_PSN, RoceFacing, type Said, STRANGERS } from '../support/roce-facing.ts';

const { success } = CQEStatus;
const QKEY = 0x1111_1111;
const [GRH_BYTES, IPV4_AT] = [40, 20];
/** Congestion experienced (RFC 3168). */
const CE = 3;
const BUFFER_BYTES = 65_536;

/** A peer whose socket reports and chooses the fields of IP that the kernel fills in. */
class HeaderPeer implements Disposable {
  readonly #fd = openUdp(STRANGERS, RAW_PORT, BUFFER_BYTES).fd;
  readonly #incoming = new IncomingBatch(1, BUFFER_BYTES);
  readonly #sender = new Uint8Array(16);

  /** Sends a packet to the queue pair under test, with this type of service. */
  say(facing: RoceFacing, packet: Said, trafficClass: number): void {
    const flow = { from: STRANGERS, fromPort: RAW_PORT, to: facing.address };
    const bytes = facing.sealed(packet, flow);
    const batch = new OutgoingBatch(1, bytes.length);
    const name = socketAddress(facing.address, RAW_PORT);
    batch.bytes.set(bytes, batch.slotAt(0));
    batch.add(bytes.length, { name, trafficClass, hopLimit: 0 } satisfies UdpDestination);
    expect(batch.send(this.#fd, 0)).toBe(1);
  }

  /** Opcode and headers of a packet that has arrived; undefined if there is none. */
  take(): { opcode: number; trafficClass: number; hopLimit: number; port: number } | undefined {
    const batch = this.#incoming;
    if (batch.receive(this.#fd) !== 1) return undefined;
    return {
      opcode: batch.bytes[batch.slotAt(0)] as number,
      trafficClass: batch.trafficClassOf(0),
      hopLimit: batch.hopLimitOf(0),
      port: batch.readSender(0, this.#sender),
    };
  }

  [Symbol.dispose](): void {
    closeDescriptor(this.#fd);
  }
}

/** A queue pair that is connected to such a peer, with this traffic class and hop limit. */
function facingHeaders(
  type: QPType,
  [trafficClass, hopLimit]: readonly [number, number],
): Promise<RoceFacing> {
  const ahAttr = { ...PEER, dgid: gidBytes(STRANGERS), trafficClass, hopLimit };
  return RoceFacing.open(type, { ahAttr, qkey: QKEY });
}

describe('packets of a connection', () => {
  it('carry the traffic class and hop limit of its address vector, and leave from one port [ROCE-UDP-06, ROCE-UDP-07]', async () => {
    using peer = new HeaderPeer();
    await using facing = await facingHeaders(QPType.rc, [0x68, 9]);
    const { end } = facing;
    const headers = { trafficClass: 0x68, hopLimit: 9, port: RAW_PORT };
    end.receives.post(9, [end.piece(0, 64)]);
    peer.say(facing, { opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '01020304' }, 0);
    const answer = await until('the answer', () => peer.take());
    expect(answer).toEqual({ opcode: Op.acknowledge, ...headers });
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [end.piece(0, 8)] });
    end.ring();
    const request = await until('the request', () => peer.take());
    expect(request).toEqual({ opcode: Op.sendOnly, ...headers });
  });
});

describe('a packet that a switch has marked', () => {
  it('is accepted, and no notification answers it [ROCE-CNP-01, ROCE-ICRC-04]', async () => {
    using peer = new HeaderPeer();
    await using facing = await facingHeaders(QPType.rc, [0, 64]);
    facing.end.receives.post(9, [facing.end.piece(0, 64)]);
    const send = { opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '01020304' };
    peer.say(facing, send, CE);
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(await until('the answer', () => peer.take())).toMatchObject({ opcode: Op.acknowledge });
    // A notification would have come before the answer to a later packet.
    facing.end.receives.post(10, [facing.end.piece(0, 64)]);
    peer.say(facing, { ...send, psn: PEER_PSN + 1 }, CE);
    expect(await until('the answer', () => peer.take())).toMatchObject({ opcode: Op.acknowledge });
    expect(peer.take()).toBeUndefined();
  });

  it('reaches a program with its mark, in the header before a datagram [ROCE-GRH-02]', async () => {
    using peer = new HeaderPeer();
    await using facing = await facingHeaders(QPType.ud, [0, 64]);
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    peer.say(facing, { opcode: Op.udSendOnly, rest: `${digits(QKEY, 8)}0000012301020304` }, CE);
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect([...end.memory.subarray(IPV4_AT, IPV4_AT + 2)]).toEqual([0x45, CE]);
    expect(end.memory[GRH_BYTES]).toBe(1);
  });
});
