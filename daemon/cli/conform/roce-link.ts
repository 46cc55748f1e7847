/** The tester's UDP socket: sends any packet, valid or not, and receives the peer's packets. */
import { VerbsError } from '#contract/verbs/errors';
import { CommandFailure } from '#daemon/console/failure';
import { gidBytes } from '#daemon/host/host-addresses';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, datagramHeaderBytes, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import {
  bytesFromIdentification,
  GID_BYTES,
  ICRC_BYTES,
  icrcOf,
  ROCE_PORT,
  readIcrc,
  writeIcrc,
} from '#daemon/roce/wire/icrc';
import { identificationOf } from '#daemon/roce/wire/identification';
import {
  Packet,
  PacketRefusal,
  packetBytes,
  parsePacket,
  writeHeaders,
} from '#daemon/roce/wire/packet';
import { PATH_MTU_MAX_BYTES } from '#daemon/roce/wire/path-mtu';
import {
  IncomingBatch,
  OutgoingBatch,
  type UdpDestination,
} from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { errnoName, SystemCallError } from '#native-bridge/libc/libc';
import { openUdp } from '#native-bridge/libc/udp-socket';
import { type DescriptorWatch, watchDescriptor } from '#native-bridge/libc/watched-descriptor';

const SLOTS = 32;
const HEADERS_MAX_BYTES = 128;
const SLOT_BYTES = PATH_MTU_MAX_BYTES + HEADERS_MAX_BYTES;
const BUFFER_BYTES = 1_048_576;

/** A packet from the peer. */
export interface Arrived {
  readonly packet: Readonly<Packet>;
  readonly payload: Uint8Array;
  /** Padding after the payload. */
  readonly padding: Uint8Array;
  /** The whole packet, from the base header to the end of the padding. */
  readonly bytes: Uint8Array;
  readonly sourcePort: number;
  readonly icrcRight: boolean;
  readonly atMs: number;
}

/** Errors of a packet. */
export interface Flaws {
  /** Changes the bytes of the packet, padding included, before its ICRC is computed. */
  readonly change?: (packet: Uint8Array) => void;
  readonly wrongIcrc?: boolean;
}

/** Receives each packet from the peer. */
type Receiver = (arrived: Arrived) => void;

/** See the module's comment. */
export class RoceLink {
  readonly from: string;
  readonly to: string;
  readonly #fd: number;
  readonly #watch: DescriptorWatch;
  readonly #in = new IncomingBatch(SLOTS, SLOT_BYTES);
  readonly #destination: UdpDestination;
  readonly #peerGid: Uint8Array;
  readonly #sender = new Uint8Array(GID_BYTES);
  readonly #receivers = new Set<Receiver>();
  /** Datagrams from the peer that do not parse as packets. */
  malformed = 0;

  /** Opens the port at the address `from`. Throws `VerbsError` EADDRINUSE, EADDRNOTAVAIL, EACCES. */
  constructor(from: string, to: string) {
    this.from = from;
    this.to = to;
    this.#fd = openPort(from);
    this.#destination = { name: socketAddress(to, ROCE_PORT), trafficClass: 0, hopLimit: 0 };
    this.#peerGid = gidBytes(to);
    this.#watch = watchDescriptor(this.#fd, () => this.#read());
  }

