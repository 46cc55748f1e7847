/** UC and UD: real queue pairs and a raw peer, over UDP. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import { gidBytes } from '#daemon/host/host-addresses';
import { datagramEnd } from '../support/datagram-end.ts';
import { hexOf } from '../support/hex.ts';
import { quiet, until } from '../support/patience.ts';
import { PEER } from '../support/program-steps.ts';
import { digits, Op, reth, UC } from '../support/raw-roce.ts';
import { OUR_PSN, PEER_PSN, PEER_QPN, RoceFacing, THEIRS } from '../support/roce-facing.ts';

const { success } = CQEStatus;
const MTU = 256;
const QKEY = 0x1111_1111;
const PAYLOAD = '01020304';
const GRH_BYTES = 40;
const psnAt = (count: number): number => (PEER_PSN + count) & 0xff_ffff;

describe('an unreliable connection', () => {
  const open = () => RoceFacing.open(QPType.uc);
  const first = (count: number) => ({
    opcode: UC + Op.sendFirst,
    psn: psnAt(count),
    rest: '55'.repeat(MTU),
  });
  const last = (count: number) => ({ opcode: UC + Op.sendLast, psn: psnAt(count), rest: PAYLOAD });

  it('sends with its own opcodes, requests no acknowledgement, and completes at once [ROCE-UC-01, ROCE-UC-02]', async () => {
    await using facing = await open();
    const { end } = facing;
    end.sends.post({ opcode: SQOpcode.send, wrId: 1, sges: [end.piece(0, 2 * MTU)] });
    const sges = [end.piece(0, 4)];
    end.sends.post({ opcode: SQOpcode.write, wrId: 2, sges, raddr: 7n, rkey: 8 });
    end.ring();
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
    const packets = await facing.answers(3);
    expect(packets.map(({ opcode, psn, ackRequest }) => [opcode, psn, ackRequest])).toEqual([
      [UC + Op.sendFirst, OUR_PSN, false],
      [UC + Op.sendLast, OUR_PSN + 1, false],
      [UC + Op.writeOnly, OUR_PSN + 2, false],
    ]);
    expect(packets[2]?.rest).toBe(`${reth(7n, 8, 4)}00000000`);
    await facing.silence();
  });

  it('receives messages, and answers none [ROCE-UC-03]', async () => {
    await using facing = await open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 1024)]);
    facing.say({ ...first(0), ackRequest: true }, { ...last(1), ackRequest: true });
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(hexOf(end.memory.subarray(MTU, MTU + 4))).toBe(PAYLOAD);
    await facing.silence();
  });

  it('drops a message with a missing packet, and takes the next one [ROCE-UC-04, ROCE-UC-05]', async () => {
    await using facing = await open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 1024)]);
    const middle = { opcode: UC + Op.sendMiddle, psn: psnAt(2), rest: '66'.repeat(MTU) };
    // The packet after the first is lost; so is a whole message.
    facing.say(first(0), middle, last(3));
    facing.say({ opcode: UC + Op.sendOnly, psn: psnAt(9), rest: '0a0b0c0d' });
    expect(await facing.outcome(1)).toEqual([[9, success]]);
    expect(hexOf(end.memory.subarray(0, 4))).toBe('0a0b0c0d');
    expect(end.qp.state).toBe(QPState.RTS);
    await facing.silence();
  });

  it('drops a message without a receive, and a Write to memory that is not open [ROCE-UC-06, ROCE-UC-07]', async () => {
    await using facing = await open();
    const { end } = facing;
    const write = `${reth(end.address(0), 0xdead00, 4)}${PAYLOAD}`;
    facing.say(
      { opcode: UC + Op.sendOnly, psn: psnAt(0), rest: PAYLOAD },
      { opcode: UC + Op.writeOnly, psn: psnAt(1), rest: write },
    );
    await facing.arrived(2);
    await facing.silence();
    expect([end.qp.state, end.memory[0]]).toEqual([QPState.RTS, 0]);
    end.receives.post(9, [end.piece(0, 64)]);
    facing.say({ opcode: UC + Op.sendOnly, psn: psnAt(2), rest: PAYLOAD });
    expect(await facing.outcome(1)).toEqual([[9, success]]);
  });

  it('has no Reads and no atomics: such packets are dropped [ROCE-UC-08]', async () => {
    await using facing = await open();
    const { end } = facing;
    facing.say({
      opcode: UC + Op.readRequest,
      psn: psnAt(0),
      rest: reth(end.address(0), end.mr.rkey, 4),
    });
    await facing.arrived(1);
    await facing.silence();
    expect([facing.counters.malformed, end.qp.state]).toEqual([1, QPState.RTS]);
  });
});

describe('a queue pair of datagrams', () => {
  const open = () => RoceFacing.open(QPType.ud, { qkey: QKEY });
  const deth = (qkey: number) => `${digits(qkey, 8)}00000123`;
  const datagram = (fields: object = {}) => ({
    opcode: Op.udSendOnly,
    rest: `${deth(QKEY)}${PAYLOAD}`,
    ...fields,
  });

  it('puts 40 bytes with the IP header before the payload, and names the sender [ROCE-UD-01, ROCE-UD-02, ROCE-GRH-02, ROCE-GRH-03]', async () => {
    await using facing = await open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    facing.say(datagram());
    let completion: ReturnType<typeof end.completions.poll>[number] | undefined;
    await until('the datagram', () => {
      [completion] = end.completions.poll();
      return completion;
    });
    expect(completion).toMatchObject({ wrId: 9, status: success, bytes: GRH_BYTES + 4 });
    const area = hexOf(end.memory.subarray(0, GRH_BYTES));
    expect(area.slice(0, 42)).toBe(`${'00'.repeat(20)}45`);
    const hosts = [THEIRS, facing.address].flatMap((text) => text.split('.').map(Number));
    expect(area.slice(64)).toBe(hexOf(Uint8Array.from(hosts)));
    expect(hexOf(end.memory.subarray(GRH_BYTES, GRH_BYTES + 4))).toBe(PAYLOAD);
    await facing.silence();
  });

  it('takes datagrams of any sender, PSN and order, but only with its Q_Key [ROCE-UD-03, ROCE-UD-04, ROCE-UD-05]', async () => {
    await using facing = await open();
    const { end } = facing;
    for (const wrId of [1, 2]) end.receives.post(wrId, [end.piece(0, 64)]);
    facing.say(
      datagram({ psn: 77 }),
      datagram({ psn: 78, rest: `${deth(QKEY + 1)}${PAYLOAD}` }),
      datagram({ psn: 5 }),
    );
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
    expect(facing.counters.badQkeys).toBe(1);
    await facing.silence();
  });

  it('drops a datagram without a receive, and answers nothing [ROCE-UD-06]', async () => {
    await using facing = await open();
    const { end } = facing;
    facing.say(datagram());
    await facing.arrived(1);
    await facing.silence();
    end.receives.post(9, [end.piece(0, 64)]);
    await quiet(10);
    expect([end.completions.poll(), end.qp.state]).toEqual([[], QPState.RTS]);
  });

  it('fails if a datagram does not fit its receive, as on rxe [ROCE-UD-15]', async () => {
    await using facing = await open();
    const { end } = facing;
    for (const wrId of [1, 2]) end.receives.post(wrId, [end.piece(0, GRH_BYTES + 3)]);
    facing.say(datagram());
    const [[first, status] = [], second] = await facing.outcome(2);
    expect([first, second]).toEqual([1, [2, CQEStatus.wrFlushErr]]);
    expect(status).not.toBe(success);
    expect(end.qp.state).toBe(QPState.ERR);
    await facing.silence();
  });

  it('drops packets of connections [ROCE-UD-07]', async () => {
    await using facing = await open();
    const { end } = facing;
    end.receives.post(9, [end.piece(0, 64)]);
    facing.say(
      { opcode: Op.sendOnly, ackRequest: true, rest: `${deth(QKEY)}${PAYLOAD}` },
      { opcode: UC + Op.sendOnly, rest: `${deth(QKEY)}${PAYLOAD}` },
    );
    await facing.arrived(2);
    await facing.silence();
    expect(end.completions.poll()).toEqual([]);
  });

  it('sends one packet for each message, with destination, Q_Key and its own number [ROCE-UD-08, ROCE-UD-09, ROCE-UD-10, ROCE-BTH-22]', async () => {
    await using facing = await open();
    const end = datagramEnd(facing.device(), () => facing.host.drain());
    const vector = { ...PEER, dgid: gidBytes(THEIRS) };
    const handle = end.nic.createAH(end.pd, vector);
    end.memory.set([1, 2, 3, 4]);
    const [SEND, SIGNALED] = [2, 2];
    const own = end.qp.qpn;
    // The second asks for the Q_Key of the queue pair.
    for (const qkey of [0x2222, 0x8000_0001]) {
      const fields = { 24: PEER_QPN, 28: qkey, 36: handle.number };
      end.sends.send(1, SEND, SIGNALED, [end.piece(4)], fields);
    }
    facing.host.doorbell(end.qp);
    const packets = await facing.answers(2);
    expect(packets.map(({ opcode, destQpn, rest }) => [opcode, destQpn, rest])).toEqual(
      [0x2222, QKEY].map((qkey) => [
        Op.udSendOnly,
        PEER_QPN,
        `${digits(qkey, 8)}00${digits(own, 6)}${PAYLOAD}`,
      ]),
    );
    const [psn = 0, next] = packets.map((packet) => packet.psn);
    expect(next).toBe((psn + 1) & 0xff_ffff);
    await facing.silence();
  });
});
