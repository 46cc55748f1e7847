/** Datagrams of RoCE between addresses, as a host that runs no device of ours sends them. */
import { gidBytes } from '#daemon/host/host-addresses';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, datagramHeaderBytes, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, ROCE_PORT, writeIcrc } from '#daemon/roce/wire/icrc';
import { GSI_QKEY, GSI_QPN, MAD_BYTES } from '#daemon/roce/wire/mad';
import { PacketOperation, Service } from '#daemon/roce/wire/opcode';
import { Packet, packetBytes, writeHeaders } from '#daemon/roce/wire/packet';
import { NO_BYTES } from './hex.ts';

/** The headers of a MAD from QP 1 to QP 1, with these changes. */
export function madPacket(changes: Partial<Packet> = {}): Packet {
  return Object.assign(new Packet(), {
    opcode: Service.ud | PacketOperation.sendOnly,
    sourceQpn: GSI_QPN,
    destQpn: GSI_QPN,
    qkey: GSI_QKEY,
    payloadLength: MAD_BYTES,
    ...changes,
  });
}

/** The UDP payload: the packet's headers, as much of `payload` as they announce, and the ICRC. */
export function roceDatagram(
  { from, to, fromPort = ROCE_PORT }: { from: string; to: string; fromPort?: number },
  packet: Readonly<Packet>,
  payload: Uint8Array = NO_BYTES,
): Uint8Array {
  const datagram = new Datagram();
  datagram.sourceGid.set(gidBytes(from));
  datagram.destGid.set(gidBytes(to));
  datagram.sourcePort = fromPort;
  datagram.packetLength = packetBytes(packet);
  const end = datagramHeaderBytes(datagram) + datagram.packetLength;
  const bytes = new Uint8Array(end + ICRC_BYTES);
  const start = writeDatagramHeaders(bytes, 0, datagram);
  const at = writeHeaders(bytes, start, packet);
  bytes.set(payload.subarray(0, end - at), at);
  writeIcrc(bytes, end, icrcOf(crc32, bytes, 0, start, end));
  return bytes.subarray(start);
}
