/**
 * Connection management as somebody sends it who has an address and no RoCE device: any program of the
 * peer's host, or of any host that forges its source address.
 */
import { gidBytes } from '../../daemon/host/host-addresses.ts';
import { addressBytes } from '../../daemon/iwarp/cm/address.ts';
import {
  type CmFields,
  type CmMessageName,
  writeCmMessage,
} from '../../daemon/roce/wire/cm-message.ts';
import { crc32 } from '../../daemon/roce/wire/crc32.ts';
import {
  datagramHeaderBytes,
  makeDatagram,
  writeDatagramHeaders,
} from '../../daemon/roce/wire/datagram.ts';
import { ICRC_BYTES, icrcOf, ROCE_PORT, writeIcrc } from '../../daemon/roce/wire/icrc.ts';
import { writeIpRequest } from '../../daemon/roce/wire/ip-request.ts';
import { GSI_QKEY, GSI_QPN, MAD_BYTES } from '../../daemon/roce/wire/mad.ts';
import { Operation, Service } from '../../daemon/roce/wire/opcode.ts';
import { makePacket, packetBytes, writeHeaders } from '../../daemon/roce/wire/packet.ts';
import { OutgoingBatch } from '../../native-bridge/libc/datagram-batch.ts';
import { closeDescriptor } from '../../native-bridge/libc/descriptor.ts';
import { socketAddress } from '../../native-bridge/libc/internet-socket.ts';
import { openUdp } from '../../native-bridge/libc/udp-socket.ts';

/** Not that of RoCE: a device may have that one. */
const SOURCE_PORT = 24_791;
const BUFFER_BYTES = 65_536;
/** rdma_cm's service id of port 0 in TCP's port space. */
const TCP_SERVICES = 0x0106_0000;

/** What an end with credits says of itself (`message-framing.ts`). */
const OFFER = Uint8Array.of(0x69, 0x77, 0x4d, 0x31, 0, 32, 0, 0, 16, 0);

/** See the module's comment. */
export class MadForger implements Disposable {
  readonly #from: string;
  readonly #fd: number;
  #number = 0xf00d_0000;

  /** Sends from this address. */
  constructor(from: string) {
    this.#from = from;
    this.#fd = openUdp(from, SOURCE_PORT, BUFFER_BYTES).fd;
  }

  /**
   * A request to connect the queue pair `qpn` of the sender's address to what listens at `to`, with the
   * offer of `messages: true`; its sender will hear no answer.
   */
  request(to: string, port: number, qpn: number): void {
    const [source, destination] = [addressBytes(this.#from), addressBytes(to)];
    this.#number += 1;
    this.send(to, 'REQ', {
      localCommId: this.#number,
      serviceIdLo: TCP_SERVICES + port,
      localQpn: qpn,
      localGid: gidBytes(this.#from),
      remoteGid: gidBytes(to),
      pathMtu: 3,
      // All the time that there is.
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

  /** A message to QP 1 of the port that has the address `to`. */
  send<N extends CmMessageName>(to: string, name: N, fields: Partial<CmFields<N>>): void {
    const packet = makePacket();
    Object.assign(packet, {
      opcode: Service.ud | Operation.sendOnly,
      sourceQpn: GSI_QPN,
      destQpn: GSI_QPN,
      qkey: GSI_QKEY,
      payloadLength: MAD_BYTES,
    });
    const datagram = makeDatagram();
    datagram.sourceGid.set(gidBytes(this.#from));
    datagram.destGid.set(gidBytes(to));
    datagram.sourcePort = SOURCE_PORT;
    datagram.packetLength = packetBytes(packet);
    const end = datagramHeaderBytes(datagram) + datagram.packetLength;
    const bytes = new Uint8Array(end + ICRC_BYTES);
    const start = writeDatagramHeaders(bytes, 0, datagram);
    bytes.set(
      writeCmMessage(name, { hi: 0, lo: this.#number }, fields),
      writeHeaders(bytes, start, packet),
    );
    writeIcrc(bytes, end, icrcOf(crc32, bytes, 0, start, end));
    const whole = bytes.subarray(start);
    const batch = new OutgoingBatch(1, whole.length);
    batch.bytes.set(whole, batch.slotAt(0));
    batch.add(whole.length, { name: socketAddress(to, ROCE_PORT), trafficClass: 0, hopLimit: 0 });
    batch.send(this.#fd, 0);
  }

  [Symbol.dispose](): void {
    closeDescriptor(this.#fd);
  }
}
