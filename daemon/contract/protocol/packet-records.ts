/**
 * Packets between queue pairs, for watchers. Body of a `packet` record (`tap-records.ts`), little
 * endian:
 *
 * ```
 *  u32 sender's QP number | u32 receiver's | u8 bytes of sender's device | u8 bytes of receiver's
 *  u16 zero | sender's device | receiver's device | IP datagram, from its header to the ICRC
 * ```
 *
 * Devices are names as UTF-8. The receiver's device is empty for a packet to a multicast group or to
 * another host, the sender's for a packet from another host.
 */
import { decodeText, IpcFormatError } from './ipc-value.ts';
import type { QueuePairName } from './tap-records.ts';

/** A packet on its way from one queue pair to another. */
export interface TappedPacket {
  /** The queue pair that sent it; undefined if it came from another host. */
  readonly sender: QueuePairName | undefined;
  /** The queue pair that receives it; undefined for a multicast group or another host. */
  readonly receiver: QueuePairName | undefined;
  /** The datagram, from its IP header to its ICRC; borrowed. */
  readonly bytes: Uint8Array;
}

const HEAD_BYTES = 12;
/** Longest name of a device (`ibv_get_device_name`). */
const DEVICE_MAX_BYTES = 63;
const QPN_MAX = 0xff_ffff;

/** The body of a `packet` record; the names are those of sender and receiver as UTF-8. */
export function emitTappedPacket(
  { sender, receiver, bytes }: TappedPacket,
  senderName: Uint8Array,
  receiverName: Uint8Array,
): Uint8Array {
  const at = HEAD_BYTES + senderName.length + receiverName.length;
  const body = new Uint8Array(at + bytes.length);
  const fields = new DataView(body.buffer);
  fields.setUint32(0, sender?.qpn ?? 0, true);
  fields.setUint32(4, receiver?.qpn ?? 0, true);
  fields.setUint8(8, senderName.length);
  fields.setUint8(9, receiverName.length);
  body.set(senderName, HEAD_BYTES);
  body.set(receiverName, HEAD_BYTES + senderName.length);
  body.set(bytes, at);
  return body;
}

/** Parses the body of a `packet` record; its bytes are borrowed. Throws `IpcFormatError`. */
export function parseTappedPacket(body: Uint8Array): TappedPacket {
  if (body.length < HEAD_BYTES) throw new IpcFormatError('the packet record lacks its queue pairs');
  const fields = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const [from, to] = [fields.getUint8(8), fields.getUint8(9)];
  const at = HEAD_BYTES + from + to;
  if (from + to === 0 || from > DEVICE_MAX_BYTES || to > DEVICE_MAX_BYTES || body.length < at) {
    throw new IpcFormatError('the packet record lacks its devices');
  }
  const [qpn, peerQpn] = [fields.getUint32(0, true), fields.getUint32(4, true)];
  if (qpn > QPN_MAX || peerQpn > QPN_MAX) {
    throw new IpcFormatError('the packet record has an invalid queue pair number');
  }
  const device = decodeText(body.subarray(HEAD_BYTES, HEAD_BYTES + from));
  const peer = decodeText(body.subarray(HEAD_BYTES + from, at));
  return {
    sender: from === 0 ? undefined : { device, qpn },
    receiver: to === 0 ? undefined : { device: peer, qpn: peerQpn },
    bytes: body.subarray(at),
  };
}
