/**
 * Rows for a requester: how the peer sends and repeats requests (IBTA 9.7.1 to 9.7.3, 9.7.5,
 * 9.9.2).
 */
import { dumpPacket } from '#daemon/roce/wire/dump';
import { opcodeTraits, PacketOperation, Trait } from '#daemon/roce/wire/opcode';
import { addPsn } from '#daemon/roce/wire/psn';
import { NakCode, nakSyndrome, rnrSyndrome, rnrTimerMicros } from '#daemon/roce/wire/syndrome';
import { PATH_MTU_BYTES, type RoceConnection } from './roce-connection.ts';
import type { Arrived } from './roce-link.ts';
import { pingBytesOf, type RocePeer } from './roce-peer.ts';
import { advertise, answerRead, ping, responsesOf, writesOf } from './roce-ping.ts';
import { type ConformRow, demand, NotApplicable } from './row.ts';
import { pingText, SINK, SOURCE } from './tester-memory.ts';

const AREA = 'requester';
const Op = PacketOperation;
/** Bytes of an exchange that fits in one packet, and of one that does not. */
const SHORT = 64;
const LONG = 3 * PATH_MTU_BYTES + 40;
/** RNR timer code for 81.92 ms: well above scheduling delays. */
const RNR_TIMER = 26;

function row(
  id: string,
  source: string,
  title: string,
  body: (connection: RoceConnection, peer: RocePeer) => Promise<void>,
): ConformRow<RocePeer> {
  const run = async (peer: RocePeer) => body(await peer.connect(), peer);
  return { id, area: AREA, level: 'must', source, title, run };
}

/** A row that needs messages of several packets. */
function longRow(
  id: string,
  source: string,
  title: string,
  body: (connection: RoceConnection) => Promise<void>,
): ConformRow<RocePeer> {
  return row(id, source, title, async (connection) => {
    if (pingBytesOf(connection) < LONG) {
      throw new NotApplicable(`the peer exchanges at most ${pingBytesOf(connection)} bytes`);
    }
    await body(connection);
  });
}

