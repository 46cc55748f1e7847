/** Packets of every opcode, with headers and ICRC as a sender writes them. */
import { crc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  datagramHeaderBytes,
  writeDatagramHeaders,
  writeUdpChecksum,
} from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, writeIcrc } from '#daemon/roce/wire/icrc';
import { opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { bytesOf } from './hex.ts';

const GIDS = {
  ipv4: [bytesOf('00*10 ffff 0a010001'), bytesOf('00*10 ffff 0a010002')],
  ipv6: [bytesOf('fd00 00*13 01'), bytesOf('fd00 00*13 02')],
} as const;

/** Every opcode of RC, UC and UD. */
export const OPCODES: readonly number[] = Array.from({ length: 256 }, (_, opcode) => opcode).filter(
  (opcode) => opcodeTraits(opcode) !== 0,
);

/** A packet of this opcode with a different value in each field, and payload where it may have some. */
export function packetOf(opcode: number): Packet {
  const traits = opcodeTraits(opcode);
  const packet = new Packet();
  packet.opcode = opcode;
  packet.solicited = (traits & Trait.send) !== 0 && (traits & Trait.ends) !== 0;
  packet.pkey = 0x8123;
  packet.destQpn = 0xa1b200 + opcode;
  packet.ackRequest = (traits & Trait.ends) !== 0;
  packet.psn = 0xc1d200 + opcode;
  packet.vaHi = 0xf1020304;
  packet.vaLo = 0x85060700 + opcode;
  packet.rkey = 0x91929300 + opcode;
  packet.dmaLength = 0x80000000;
  packet.swapAddHi = 0xfffffffe;
  packet.swapAddLo = 0x11121314;
  packet.compareHi = 0x81828384;
  packet.compareLo = 0xffffffff;
  packet.syndrome = opcode === 0x11 ? 0x2e : 0x1f;
  packet.msn = 0xe1e200 + opcode;
  packet.originalHi = 0x71727374;
  packet.originalLo = 0xf5f6f7f8;
  packet.immediate = 0xdeadbe00 + opcode;
  packet.invalidateRkey = 0xb1b2b300 + opcode;
  packet.qkey = 0x80010000 + opcode;
  packet.sourceQpn = 0xc0ffee;
  if ((traits & Trait.payload) !== 0) packet.payloadLength = (traits & Trait.ends) === 0 ? 256 : 97;
  return packet;
}

/** The datagram of a packet: IP, UDP, packet, padding and ICRC. Default payload: a pattern. */
export function datagramOf(
  packet: Readonly<Packet>,
  family: 'ipv4' | 'ipv6',
  given?: Uint8Array,
): Uint8Array {
  const [source, destination] = GIDS[family];
  const datagram = new Datagram();
  datagram.sourceGid.set(source);
  datagram.destGid.set(destination);
  datagram.trafficClass = 0x68;
  datagram.flowLabel = 0x12345;
  datagram.packetLength = packetBytes(packet);
  const end = datagramHeaderBytes(datagram) + datagram.packetLength;
  const bytes = new Uint8Array(end + ICRC_BYTES);
  const bth = writeDatagramHeaders(bytes, 0, datagram);
  const payload = writeHeaders(bytes, bth, packet);
  for (let i = 0; i < packet.payloadLength; i += 1)
    bytes[payload + i] = given?.[i] ?? i + packet.opcode;
  writeIcrc(bytes, end, icrcOf(crc32, bytes, 0, bth, end));
  if (family === 'ipv6') writeUdpChecksum(bytes, 0, bytes.length);
  return bytes;
}
