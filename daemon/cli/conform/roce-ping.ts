/** The exchange that makes a RoCE peer read, write and send: one ping of rping, packet by packet. */
import { opcodeTraits, PacketOperation, Trait } from '#daemon/roce/wire/opcode';
import { addPsn } from '#daemon/roce/wire/psn';
import { ADVERT_BYTES, type Advert, emitAdvert } from '../rping/rping-protocol.ts';
import { PATH_MTU_BYTES, type RoceConnection } from './roce-connection.ts';
import type { Arrived } from './roce-link.ts';
import { pingText, SINK, SOURCE } from './tester-memory.ts';

/** Sends an advert and waits for its ACK. */
export async function advertise(
  connection: RoceConnection,
  buffer: Omit<Advert, 'size'>,
  size: number,
): Promise<void> {
  const bytes = new Uint8Array(ADVERT_BYTES);
  emitAdvert({ ...buffer, size }, bytes);
  await connection.acknowledged(connection.request(PacketOperation.sendOnly, {}, bytes));
}

/** The payload of each response to a Read of these bytes. */
export function responsesOf(bytes: Uint8Array): { opcode: number; payload: Uint8Array }[] {
  const count = Math.max(1, Math.ceil(bytes.length / PATH_MTU_BYTES));
  return Array.from({ length: count }, (_, index) => {
    const start = index * PATH_MTU_BYTES;
    return {
      opcode: responseOpcode(index, count),
      payload: bytes.subarray(start, start + PATH_MTU_BYTES),
    };
  });
}

function responseOpcode(index: number, count: number): number {
  if (count === 1) return PacketOperation.readResponseOnly;
  if (index === 0) return PacketOperation.readResponseFirst;
  return index === count - 1
    ? PacketOperation.readResponseLast
    : PacketOperation.readResponseMiddle;
}

/** Answers a Read from the peer with these bytes. */
export function answerRead(connection: RoceConnection, psn: number, bytes: Uint8Array): void {
  const responses = responsesOf(bytes);
  for (const [index, { opcode, payload }] of responses.entries()) {
    connection.readResponse(addPsn(psn, index), opcode, payload);
  }
  connection.settle(addPsn(psn, responses.length - 1));
}

/** The peer's packets of a ping. */
interface Ping {
  readonly read: Arrived;
  readonly writes: readonly Arrived[];
  /** The go-aheads: after the Read, and after the Write. */
  readonly sends: readonly [Arrived, Arrived];
}

/** A whole ping without injected errors. Throws `Deviation` if the peer does not take part. */
export async function ping(connection: RoceConnection, sizeBytes: number): Promise<Ping> {
  const text = pingText(sizeBytes);
  await advertise(connection, SOURCE, sizeBytes);
  const read = await connection.peerRequest('a Read request');
  answerRead(connection, read.packet.psn, text);
  const first = await connection.peerRequest('a Send');
  connection.acknowledge(first.packet.psn);
  await advertise(connection, SINK, sizeBytes);
  const writes = await writesOf(connection);
  const second = await connection.peerRequest('a Send');
  connection.acknowledge(second.packet.psn);
  return { read, writes, sends: [first, second] };
}

/** The packets of the peer's Write. Acknowledges the last one. */
export async function writesOf(connection: RoceConnection): Promise<Arrived[]> {
  const writes: Arrived[] = [];
  for (;;) {
    const write = await connection.peerRequest('a packet of a Write');
    writes.push(write);
    if ((opcodeTraits(write.packet.opcode) & Trait.ends) === 0) continue;
    connection.acknowledge(write.packet.psn);
    return writes;
  }
}
