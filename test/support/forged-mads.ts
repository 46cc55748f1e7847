/**
 * Sends connection management messages without a RoCE device, as any program on the peer's host can, or
 * on any host that forges its source address.
 */

import { addressBytes } from '#base/address';
import { gidBytes } from '#daemon/host/host-addresses';
import { type CmFields, type CmMessageName, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { writeIpRequest } from '#daemon/roce/wire/ip-request';
import { OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { madPacket, roceDatagram } from './roce-datagram.ts';

/** The source port of forged datagrams. Not RoCE's port, which a device may have bound. */
export const FORGED_PORT = 24_791;
const BUFFER_BYTES = 65_536;
/** rdma_cm's service id of port 0 in TCP's port space. */
const TCP_SERVICES = 0x0106_0000;
/** An end's parameters with credits (`message-framing.ts`). */
const OFFER = Uint8Array.of(0x69, 0x77, 0x4d, 0x31, 0, 32, 0, 0, 16, 0);

let number = 0xf00d_0000;

/** The UDP payload of a message from one address to QP 1 at another. */
function forgedMessage<N extends CmMessageName>(
  [from, to]: readonly [string, string],
  name: N,
  fields: Partial<CmFields<N>>,
): Uint8Array {
  const mad = writeCmMessage(name, { hi: 0, lo: number }, fields);
  return roceDatagram({ from, to, fromPort: FORGED_PORT }, madPacket(), mad);
}

/**
 * The UDP payload of a request to connect the queue pair `qpn` at one address to the listener at
 * another, with the offer of `messages: true`. Each request has its own number.
 */
export function forgedRequest(
  [from, to]: readonly [string, string],
  port: number,
  qpn: number,
): Uint8Array {
  const [source, destination] = [addressBytes(from), addressBytes(to)];
  number += 1;
  return forgedMessage([from, to], 'REQ', {
    localCommId: number,
    serviceIdLo: TCP_SERVICES + port,
    localQpn: qpn,
    localGid: gidBytes(from),
    remoteGid: gidBytes(to),
    pathMtu: 3,
    // The longest time.
    localResponseTimeout: 31,
    maxCmRetries: 15,
    localAckTimeout: 31,
    retryCount: 7,
    rnrRetry: 7,
    responderResources: 1,
    initiatorDepth: 1,
    privateData: writeIpRequest({ sourcePort: 7, source, destination }, OFFER),
  });
}

/** See the module's comment. It receives no answers. */
export class MadForger implements Disposable {
  readonly #from: string;
  readonly #fd: number;

  /** Sends from this address. */
  constructor(from: string) {
    this.#from = from;
    this.#fd = openUdp(from, FORGED_PORT, BUFFER_BYTES).fd;
  }

  /** See `forgedRequest`. */
  request(to: string, port: number, qpn: number): void {
    const bytes = forgedRequest([this.#from, to], port, qpn);
    const batch = new OutgoingBatch(1, bytes.length);
    batch.bytes.set(bytes, batch.slotAt(0));
    batch.add(bytes.length, { name: socketAddress(to, ROCE_PORT), trafficClass: 0, hopLimit: 0 });
    batch.send(this.#fd, 0);
  }

  [Symbol.dispose](): void {
    closeDescriptor(this.#fd);
  }
}
