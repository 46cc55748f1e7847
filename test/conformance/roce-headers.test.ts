/** Headers and ICRC of RoCEv2: a real queue pair and a raw peer, over UDP. */
import { createSocket, type Socket } from 'node:dgram';
import { describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import { concat, hexOf } from '../support/hex.ts';
import { Op, RAW_PORT, type RawPacket, rawIcrc, reth, writePacket } from '../support/raw-roce.ts';
import {
  OUR_PSN,
  PEER_PSN,
  PEER_QPN,
  RoceFacing,
  type Said,
  STRANGERS,
  THEIRS,
} from '../support/roce-facing.ts';

const { success } = CQEStatus;
const MTU = 256;
/** An AETH that acknowledges, without credits. */
const ACK = '1f';

/** Bytes of the end's memory, as hexadecimal text. */
function memory({ end }: RoceFacing, length: number, start = 0): string {
  return hexOf(end.memory.subarray(start, start + length));
}

/** Fills the start of the end's memory. */
function fill({ end }: RoceFacing, length: number): string {
  for (let at = 0; at < length; at += 1) end.memory[at] = (at * 7 + 3) & 0xff;
  return hexOf(end.memory.subarray(0, length));
}

async function socketAt(address: string, port: number): Promise<Socket> {
  const socket = createSocket('udp4');
  await new Promise<void>((resolve) => socket.bind(port, address, resolve));
  return socket;
}

describe('packets of a queue pair', () => {
  it('go to UDP port 4791 with the P_Key, queue pair, PSN and ICRC of their connection [ROCE-UDP-01, ROCE-BTH-01, ROCE-BTH-02, ROCE-BTH-03, ROCE-BTH-04, ROCE-BTH-05, ROCE-ICRC-01, ROCE-ICRC-02, ROCE-OPC-01, ROCE-PSN-01]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const bytes = fill(facing, 8);
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [end.piece(0, 8)] });
    end.ring();
    // `answers` has checked the ICRC of each.
    expect(await facing.answers(1)).toEqual([
      {
        opcode: Op.sendOnly,
        solicited: false,
        pad: 0,
        version: 0,
        pkey: 0xffff,
        variant: 0,
        destQpn: PEER_QPN,
        ackRequest: true,
        psn: OUR_PSN,
        rest: bytes,
      } satisfies RawPacket,
    ]);
  });

  it('are padded with zeros to a multiple of four bytes, and say by how many [ROCE-BTH-06, ROCE-BTH-07]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const bytes = fill(facing, 8);
    for (const length of [5, 6, 7, 8]) {
      end.sends.post({ opcode: SQOpcode.send, wrId: length, sges: [end.piece(0, length)] });
    }
    end.ring();
    const packets = await facing.requests(4);
    expect(packets.map(({ pad, rest }) => [pad, rest])).toEqual([
      [3, `${bytes.slice(0, 10)}000000`],
      [2, `${bytes.slice(0, 12)}0000`],
      [1, `${bytes.slice(0, 14)}00`],
      [0, bytes],
    ]);
  });

  it('solicit an event in the last packet of a message that asks for it, and in no other [ROCE-BTH-08]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const flags = QueueFlag.signalled | QueueFlag.solicited;
    const sges = [end.piece(0, 2 * MTU)];
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, flags, sges });
    end.sends.post({ opcode: SQOpcode.send, wrId: 2, sges });
    end.ring();
    const packets = await facing.requests(4);
    expect(packets.map(({ opcode, solicited }) => [opcode, solicited])).toEqual([
      [Op.sendFirst, false],
      [Op.sendLast, true],
      [Op.sendFirst, false],
      [Op.sendLast, false],
    ]);
  });

  it('of a Write name address, key and length of the message only in its first packet [ROCE-BTH-09, ROCE-OPC-02, ROCE-MTU-01]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const bytes = fill(facing, 2 * MTU + 4);
    end.sends.post({
      opcode: SQOpcode.write,
      wrId: 1,
      sges: [end.piece(0, 2 * MTU + 4)],
      raddr: 0x1_0203_0405_0607n,
      rkey: 0x8899_aabb,
    });
    end.ring();
    const packets = await facing.requests(3);
    expect(packets.map(({ opcode, psn, rest }) => [opcode, psn - OUR_PSN, rest])).toEqual([
      [
        Op.writeFirst,
        0,
        `${reth(0x1_0203_0405_0607n, 0x8899_aabb, 2 * MTU + 4)}${bytes.slice(0, 2 * MTU)}`,
      ],
      [Op.writeMiddle, 1, bytes.slice(2 * MTU, 4 * MTU)],
      [Op.writeLast, 2, bytes.slice(4 * MTU)],
    ]);
  });

  it('carry immediate data, and the key to invalidate, only in the last packet [ROCE-BTH-10, ROCE-BTH-11, ROCE-OPC-03]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const bytes = fill(facing, MTU + 4);
    const sges = [end.piece(0, MTU + 4)];
    const immediate = 0xdead_beefn;
    end.sends.post({ opcode: SQOpcode.sendWithImm, wrId: 1, sges, immediate });
    end.sends.post({ opcode: SQOpcode.sendRemoteInv, wrId: 2, sges, rkey: 0x1234_5678 });
    end.ring();
    const packets = await facing.requests(4);
    expect(packets.map(({ opcode, rest }) => [opcode, rest])).toEqual([
      [Op.sendFirst, bytes.slice(0, 2 * MTU)],
      [Op.sendLastImmediate, `deadbeef${bytes.slice(2 * MTU)}`],
      [Op.sendFirst, bytes.slice(0, 2 * MTU)],
      [Op.sendLastInvalidate, `12345678${bytes.slice(2 * MTU)}`],
    ]);
  });

  it('without payload have no bytes after their headers [ROCE-OPC-04]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [] });
    end.ring();
    const [packet] = await facing.requests(1);
    expect(packet).toMatchObject({ opcode: Op.sendOnly, pad: 0, rest: '' });
  });
});