export const REQUESTER_ROWS: readonly ConformRow<RocePeer>[] = [
  row(
    'ROCE-PSN-01',
    'IBA 9.7.1, 12.6.8',
    'The first request has the PSN that the REQ named',
    async (connection) => {
      await advertise(connection, SOURCE, SHORT);
      const { packet } = await connection.peerRequest('a Read request');
      demand(
        packet.psn === connection.peerPsn,
        `its PSN is ${packet.psn}, the REQ named ${connection.peerPsn}`,
      );
    },
  ),
  {
    id: 'ROCE-PSN-02',
    area: AREA,
    level: 'must',
    source: 'IBA 9.7.1',
    title: 'PSNs wrap from the largest to 0',
    run: async (peer) => {
      const { read, sends } = await ping(await peer.connect({ startingPsn: 0xff_ffff }), SHORT);
      const numbers = [read, sends[0]].map(({ packet }) => packet.psn);
      demand(numbers.join() === '16777215,0', `its first requests have PSN ${numbers.join(', ')}`);
    },
  },
  row(
    'ROCE-READ-07',
    'IBA 9.4.3',
    'A Read names the address, key and length that the program gave',
    async (connection) => {
      await advertise(connection, SOURCE, SHORT);
      const { packet } = await connection.peerRequest('a Read request');
      demand(
        packet.opcode === Op.readRequest,
        `expected a Read request, received ${dumpPacket(packet)}`,
      );
      checkReth(packet, SOURCE, SHORT);
    },
  ),
  longRow(
    'ROCE-PSN-04',
    'IBA 9.7.1',
    'The request after a Read leaves a PSN to each of its responses',
    async (connection) => {
      const { read, sends } = await ping(connection, LONG);
      const expected = addPsn(read.packet.psn, responsesOf(pingText(LONG)).length);
      const { psn } = sends[0].packet;
      demand(psn === expected, `it has PSN ${psn} instead of ${expected}`);
    },
  ),
  row(
    'ROCE-RTY-01',
    'IBA 9.7.6.1.1, 9.9.2',
    'A Read without an answer is repeated with its PSN, address and length',
    async (connection) => {
      await advertise(connection, SOURCE, SHORT);
      const first = await connection.peerRequest('a Read request');
      const second = await connection.peerRequest('the Read request again');
      demand(
        second.packet.psn === first.packet.psn,
        `it has PSN ${second.packet.psn} instead of ${first.packet.psn}`,
      );
      checkReth(second.packet, SOURCE, SHORT);
      answerRead(connection, second.packet.psn, pingText(SHORT));
      await connection.peerRequest('a Send');
    },
  ),
  longRow(
    'ROCE-READ-09',
    'IBA 9.7.5.1.9, 9.7.6.1.2',
    'A Read of which a response is lost is repeated from there at the latest',
    async (connection) => {
      const text = pingText(LONG);
      await advertise(connection, SOURCE, LONG);
      const { packet } = await connection.peerRequest('a Read request');
      // Do not send the second of the four responses.
      for (const [index, { opcode, payload }] of responsesOf(text).entries()) {
        if (index !== 1) connection.readResponse(addPsn(packet.psn, index), opcode, payload);
      }
      const again = (await connection.peerRequest('the Read request again')).packet;
      demand(
        again.opcode === Op.readRequest,
        `expected a Read request, received ${dumpPacket(again)}`,
      );
      const from = addPsn(again.psn, -packet.psn);
      demand(from <= 1, `it is repeated from response ${from + 1}, and number 2 was lost`);
      const skipped = from * PATH_MTU_BYTES;
      checkReth(again, { ...SOURCE, address: SOURCE.address + BigInt(skipped) }, LONG - skipped);
      answerRead(connection, again.psn, text.subarray(skipped));
      const { packet: next } = await connection.peerRequest('a Send');
      demand(
        (opcodeTraits(next.opcode) & Trait.send) !== 0,
        `expected a Send, received ${dumpPacket(next)}`,
      );
    },
  ),
  row(
    'ROCE-RTY-02',
    'IBA 9.7.6.1.1, 9.9.2',
    'A Send without an ACK is repeated with its PSN and content',
    async (connection) => {
      const first = await sendOf(connection);
      const second = await connection.peerRequest('the Send again');
      sameRequest(first, second);
      connection.acknowledge(second.packet.psn);
    },
  ),
  row(
    'ROCE-NAK-14',
    'IBA 9.7.5.2.2',
    'After a sequence NAK the peer continues from the PSN that it names',
    async (connection) => {
      const first = await sendOf(connection);
      connection.acknowledge(first.packet.psn, nakSyndrome(NakCode.psnSequence));
      sameRequest(first, await connection.peerRequest('the Send again'));
    },
  ),
  {
    id: 'ROCE-RNR-06',
    area: AREA,
    level: 'must',
    source: 'IBA 9.7.5.2.8',
    title: 'After an RNR NAK the peer waits for its timer, and repeats the request',
    run: async (peer) => {
      // With an ACK timeout of 1.07 s, the peer has not repeated anything for lack of an ACK yet.
      const connection = await peer.connect({ localAckTimeout: 18 });
      const first = await sendOf(connection);
      const refusedAt = performance.now();
      connection.acknowledge(first.packet.psn, rnrSyndrome(RNR_TIMER));
      const second = await connection.peerRequest('the Send again');
      sameRequest(first, second);
      const [waited, least] = [second.atMs - refusedAt, rnrTimerMicros(RNR_TIMER) / 1000];
      demand(waited >= least, `it waited ${waited.toFixed(1)} ms instead of ${least} ms`);
    },
  },
  row(
    'ROCE-RNR-07',
    'IBA 9.7.5.2.8, 12.7.25',
    'With 7 RNR retries, the peer repeats a request for as long as it takes',
    async (connection) => {
      const first = await sendOf(connection);
      let last = first;
      for (let refused = 0; refused < 10; refused += 1) {
        connection.acknowledge(first.packet.psn, rnrSyndrome(1));
        last = await connection.peerRequest('the Send again');
        sameRequest(first, last);
      }
      connection.acknowledge(last.packet.psn);
    },
  ),
  row(
    'ROCE-ACK-10',
    'IBA 9.7.6',
    'An ACK of a request that is not outstanding is ignored',
    async (connection) => {
      const first = await sendOf(connection);
      const { psn } = first.packet;
      for (const other of [addPsn(psn, -1), addPsn(psn, 1000)]) {
        connection.acknowledge(other);
        // The tester does not acknowledge it, so the peer must repeat it.
        sameRequest(first, await connection.peerRequest('the Send again'));
      }
      connection.acknowledge(psn);
      connection.acknowledge(psn);
      await advertise(connection, SINK, SHORT);
      const [written] = await writesOf(connection);
      demand(written?.packet.psn === addPsn(psn, 1), 'the next request has another PSN');
    },
  ),
  row(
    'ROCE-NAK-19',
    'IBA 9.7.5.2, 10.3.1',
    'After a fatal NAK the peer sends no more requests',
    async (connection, peer) => {
      const first = await sendOf(connection);
      connection.acknowledge(first.packet.psn, nakSyndrome(NakCode.remoteAccess));
      const other = await peer.connect();
      await sendOf(other);
      // Wait as long as a repetition would take.
      const startedMs = performance.now();
      await other.peerRequest('the Send again');
      demand(!connection.hasRequestSince(startedMs), 'it sent a request after the NAK');
    },
  ),
  row(
    'ROCE-BTH-09',
    'IBA 9.4.2',
    'A Write names the address, key and length that the program gave',
    async (connection) => {
      const { writes } = await ping(connection, SHORT);
      const [only] = writes;
      demand(
        only?.packet.opcode === Op.writeOnly,
        `expected a Write Only, received ${describe(only)}`,
      );
      checkReth(only.packet, SINK, SHORT);
      demand(
        Buffer.from(only.payload).equals(pingText(SHORT)),
        'it has other bytes than were read',
      );
    },
  ),
  longRow(
    'ROCE-OPC-02',
    'IBA 9.4.2, 9.6.1.5',
    'A long Write has First, Middles and Last, of the path MTU but the Last',
    async (connection) => {
      const { writes } = await ping(connection, LONG);
      const opcodes = [Op.writeFirst, Op.writeMiddle, Op.writeMiddle, Op.writeLast];
      demand(writes.length === opcodes.length, `it has ${writes.length} packets instead of 4`);
      for (const [index, write] of writes.entries()) {
        const length = index === 3 ? LONG - 3 * PATH_MTU_BYTES : PATH_MTU_BYTES;
        const { opcode, psn } = write.packet;
        const right = opcode === opcodes[index] && psn === addPsn(first(writes), index);
        demand(
          right && write.payload.length === length,
          `packet ${index + 1} is ${describe(write)}`,
        );
      }
      const bytes = Buffer.concat(writes.map(({ payload }) => payload));
      demand(bytes.equals(pingText(LONG)), 'it has other bytes than were read');
    },
  ),
  longRow(
    'ROCE-NAK-15',
    'IBA 9.7.5.2.2',
    'After a sequence NAK in a Write the peer continues from there',
    async (connection) => {
      await readPart(connection, LONG);
      await advertise(connection, SINK, LONG);
      const writes = [];
      for (let index = 0; index < 4; index += 1)
        writes.push(await connection.peerRequest('a Write'));
      const [, second] = writes;
      demand(second !== undefined, 'no second packet');
      connection.acknowledge(second.packet.psn, nakSyndrome(NakCode.psnSequence));
      sameRequest(second, await connection.peerRequest('the second packet again'));
    },
  ),
  {
    id: 'ROCE-RTY-04',
    area: AREA,
    level: 'must',
    source: 'IBA 9.7.6.1.1, 9.9.2',
    title: 'A request without an answer is given up after its retries, and nothing more is sent',
    run: async (peer) => {
      // Not 7, which rxe takes for "without limit".
      const connection = await peer.connect({ retryCount: 3 });
      const first = await sendOf(connection);
      sameRequest(first, await connection.peerRequest('the Send again'));
      const startedMs = performance.now();
      // The peer repeats at shorter intervals than an answer may take.
      while (await connection.anotherRequest()) {
        const waited = performance.now() - startedMs;
        demand(waited < GIVE_UP_MS, `it is repeated still, after ${(waited / 1000).toFixed(0)} s`);
      }
    },
  },
];