  close(): void {
    this.#watch.close();
    closeDescriptor(this.#fd);
  }

  /** Calls `receiver` for each packet from now on, until the returned function is called. */
  receive(receiver: Receiver): () => void {
    this.#receivers.add(receiver);
    return () => this.#receivers.delete(receiver);
  }

  /** Sends a packet; `payloadLength` is that of `payload`. CommandFailure if this host cannot send it. */
  send(fields: Partial<Packet>, payload: Uint8Array = NOTHING, flaws: Flaws = {}): void {
    const packet = Object.assign(new Packet(), fields, { payloadLength: payload.length });
    const datagram = new Datagram();
    datagram.sourceGid.set(gidBytes(this.from));
    datagram.destGid.set(this.#peerGid);
    Object.assign(datagram, { sourcePort: ROCE_PORT, packetLength: packetBytes(packet) });
    const end = datagramHeaderBytes(datagram) + datagram.packetLength;
    const bytes = new Uint8Array(end + ICRC_BYTES);
    const start = writeDatagramHeaders(bytes, 0, datagram);
    bytes.set(payload, writeHeaders(bytes, start, packet));
    flaws.change?.(bytes.subarray(start, end));
    const icrc = icrcOf(crc32, bytes, 0, start, end);
    writeIcrc(bytes, end, flaws.wrongIcrc === true ? ~icrc : icrc);
    const batch = new OutgoingBatch(1, bytes.length - start);
    batch.bytes.set(bytes.subarray(start), batch.slotAt(0));
    batch.add(bytes.length - start, this.#destination);
    const sent = batch.send(this.#fd, 0);
    if (sent < 0) {
      throw new CommandFailure(`cannot send from ${this.from} to ${this.to}: ${errnoName(-sent)}`);
    }
  }

  #read(): void {
    const count = this.#in.receive(this.#fd);
    for (let slot = 0; slot < count; slot += 1) this.#take(slot);
  }

  #take(slot: number): void {
    const sourcePort = this.#in.readSender(slot, this.#sender);
    if (!Buffer.from(this.#sender).equals(this.#peerGid)) return;
    const start = this.#in.slotAt(slot);
    const length = this.#in.lengthOf(slot) - ICRC_BYTES;
    const packet = new Packet();
    if (parsePacket(this.#in.bytes, start, length, packet) !== PacketRefusal.none) {
      this.malformed += 1;
      return;
    }
    const bytes = this.#in.bytes.slice(start, start + length);
    const payloadStart = packet.payloadStart - start;
    const payloadEnd = payloadStart + packet.payloadLength;
    const sent = readIcrc(this.#in.bytes, start + length);
    const arrived: Arrived = {
      packet,
      bytes,
      payload: bytes.subarray(payloadStart, payloadEnd),
      padding: bytes.subarray(payloadEnd),
      sourcePort,
      icrcRight: this.#isIcrc(bytes, sourcePort, sent),
      atMs: performance.now(),
    };
    for (const receiver of this.#receivers) receiver(arrived);
  }

  /** True if the ICRC is right for any IP identification, which a socket does not report. */
  #isIcrc(packet: Uint8Array, sourcePort: number, sent: number): boolean {
    const datagram = new Datagram();
    datagram.sourceGid.set(this.#peerGid);
    datagram.destGid.set(gidBytes(this.from));
    Object.assign(datagram, { sourcePort, packetLength: packet.length });
    const start = datagramHeaderBytes(datagram);
    const bytes = new Uint8Array(start + packet.length);
    writeDatagramHeaders(bytes, 0, datagram);
    bytes.set(packet, start);
    const icrc = icrcOf(crc32, bytes, 0, start, bytes.length);
    if (icrc === sent) return true;
    return identificationOf(sent, icrc, bytesFromIdentification(packet.length)) !== undefined;
  }
}

const NOTHING = new Uint8Array(0);

function openPort(address: string): number {
  try {
    return openUdp(address, ROCE_PORT, BUFFER_BYTES).fd;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    const where = `UDP port ${ROCE_PORT} of ${address}`;
    if (error.code === 'EADDRINUSE') {
      throw new VerbsError(
        'EADDRINUSE',
        `cannot open ${where}: it is taken, by a daemon or by the kernel's rxe; test from another address (--from)`,
      );
    }
    if (error.code === 'EADDRNOTAVAIL') {
      throw new VerbsError(
        'EADDRNOTAVAIL',
        `cannot open ${where}: this host has no such address; give one of its own (--from)`,
      );
    }
    throw error;
  }
}
