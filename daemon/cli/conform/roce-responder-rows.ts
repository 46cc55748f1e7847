/** Rows for a responder: how the peer answers requests (IBTA 9.7.4, 9.7.5, 9.4). */
import { dumpPacket } from '#daemon/roce/wire/dump';
import { opcodeTraits, PacketOperation, Trait } from '#daemon/roce/wire/opcode';
import { addPsn } from '#daemon/roce/wire/psn';
import { NakCode, nakSyndrome, SyndromeKind, syndromeKind } from '#daemon/roce/wire/syndrome';
import { type Offer, RECEIVE_BYTES, regionBytes } from './offer.ts';
import { memory, PATH_MTU_BYTES, type RoceConnection } from './roce-connection.ts';
import type { RocePeer } from './roce-peer.ts';
import { type ConformRow, demand, demandSame } from './row.ts';

const AREA = 'responder';
const Op = PacketOperation;
const EMPTY = { dmaLength: 0 } as const;
const INVALID = nakSyndrome(NakCode.invalidRequest);
const ACCESS = nakSyndrome(NakCode.remoteAccess);
const SEQUENCE = nakSyndrome(NakCode.psnSequence);
/** A key that the peer never issued: its index is far above those of a new process. */
const WRONG_KEY = 0x7fff_ff77;
const MTU = PATH_MTU_BYTES;

type Body = (connection: RoceConnection, peer: RocePeer) => Promise<void>;
type MemoryBody = (connection: RoceConnection, offer: Offer) => Promise<void>;

function row(id: string, source: string, title: string, body: Body): ConformRow<RocePeer> {
  const run = async (peer: RocePeer) => body(await peer.connect(), peer);
  return { id, area: AREA, level: 'must', source, title, run };
}

/** A row that uses memory of the peer. */
function memoryRow(
  id: string,
  source: string,
  title: string,
  body: MemoryBody,
): ConformRow<RocePeer> {
  const run = async (peer: RocePeer) => body(...(await peer.connectToMemory()));
  return { id, area: AREA, level: 'must', source, title, needs: 'memory', run };
}

/** A row in which the peer must answer each request, on a separate connection, with this NAK. */
function refusals(
  id: string,
  source: string,
  title: string,
  syndrome: number,
  requests: readonly ((connection: RoceConnection) => number)[],
): ConformRow<RocePeer> {
  const run = async (peer: RocePeer): Promise<void> => {
    for (const request of requests) {
      const connection = await peer.connect();
      await connection.refused(request(connection), syndrome);
    }
  };
  return { id, area: AREA, level: 'must', source, title, run };
}

/** Like `refusals`, for requests that use memory of the peer. */
function memoryRefusals(
  id: string,
  source: string,
  title: string,
  syndrome: number,
  requests: readonly ((connection: RoceConnection, offer: Offer) => number)[],
): ConformRow<RocePeer> {
  const run = async (peer: RocePeer): Promise<void> => {
    for (const request of requests) {
      const [connection, offer] = await peer.connectToMemory();
      await connection.refused(request(connection, offer), syndrome);
    }
  };
  return { id, area: AREA, level: 'must', source, title, needs: 'memory', run };
}