/** 3 retries of 67 ms each take at most 4 times as long (IBTA 9.9.2.4.1); this allows far more. */
const GIVE_UP_MS = 30_000;

/** The first half of a ping. Returns the peer's Send without acknowledging it. */
async function sendOf(connection: RoceConnection): Promise<Arrived> {
  await advertise(connection, SOURCE, SHORT);
  const { packet } = await connection.peerRequest('a Read request');
  answerRead(connection, packet.psn, pingText(SHORT));
  return connection.peerRequest('a Send');
}

/** The first half of a ping of `size` bytes, including the ACK of the peer's Send. */
async function readPart(connection: RoceConnection, size: number): Promise<void> {
  await advertise(connection, SOURCE, size);
  const { packet } = await connection.peerRequest('a Read request');
  answerRead(connection, packet.psn, pingText(size));
  const sent = await connection.peerRequest('a Send');
  connection.acknowledge(sent.packet.psn);
}

function first(writes: readonly Arrived[]): number {
  return writes[0]?.packet.psn ?? 0;
}

function checkReth(
  packet: Arrived['packet'],
  { address, rkey }: { readonly address: bigint; readonly rkey: number },
  length: number,
): void {
  const named = (BigInt(packet.vaHi) << 32n) | BigInt(packet.vaLo);
  const right = named === address && packet.rkey === rkey && packet.dmaLength === length;
  demand(
    right,
    `expected ${length} bytes at 0x${address.toString(16)}, received ${dumpPacket(packet)}`,
  );
}

function sameRequest(one: Arrived, two: Arrived): void {
  const { opcode, psn } = one.packet;
  const same = two.packet.opcode === opcode && two.packet.psn === psn;
  demand(
    same && Buffer.from(one.payload).equals(two.payload),
    `expected ${dumpPacket(one.packet)} again, received ${dumpPacket(two.packet)}`,
  );
}

function describe(arrived: Arrived | undefined): string {
  return arrived === undefined ? 'nothing' : dumpPacket(arrived.packet);
}
