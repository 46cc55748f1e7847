/**
 * Rows about packet formats: which packets a peer drops, and how it builds its own (IBTA chapter 9,
 * annex A17).
 */
import { PacketOperation, Service } from '#daemon/roce/wire/opcode';
import type { Packet } from '#daemon/roce/wire/packet';
import type { Arrived, Flaws } from './roce-link.ts';
import type { RocePeer } from './roce-peer.ts';
import { ping } from './roce-ping.ts';
import { type ConformRow, demand } from './row.ts';

const AREA = 'packets';

/** A row in which the peer must drop the packet without an answer and serve the next one. */
function dropped(
  id: string,
  source: string,
  title: string,
  fields: Partial<Packet>,
  flaws: Flaws = {},
): ConformRow<RocePeer> {
  return {
    id,
    area: AREA,
    level: 'must',
    source,
    title,
    run: async (peer) => {
      const connection = await peer.connect();
      const packet = { opcode: PacketOperation.writeOnly, dmaLength: 0, ...fields };
      connection.requestAt(connection.psn, packet.opcode, packet, undefined, flaws);
      await connection.silent();
    },
  };
}

export const WIRE_ROWS: readonly ConformRow<RocePeer>[] = [
  dropped(
    'ROCE-ICRC-03',
    'IBA A17.9',
    'A packet with a wrong ICRC is dropped',
    {},
    { wrongIcrc: true },
  ),
  dropped(
    'ROCE-BTH-14',
    'IBA 9.2.4, 9.6.1.2',
    'A packet of another transport header version is dropped',
    {},
    { change: (packet) => packet.set([(packet[1] as number) | 1], 1) },
  ),
  dropped('ROCE-BTH-12', 'IBA 9.6.1.4, 10.9.3', 'A packet of another partition is dropped', {
    pkey: 0x8123,
  }),
  dropped('ROCE-BTH-16', 'IBA 9.6.1.3', 'A packet to a queue pair that does not exist is dropped', {
    destQpn: 0xff_fffe,
  }),
  {
    ...dropped('ROCE-OPC-05', 'IBA 9.6.1.3', 'A packet of another service is dropped', {}),
    run: async (peer) => {
      const connection = await peer.connect();
      for (const service of [Service.uc, Service.ud]) {
        const opcode = service | PacketOperation.sendOnly;
        connection.requestAt(connection.psn, opcode);
        await connection.silent();
      }
    },
  },
  dropped(
    'ROCE-BTH-19',
    'IBA 9.6.1.5',
    'A packet shorter than the headers of its opcode is dropped',
    { opcode: PacketOperation.acknowledge, syndrome: 0x1f },
    { change: (packet) => packet.set([PacketOperation.writeOnly], 0) },
  ),
  {
    id: 'ROCE-BTH-23',
    area: AREA,
    level: 'must',
    source: 'IBA 9.2',
    title: 'Reserved bits of a packet, and the migration bit, are ignored',
    run: async (peer) => {
      const connection = await peer.connect();
      for (const migrated of [true, false]) {
        const fields = { dmaLength: 0, migrated };
        const psn = connection.request(PacketOperation.writeOnly, fields, undefined, {
          change: (packet) => {
            // The reserved bits below FECN and BECN, and below AckReq.
            packet.set([(packet[4] as number) | 0x3f], 4);
            packet.set([(packet[8] as number) | 0x7f], 8);
          },
        });
        await connection.acknowledged(psn);
      }
    },
  },
  {
    id: 'ROCE-ICRC-04',
    area: AREA,
    level: 'must',
    source: 'IBA A17.9, 9.2',
    title: 'A packet is accepted with FECN and BECN, which the ICRC ignores',
    run: async (peer) => {
      const connection = await peer.connect();
      const psn = connection.request(PacketOperation.writeOnly, {
        dmaLength: 0,
        fecn: true,
        becn: true,
      });
      await connection.acknowledged(psn);
    },
  },
  made('ROCE-ICRC-01', 'IBA A17.9', 'Its packets have the right ICRC', ({ icrcRight }) => {
    demand(icrcRight, 'its ICRC is wrong');
  }),
  made(
    'ROCE-BTH-02',
    'IBA 9.2.5',
    'The transport header version of its packets is 0',
    ({ bytes }) => {
      demand(((bytes[1] as number) & 0x0f) === 0, 'it is not 0');
    },
  ),
  made('ROCE-BTH-05', 'IBA 9.2', 'Reserved bits of its packets are 0', ({ bytes }) => {
    demand(((bytes[4] as number) & 0x3f) === 0, 'bits below FECN and BECN are set');
    demand(((bytes[8] as number) & 0x7f) === 0, 'bits below the request for an ACK are set');
  }),
  made(
    'ROCE-BTH-03',
    'IBA 9.6.1.1.3',
    'Its packets have the partition of the connection',
    ({ packet }) => {
      demand((packet.pkey & 0x7fff) === 0x7fff, `its P_Key is 0x${packet.pkey.toString(16)}`);
    },
  ),
  made(
    'ROCE-BTH-06',
    'IBA 9.2.4',
    'Its payloads are padded to four bytes, with zeros',
    ({ padding }) => {
      demand(
        padding.every((byte) => byte === 0),
        'its padding is not 0',
      );
    },
  ),
];

/** A row about the packets of an exchange in which the peer reads, writes and acknowledges. */
function made(
  id: string,
  source: string,
  title: string,
  check: (arrived: Arrived) => void,
): ConformRow<RocePeer> {
  return {
    id,
    area: AREA,
    level: 'must',
    source,
    title,
    run: async (peer) => {
      const arrived: Arrived[] = [];
      const before = peer.link.malformed;
      const stop = peer.link.receive((each) => arrived.push(each));
      try {
        // Two bytes, which the peer must pad when it writes them.
        await ping(await peer.connect(), 2);
      } finally {
        stop();
      }
      const malformed = peer.link.malformed - before;
      demand(malformed === 0, `${malformed} packets of the peer are malformed`);
      for (const each of arrived) check(each);
    },
  };
}