export const RESPONDER_ROWS: readonly ConformRow<RocePeer>[] = [
  row(
    'ROCE-ACK-01',
    'IBA 9.7.5.1',
    'A request is acknowledged with its PSN',
    async (connection) => {
      const psn = connection.request(Op.writeOnly, EMPTY);
      await connection.acknowledged(psn);
    },
  ),
  row(
    'ROCE-ACK-02',
    'IBA 9.7.7.1',
    'The MSN of ACKs counts the completed messages',
    async (connection) => {
      const counts: number[] = [];
      for (let sent = 0; sent < 3; sent += 1) {
        const psn = connection.request(Op.writeOnly, EMPTY);
        counts.push((await connection.acknowledged(psn)).packet.msn);
      }
      demand(counts.join() === '1,2,3', `the MSNs of three messages are ${counts.join(', ')}`);
    },
  ),
  row(
    'ROCE-ACK-04',
    'IBA 9.7.5.1.2',
    'An ACK covers all requests before it',
    async (connection) => {
      for (let sent = 0; sent < 3; sent += 1) {
        connection.request(Op.writeOnly, { ...EMPTY, ackRequest: false });
      }
      const { packet } = await connection.acknowledged(connection.request(Op.writeOnly, EMPTY));
      demand(packet.msn === 4, `its MSN is ${packet.msn} after four messages`);
    },
  ),
  row(
    'ROCE-DUP-01',
    'IBA 9.7.5.1.4',
    'A repeated request is acknowledged, and not executed again',
    async (connection) => {
      const psn = connection.request(Op.writeOnly, EMPTY);
      await connection.acknowledged(psn);
      connection.requestAt(psn, Op.writeOnly, EMPTY);
      const { packet } = await connection.response();
      const isAck = packet.opcode === Op.acknowledge && syndromeKind(packet.syndrome) === 0;
      demand(isAck, `expected an ACK, received ${dumpPacket(packet)}`);
      demand(packet.psn === psn, `its PSN is ${packet.psn}, not ${psn}`);
      demand(packet.msn === 1, `its MSN is ${packet.msn}: the message was counted again`);
    },
  ),
  row(
    'ROCE-NAK-01',
    'IBA 9.7.5.2.2',
    'A request beyond the next PSN is answered by a sequence NAK of the expected one',
    async (connection) => {
      const expected = connection.psn;
      connection.requestAt(addPsn(expected, 1), Op.writeOnly, EMPTY);
      await connection.refused(expected, SEQUENCE);
      await connection.acknowledged(connection.request(Op.writeOnly, EMPTY));
    },
  ),
  row(
    'ROCE-NAK-02',
    'IBA 9.7.5.2.2',
    'A gap is answered by one sequence NAK, whatever follows it',
    async (connection) => {
      const expected = connection.psn;
      for (const ahead of [1, 2, 3])
        connection.requestAt(addPsn(expected, ahead), Op.writeOnly, EMPTY);
      await connection.refused(expected, SEQUENCE);
      await connection.silent();
    },
  ),
  refusals(
    'ROCE-OPC-07',
    'IBA 9.7.4.1.3',
    'A Middle or Last outside of a message is refused as an invalid request',
    INVALID,
    [
      (connection) => connection.request(Op.writeMiddle, {}, new Uint8Array(MTU)),
      (connection) => connection.request(Op.sendLast, {}, new Uint8Array(1)),
    ],
  ),
  refusals(
    'ROCE-MTU-03',
    'IBA 9.7.4.1.5',
    'A First that is shorter than the path MTU is refused',
    INVALID,
    [(connection) => connection.request(Op.sendFirst, {}, new Uint8Array(100))],
  ),
  refusals(
    'ROCE-MTU-04',
    'IBA 9.7.4.1.5',
    'An Only that is longer than the path MTU is refused',
    INVALID,
    [(connection) => connection.request(Op.sendOnly, {}, new Uint8Array(MTU + 4))],
  ),
  memoryRow(
    'ROCE-MTU-05',
    'IBA 9.7.4.1',
    'A Last without payload is refused as an invalid request',
    async (connection, { address, key }) => {
      connection.request(
        Op.writeFirst,
        { ...memory(address, key, MTU + 4), ackRequest: false },
        new Uint8Array(MTU),
      );
      await connection.refused(connection.request(Op.writeLast), INVALID);
    },
  ),
  refusals(
    'ROCE-NAK-07',
    'IBA 9.7.4.1.6',
    'A Write or Read with a key that does not exist is refused: remote access error',
    ACCESS,
    [
      (connection) =>
        connection.request(Op.writeOnly, memory(0x1000n, WRONG_KEY, 4), new Uint8Array(4)),
      (connection) => connection.request(Op.readRequest, memory(0x1000n, WRONG_KEY, 4)),
    ],
  ),
  row(
    'ROCE-READ-05',
    'IBA 9.7.4.1.6',
    'A Read of no bytes needs no R_Key, and is answered without payload',
    async (connection) => {
      const bytes = await connection.read(0n, WRONG_KEY, 0);
      demand(bytes.length === 0, `the response has ${bytes.length} bytes`);
    },
  ),
  row(
    'ROCE-NAK-09',
    'IBA 9.7.5.2, 10.3.1',
    'After a fatal NAK the queue pair answers nothing more',
    async (connection, peer) => {
      await connection.refused(
        connection.request(Op.writeMiddle, {}, new Uint8Array(MTU)),
        INVALID,
      );
      connection.request(Op.writeOnly, EMPTY);
      // An answer to the packet would come before the answer to this message of connection
      // management.
      const other = await peer.connect();
      await other.acknowledged(other.request(Op.writeOnly, EMPTY));
      demand(!connection.hasResponse, 'a request after the NAK was answered');
    },
  ),
  memoryRow(
    'ROCE-READ-01',
    'IBA 9.4.3, 9.7.5.1.9',
    'A Read is answered in packets of the path MTU, in order',
    async (connection, { address, key }) => {
      const psn = connection.psn;
      connection.requestAt(psn, Op.readRequest, memory(address, key, 3 * MTU + 10));
      connection.psn = addPsn(psn, 4);
      const opcodes = [
        Op.readResponseFirst,
        Op.readResponseMiddle,
        Op.readResponseMiddle,
        Op.readResponseLast,
      ];
      const parts: Uint8Array[] = [];
      for (const [index, opcode] of opcodes.entries()) {
        const { packet, payload } = await connection.response();
        demand(
          packet.opcode === opcode && packet.psn === addPsn(psn, index),
          `response ${index + 1} of 4 is ${dumpPacket(packet)}`,
        );
        const hasHeader = (opcodeTraits(opcode) & Trait.aeth) !== 0;
        if (hasHeader)
          demand(packet.msn === 1, `the MSN of response ${index + 1} is ${packet.msn}`);
        parts.push(payload);
      }
      demandSame(Buffer.concat(parts), regionBytes(0, 3 * MTU + 10), 'the data');
    },
  ),
  memoryRow(
    'ROCE-READ-04',
    'IBA 9.7.5.1.4',
    'A repeated Read is answered again, also in part',
    async (connection, { address, key }) => {
      const psn = connection.psn;
      await connection.read(address, key, 3 * MTU);
      // Ask from the second packet on, like a requester that has lost it.
      connection.requestAt(
        addPsn(psn, 1),
        Op.readRequest,
        memory(address + BigInt(MTU), key, 2 * MTU),
      );
      for (const index of [1, 2]) {
        const { packet, payload } = await connection.response();
        demand(
          packet.psn === addPsn(psn, index),
          `expected PSN ${addPsn(psn, index)}, received ${dumpPacket(packet)}`,
        );
        demandSame(payload, regionBytes(index * MTU, MTU), `packet ${index}`);
      }
    },
  ),
  memoryRow(
    'ROCE-ACK-06',
    'IBA 9.4.2, 9.7.4.1',
    'A Write of several packets is in place once it is acknowledged',
    async (connection, { address, key }) => {
      const data = Uint8Array.from({ length: 2 * MTU + 7 }, (_, index) => 255 - (index % 251));
      await write(connection, address + 3n, key, data);
      demandSame(
        await connection.read(address, key, 2 * MTU + 20),
        around(data, 3, 2 * MTU + 20),
        'the memory',
      );
    },
  ),
  memoryRefusals(
    'ROCE-NAK-08',
    'IBA 9.7.4.1.6',
    'A Write or Read beyond its memory is refused: remote access error',
    ACCESS,
    [
      (connection, { address, key, lengthBytes }) => {
        const end = address + BigInt(lengthBytes) - 2n;
        return connection.request(Op.writeOnly, memory(end, key, 4), new Uint8Array(4));
      },
      (connection, { address, key, lengthBytes }) =>
        connection.request(Op.readRequest, memory(address + 1n, key, lengthBytes)),
    ],
  ),
  memoryRefusals(
    'ROCE-NAK-05',
    'IBA 9.7.4.1.5',
    'A Write with more or fewer bytes than its header says is refused as an invalid request',
    INVALID,
    [
      (connection, { address, key }) => {
        const first = { ...memory(address, key, MTU + 4), ackRequest: false };
        connection.request(Op.writeFirst, first, new Uint8Array(MTU));
        return connection.request(Op.writeLast, {}, new Uint8Array(8));
      },
      (connection, { address, key }) => {
        const first = { ...memory(address, key, MTU + 8), ackRequest: false };
        connection.request(Op.writeFirst, first, new Uint8Array(MTU));
        return connection.request(Op.writeLast, {}, new Uint8Array(4));
      },
    ],
  ),
  memoryRow(
    'ROCE-OPC-08',
    'IBA 9.7.4.1.3',
    'A new message before the last one is whole is refused',
    async (connection, { address, key }) => {
      connection.request(
        Op.writeFirst,
        { ...memory(address, key, 2 * MTU), ackRequest: false },
        new Uint8Array(MTU),
      );
      await connection.refused(connection.request(Op.sendOnly, {}, Uint8Array.of(1)), INVALID);
    },
  ),
  memoryRow(
    'ROCE-ATOM-02',
    'IBA 9.4.5',
    'FetchAdd returns the value before it, and adds',
    async (connection, { address, key }) => {
      await zero(connection, address, key);
      const add = { ...memory(address, key, 0), swapAddHi: 1, swapAddLo: 5 };
      for (const expected of [0n, 0x1_0000_0005n, 0x2_0000_000an]) {
        const { before } = await atomic(connection, Op.fetchAdd, add);
        demand(
          before === expected,
          `expected 0x${expected.toString(16)}, received 0x${before.toString(16)}`,
        );
      }
    },
  ),
  memoryRow(
    'ROCE-ATOM-04',
    'IBA 9.4.5',
    'CmpSwap returns the value before it, and stores if it is equal',
    async (connection, { address, key }) => {
      await zero(connection, address, key);
      const swap = (compareLo: number, swapAddLo: number) =>
        atomic(connection, Op.compareSwap, { ...memory(address, key, 0), compareLo, swapAddLo });
      const values = [await swap(1, 9), await swap(0, 7), await swap(7, 8), await swap(7, 9)];
      const text = values.map(({ before }) => before).join();
      demand(text === '0,0,7,8', `expected 0,0,7,8, received ${text}`);
    },
  ),
  memoryRow(
    'ROCE-DUP-04',
    'IBA 9.7.5.1.4',
    'A repeated atomic returns the first result, and is not executed again',
    async (connection, { address, key }) => {
      await zero(connection, address, key);
      const add = { ...memory(address, key, 0), swapAddLo: 3 };
      const { psn } = await atomic(connection, Op.fetchAdd, add);
      connection.requestAt(psn, Op.fetchAdd, add);
      const { packet } = await connection.response();
      demand(
        packet.opcode === Op.atomicAcknowledge && packet.originalLo === 0,
        `received ${dumpPacket(packet)}`,
      );
      const after = await atomic(connection, Op.fetchAdd, { ...add, swapAddLo: 0 });
      demand(after.before === 3n, `the value is ${after.before} after one addition of 3`);
    },
  ),
  memoryRow(
    'ROCE-ATOM-05',
    'IBA 9.4.5, 9.7.4.1.6',
    'An atomic at an address that is no multiple of 8 is refused',
    async (connection, { address, key }) => {
      const psn = connection.request(Op.fetchAdd, {
        ...memory(address + 4n, key, 0),
        swapAddLo: 1,
      });
      await connection.refused(psn, INVALID);
    },
  ),
  memoryRow(
    'ROCE-RNR-01',
    'IBA 9.7.5.2.8',
    'A Send without a receive is answered by an RNR NAK, and may be repeated',
    async (connection, { receives }) => {
      for (let sent = 0; sent < receives; sent += 1) {
        await connection.acknowledged(connection.request(Op.sendOnly, {}, Uint8Array.of(sent)));
      }
      const { psn } = connection;
      for (let sent = 0; sent < 2; sent += 1) {
        connection.requestAt(psn, Op.sendOnly, {}, Uint8Array.of(9));
        const { packet } = await connection.response();
        const isRnr =
          packet.opcode === Op.acknowledge && syndromeKind(packet.syndrome) === SyndromeKind.rnrNak;
        demand(
          isRnr && packet.psn === psn,
          `expected an RNR NAK of PSN ${psn}, received ${dumpPacket(packet)}`,
        );
      }
      // The peer must not have counted that PSN: the next request uses it.
      await connection.silent();
    },
  ),
  memoryRow(
    'ROCE-RNR-04',
    'IBA 9.7.5.2.8',
    'A Write with immediate data needs a receive, too',
    async (connection, { receives }) => {
      for (let sent = 0; sent < receives; sent += 1) {
        await connection.acknowledged(
          connection.request(Op.writeOnlyImmediate, { ...EMPTY, immediate: sent }),
        );
      }
      const psn = connection.request(Op.writeOnlyImmediate, { ...EMPTY, immediate: 9 });
      const { packet } = await connection.response();
      const isRnr =
        packet.opcode === Op.acknowledge && syndromeKind(packet.syndrome) === SyndromeKind.rnrNak;
      demand(
        isRnr && packet.psn === psn,
        `expected an RNR NAK of PSN ${psn}, received ${dumpPacket(packet)}`,
      );
    },
  ),
  memoryRow(
    'ROCE-NAK-11',
    'IBA 9.7.4.1.5',
    'A Send that is longer than its receive is refused: invalid request, or as by rxe remote operational error',
    async (connection) => {
      const first = connection.psn;
      const last = RECEIVE_BYTES / MTU;
      for (let index = 0; index <= last; index += 1) {
        const opcode = index === 0 ? Op.sendFirst : index === last ? Op.sendLast : Op.sendMiddle;
        connection.request(opcode, { ackRequest: index === last }, new Uint8Array(MTU));
      }
      const { packet } = await connection.response();
      const right =
        packet.opcode === Op.acknowledge &&
        packet.psn === addPsn(first, last) &&
        (packet.syndrome === INVALID || packet.syndrome === nakSyndrome(NakCode.remoteOperation));
      demand(right, `received ${dumpPacket(packet)}`);
    },
  ),
  memoryRow(
    'ROCE-ORD-02',
    'IBA 9.5',
    'A Read after a Write returns what was written',
    async (connection, { address, key }) => {
      const data = Uint8Array.of(9, 8, 7, 6);
      connection.request(Op.writeOnly, { ...memory(address, key, 4), ackRequest: false }, data);
      const psn = connection.psn;
      connection.requestAt(psn, Op.readRequest, memory(address, key, 4));
      connection.psn = addPsn(psn, 1);
      for (;;) {
        const { packet, payload } = await connection.response();
        if (packet.opcode === Op.acknowledge && packet.psn !== psn) continue;
        demand(
          packet.opcode === Op.readResponseOnly,
          `expected a Read response, received ${dumpPacket(packet)}`,
        );
        demandSame(payload, data, 'the data');
        return;
      }
    },
  ),
];