describe('a received packet', () => {
  /** Sends packets of which only the last is accepted: a Send that completes the receive. */
  async function onlyLast(
    facing: RoceFacing,
    wrong: readonly (Uint8Array | Said)[],
  ): Promise<void> {
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    for (const packet of wrong) {
      if (packet instanceof Uint8Array) facing.sayBytes(packet);
      else facing.say(packet);
    }
    facing.say({ opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '01020304' });
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(memory(facing, 4)).toBe('01020304');
    // No other packet was answered.
    const [answer] = await facing.answers(1);
    expect(answer).toMatchObject({ opcode: Op.acknowledge, psn: PEER_PSN });
    await facing.silence();
  }
  const send = { opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '99999999' };

  it('with a wrong ICRC is dropped without an answer [ROCE-ICRC-03]', async () => {
    await using facing = await RoceFacing.open();
    const damaged = facing.sealed(send);
    damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
    const flipped = facing.sealed(send);
    flipped[13] = (flipped[13] ?? 0) ^ 0x10;
    await onlyLast(facing, [damaged, flipped]);
    expect(facing.counters.icrcErrors).toBe(2);
  });

  it('may have any bits of congestion, which the ICRC does not cover, and no notification answers them [ROCE-ICRC-04, ROCE-CNP-01]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    const marked = facing.sealed({ opcode: Op.sendOnly, psn: PEER_PSN, rest: '0a0b0c0d' });
    marked[4] = 0xc0;
    facing.sayBytes(marked);
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(facing.counters.icrcErrors).toBe(0);
    // A notification of congestion: 16 reserved bytes after the base header.
    facing.say({ opcode: 0x81, rest: '00'.repeat(16) });
    await facing.arrived(2);
    await facing.silence();
    expect(end.qp.state).toBe(QPState.RTS);
  });

  it('may have any reserved bits, and the bit of path migration [ROCE-BTH-23]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    const destQpn = end.qp.qpn;
    const bytes = writePacket({ opcode: Op.sendOnly, psn: PEER_PSN, destQpn, rest: '0a0b0c0d' });
    for (const [at, bits] of [
      [1, 0x40],
      [4, 0x3f],
      [8, 0x7f],
    ] as const) {
      bytes[at] = (bytes[at] ?? 0) | bits;
    }
    const icrc = rawIcrc({ from: THEIRS, fromPort: RAW_PORT, to: facing.address }, bytes);
    facing.sayBytes(concat(bytes, icrc));
    expect(await facing.outcome(1)).toEqual([[9, success]]);
  });

  it('with another P_Key is dropped; one of a limited member is taken [ROCE-BTH-12, ROCE-BTH-13]', async () => {
    await using facing = await RoceFacing.open();
    await onlyLast(facing, [
      { ...send, pkey: 0x8001 },
      { ...send, pkey: 0x0000 },
    ]);
    expect(facing.counters.badPkeys).toBe(2);
    const { end } = facing;
    end.receives.post(10, [end.piece(0, 64)]);
    facing.say({ opcode: Op.sendOnly, psn: PEER_PSN + 1, pkey: 0x7fff, rest: '01020304' });
    expect(await facing.outcome(1)).toEqual([[10, success]]);
  });

  it('of another transport version, or a reserved opcode, is dropped [ROCE-BTH-14, ROCE-BTH-15]', async () => {
    await using facing = await RoceFacing.open();
    await onlyLast(facing, [
      { ...send, version: 1 },
      { ...send, opcode: 0x15 },
      { ...send, opcode: 0x1f },
      { ...send, opcode: 0x44 },
    ]);
    expect(facing.counters.malformed).toBe(4);
  });

  it('of the other connected service is dropped [ROCE-OPC-05]', async () => {
    await using facing = await RoceFacing.open();
    await onlyLast(facing, [
      { ...send, opcode: 0x24 },
      { ...send, opcode: Op.udSendOnly, rest: '00000000 00000001 99999999' },
    ]);
  });

  it('to another queue pair, or from another address than its peer’s, is dropped [ROCE-BTH-16, ROCE-GRH-01]', async () => {
    await using facing = await RoceFacing.open();
    const stranger = await socketAt(STRANGERS, RAW_PORT);
    const flow = { from: STRANGERS, fromPort: RAW_PORT, to: facing.address };
    stranger.send(facing.sealed(send, flow), RAW_PORT, facing.address);
    await facing.arrived(1);
    await onlyLast(facing, [{ ...send, destQpn: (facing.end.qp.qpn + 1) & 0xff_ffff }]);
    expect(facing.counters.unexpected).toBe(2);
    stranger.close();
  });

  it('may come from any UDP port [ROCE-UDP-02]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const other = await socketAt(THEIRS, 0);
    end.receives.post(9, [end.piece(0, 64)]);
    const flow = { from: THEIRS, fromPort: other.address().port, to: facing.address };
    const bytes = facing.sealed({ opcode: Op.sendOnly, psn: PEER_PSN, rest: '01020304' }, flow);
    other.send(bytes, RAW_PORT, facing.address);
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    other.close();
  });

  it('is taken without its padding, and dropped if that is longer than its payload [ROCE-BTH-17, ROCE-BTH-18]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    await onlyLast(facing, [{ ...send, pad: 3, rest: '' }]);
    end.receives.post(10, [end.piece(0, 64)]);
    facing.say({ opcode: Op.sendOnly, psn: PEER_PSN + 1, pad: 1, rest: 'a1a2a300' });
    let bytes = -1;
    await expect
      .poll(() => {
        bytes = end.completions.poll()[0]?.bytes ?? bytes;
        return bytes;
      })
      .toBe(3);
  });

  it('shorter than its headers, or not a multiple of four bytes long, is dropped [ROCE-BTH-19]', async () => {
    await using facing = await RoceFacing.open();
    await onlyLast(facing, [
      facing.sealed({ opcode: Op.writeOnly, psn: PEER_PSN, rest: '0000000000000000' }),
      facing.sealed({ ...send, rest: '9999' }),
      Uint8Array.of(4, 0, 0xff, 0xff),
    ]);
  });
});