/** Writes `data` in packets of the path MTU and waits for the ACK. */
async function write(
  connection: RoceConnection,
  address: bigint,
  key: number,
  data: Uint8Array,
): Promise<void> {
  const count = Math.ceil(data.length / MTU);
  for (let index = 0; index < count; index += 1) {
    const payload = data.subarray(index * MTU, (index + 1) * MTU);
    const last = index === count - 1;
    const opcode =
      count === 1
        ? Op.writeOnly
        : index === 0
          ? Op.writeFirst
          : last
            ? Op.writeLast
            : Op.writeMiddle;
    const psn = connection.request(
      opcode,
      { ...memory(address, key, data.length), ackRequest: last },
      payload,
    );
    if (last) await connection.acknowledged(psn);
  }
}

/** Writes zeros to the word that atomics change. */
function zero(connection: RoceConnection, address: bigint, key: number): Promise<void> {
  return write(connection, address, key, new Uint8Array(8));
}

/** Sends an atomic, which must return the value `before`. */
async function atomic(
  connection: RoceConnection,
  opcode: number,
  fields: Parameters<RoceConnection['request']>[1],
): Promise<{ readonly psn: number; readonly before: bigint }> {
  const psn = connection.request(opcode, fields);
  const { packet } = await connection.response();
  const right = packet.opcode === Op.atomicAcknowledge && packet.psn === psn;
  demand(right, `expected an atomic response of PSN ${psn}, received ${dumpPacket(packet)}`);
  return { psn, before: (BigInt(packet.originalHi) << 32n) | BigInt(packet.originalLo) };
}

/** The first `length` bytes of a new region after a write of `data` at `start`. */
function around(data: Uint8Array, start: number, length: number): Uint8Array {
  const bytes = regionBytes(0, length);
  bytes.set(data, start);
  return bytes;
}