describe('a queue pair of two hosts', () => {
  it('wraps PSNs at 24 bits, both ways [ROCE-PSN-02]', async () => {
    const sqPsn = 0xff_ffff;
    await using facing = await RoceFacing.open(QPType.rc, { sqPsn });
    const { end } = facing;
    for (let count = 0; count < 3; count += 1) end.receives.post(count, [end.piece(0, 4)]);
    for (const psn of [PEER_PSN, 0xff_ffff, 0]) {
      facing.say({ opcode: Op.sendOnly, psn, ackRequest: psn === 0, rest: '01020304' });
    }
    expect(await facing.answers(1)).toMatchObject([{ opcode: Op.acknowledge, psn: 0 }]);
    expect(await facing.outcome(3)).toHaveLength(3);
    for (let count = 0; count < 2; count += 1) {
      end.sends.post({ opcode: SQOpcode.send, wrId: count, sges: [] });
    }
    end.ring();
    expect((await facing.requests(2)).map(({ psn }) => psn)).toEqual([sqPsn, 0]);
    facing.say({ opcode: Op.acknowledge, psn: 0, rest: `${ACK}000002` });
    expect(await facing.outcome(2)).toEqual([
      [0, success],
      [1, success],
    ]);
  });

  it('sends packets of the path MTU of RTR [ROCE-MTU-02]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { pathMtu: 3 });
    const { end } = facing;
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [end.piece(0, 1025)] });
    end.ring();
    const packets = await facing.requests(2);
    expect(packets.map(({ rest }) => rest.length / 2)).toEqual([1024, 4]);
  });

  it('receives nothing below RTR, and sends nothing before RTS [IBV-QP-20, IBV-QP-21]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, {}, QPState.RTR);
    const { end } = facing;
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [] });
    end.receives.post(9, [end.piece(0, 64)]);
    facing.say({ opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '01020304' });
    // A queue pair in RTR receives and answers.
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(await facing.answers(1)).toMatchObject([{ opcode: Op.acknowledge, psn: PEER_PSN }]);
    await facing.silence();
    end.modify(QPState.RESET, 1);
    facing.bring(QPState.INIT);
    end.receives.post(10, [end.piece(0, 64)]);
    facing.say({ opcode: Op.sendOnly, psn: PEER_PSN, ackRequest: true, rest: '01020304' });
    await facing.arrived(2);
    await facing.silence();
    expect(end.completions.poll()).toEqual([]);
  });
});
