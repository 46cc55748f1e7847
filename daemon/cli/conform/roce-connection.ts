/**
 * The tester's connection to a RoCE peer. Connection management sets it up; then rows send and
 * receive packet by packet.
 */
import { randomInt } from 'node:crypto';
import { addressBytes } from '#base/address';
import { gidBytes } from '#daemon/host/host-addresses';
import {
  type CmFields,
  type CmMessage,
  type CmMessageName,
  parseCmMessage,
  type Transaction,
  writeCmMessage,
} from '#daemon/roce/wire/cm-message';
import { dumpPacket } from '#daemon/roce/wire/dump';
import { writeIpRequest } from '#daemon/roce/wire/ip-request';
import { GSI_QKEY, GSI_QPN } from '#daemon/roce/wire/mad';
import { opcodeTraits, PacketOperation, Service, Trait } from '#daemon/roce/wire/opcode';
import type { Packet } from '#daemon/roce/wire/packet';
import { addPsn, psnDistance } from '#daemon/roce/wire/psn';
import { ACK_WITHOUT_CREDITS } from '#daemon/roce/wire/syndrome';
import { Inbox } from './inbox.ts';
import { type Offer, parseOffer } from './offer.ts';
import type { Arrived, Flaws, RoceLink } from './roce-link.ts';
import { Deviation, demand } from './row.ts';

/** Service ids of rdma_cm's TCP port space (IBTA annex A11). */
const TCP_SERVICES = 0x0106_0000;
/** Local ACK timeout in the REQ: 4.096 µs times 2 to this power, 67 ms. */
const ACK_TIMEOUT = 14;
/** Response timeout in connection management, in the same encoding: 4.3 s. */
const RESPONSE_TIMEOUT = 20;
/** How long to wait for an answer in connection management: that timeout, and some more. */
const RESPONSE_MS = 5000;
const RETRIES = 7;
/** rdma_cm's local identifiers on RoCE. */
const NO_LID = 0xffff;
/**
 * Path MTU of the tester's connections: the smallest, so that even short messages take several
 * packets.
 */
export const PATH_MTU_BYTES = 256;
const PATH_MTU_CODE = 1;
/** The tester's depth for Reads and atomics, in either direction. */
const DEPTH = 4;
/** Queue pair numbers of the tester: well above those that implementations start with. */
const QPN = { min: 0x40_0000, max: 0xff_fff0 } as const;

/** Fields of a REQ that a row changes. */
export type RequestFields = Partial<CmFields<'REQ'>>;

/** Sends and receives management datagrams to and from the peer's QP 1. */
export class RoceManagement {
  readonly #link: RoceLink;
  readonly #messages: Inbox<CmMessage>;
  readonly #stop: () => void;

  constructor(link: RoceLink, patienceMs: number) {
    this.#link = link;
    this.#messages = new Inbox(Math.max(patienceMs, RESPONSE_MS));
    this.#stop = link.receive(({ packet, payload }) => {
      if (packet.opcode !== UD_SEND || packet.destQpn !== GSI_QPN) return;
      const message = parseCmMessage(payload.slice());
      if (typeof message !== 'string') this.#messages.push(message);
    });
  }

  close(): void {
    this.#stop();
  }

  /** Sends a message of connection management; `fields` override those of its packet. */
  say<N extends CmMessageName>(
    name: N,
    transaction: Transaction,
    message: Partial<CmFields<N>>,
    fields: Partial<Packet> = {},
  ): void {
    const mad = writeCmMessage(name, transaction, message);
    const packet = { opcode: UD_SEND, destQpn: GSI_QPN, sourceQpn: GSI_QPN, qkey: GSI_QKEY };
    this.#link.send({ ...packet, ...fields }, mad);
  }

  /** The next message for which `wanted` is true; drops others. Throws `Deviation` if none comes. */
  next(what: string, wanted: (message: CmMessage) => boolean): Promise<CmMessage> {
    return this.#messages.next(what, wanted);
  }

  /** True if such a message has arrived and no row has taken it. */
  has(wanted: (message: CmMessage) => boolean): boolean {
    return this.#messages.has(wanted);
  }

  /** A REQ to the service at this port, as rdma_cm writes it. */
  request(port: number, given: RequestFields): RequestFields {
    const { from, to } = this.#link;
    const [source, destination] = [addressBytes(from), addressBytes(to)];
    return {
      localCommId: randomInt(1, 2 ** 32),
      serviceIdLo: TCP_SERVICES + port,
      localQpn: randomInt(QPN.min, QPN.max),
      responderResources: DEPTH,
      initiatorDepth: DEPTH,
      remoteResponseTimeout: RESPONSE_TIMEOUT,
      startingPsn: randomInt(0, 2 ** 24),
      localResponseTimeout: RESPONSE_TIMEOUT,
      retryCount: RETRIES,
      pkey: 0xffff,
      pathMtu: PATH_MTU_CODE,
      rnrRetry: RETRIES,
      maxCmRetries: RETRIES,
      localLid: NO_LID,
      remoteLid: NO_LID,
      localGid: gidBytes(from),
      remoteGid: gidBytes(to),
      hopLimit: 64,
      localAckTimeout: ACK_TIMEOUT,
      privateData: writeIpRequest({ sourcePort: 7, source, destination }, new Uint8Array(0)),
      ...given,
    };
  }
}

const UD_SEND = Service.ud | PacketOperation.sendOnly;

export function newTransaction(): Transaction {
  return { hi: randomInt(0, 2 ** 32), lo: randomInt(0, 2 ** 32) };
}

/** See the module's comment. */
export class RoceConnection {
  readonly offer: Offer | undefined;
  /** The peer's first PSN. */
  readonly peerPsn: number;
  /** The REP. */
  readonly reply: CmFields<'REP'>;
  /** PSN of the next request. */
  psn: number;
  readonly #link: RoceLink;
  readonly #management: RoceManagement;
  readonly #commId: number;
  readonly #responses: Inbox<Arrived>;
  readonly #requests: Inbox<Arrived>;
  readonly #stop: () => void;
  #closed = false;
  /** The largest PSN of the peer's requests, and the largest that the tester has answered. */
  #received: number;
  #answered: number;

  private constructor(
    link: RoceLink,
    management: RoceManagement,
    request: RequestFields,
    reply: CmFields<'REP'>,
    patienceMs: number,
  ) {
    this.#link = link;
    this.#management = management;
    this.#commId = request.localCommId ?? 0;
    this.reply = reply;
    // Each end chooses the other end's first PSN (IBTA 12.7.31).
    this.psn = reply.startingPsn;
    this.peerPsn = request.startingPsn ?? 0;
    this.#received = addPsn(this.peerPsn, -1);
    this.#answered = this.#received;
    this.offer = parseOffer(reply.privateData);
    this.#responses = new Inbox(patienceMs, (arrived) => dumpPacket(arrived.packet));
    this.#requests = new Inbox(patienceMs, (arrived) => dumpPacket(arrived.packet));
    this.#stop = link.receive((arrived) => {
      const { opcode, destQpn } = arrived.packet;
      if (destQpn !== request.localQpn || opcode === UD_SEND) return;
      const isRequest = (opcodeTraits(opcode) & Trait.request) !== 0;
      if (!isRequest) {
        this.#responses.push(arrived);
        return;
      }
      const last = lastPsn(arrived);
      if (psnDistance(last, this.#received) > 0) this.#received = last;
      this.#requests.push(arrived);
    });
  }

  /** Connects with this REQ. Throws `Deviation` if the peer does not accept. */
  static async open(
    link: RoceLink,
    management: RoceManagement,
    request: RequestFields,
    patienceMs: number,
  ): Promise<RoceConnection> {
    const transaction = newTransaction();
    management.say('REQ', transaction, request);
    const reply = await management.next('an answer to the REQ', ({ name, fields }) => {
      if (name !== 'REP' && name !== 'REJ') return false;
      return fields.remoteCommId === request.localCommId;
    });
    if (reply.name !== 'REP') {
      throw new Deviation(`the peer rejected the connection, reason ${rejectReason(reply)}`);
    }
    const { fields } = reply;
    const connection = new RoceConnection(link, management, request, fields, patienceMs);
    management.say('RTU', transaction, connection.#ids());
    return connection;
  }

  /**
   * Ends the connection. Waits for the peer's answer, so that it no longer exists when the next one
   * begins.
   */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stop();
    const transaction = newTransaction();
    this.#management.say('DREQ', transaction, {
      ...this.#ids(),
      remoteQpn: this.reply.localQpn,
    });
    try {
      await this.#management.next('a DREP', (message) => {
        if (message.name === 'DREQ' && message.fields.remoteCommId === this.#commId) {
          this.#management.say('DREP', message.transaction, this.#ids());
          return true;
        }
        return message.name === 'DREP' && message.fields.remoteCommId === this.#commId;
      });
    } catch (error) {
      // A peer that is gone cannot confirm, and the row has already judged it.
      if (!(error instanceof Deviation)) throw error;
    }
  }

  #ids(): { readonly localCommId: number; readonly remoteCommId: number } {
    return { localCommId: this.#commId, remoteCommId: this.reply.localCommId };
  }

  // The tester requests

  /** Sends a request packet with the next PSN; `asks` sets AckReq. Returns the PSN. */
  request(
    opcode: number,
    fields: Partial<Packet> = {},
    payload?: Uint8Array,
    flaws?: Flaws,
  ): number {
    const { psn } = this;
    this.psn = addPsn(psn, 1);
    this.requestAt(psn, opcode, fields, payload, flaws);
    return psn;
  }

  /** Sends a request packet with this PSN. It asks for an ACK unless `fields` says otherwise. */
  requestAt(
    psn: number,
    opcode: number,
    fields: Partial<Packet> = {},
    payload?: Uint8Array,
    flaws?: Flaws,
  ): void {
    const base = { opcode, psn, destQpn: this.reply.localQpn, ackRequest: true };
    this.#link.send({ ...base, ...fields }, payload, flaws);
  }

  /** The next response. Throws `Deviation` if none comes. */
  response(): Promise<Arrived> {
    return this.#responses.next('a response', () => true);
  }

  /** True if a response has arrived that no row has taken. */
  get hasResponse(): boolean {
    return this.#responses.has(() => true);
  }

  /**
   * Waits for the ACK of `psn` and drops earlier ACKs. Throws `Deviation` for any other response.
   */
  async acknowledged(psn: number): Promise<Arrived> {
    for (;;) {
      const arrived = await this.response();
      const { opcode, syndrome, psn: answered } = arrived.packet;
      const isAck = opcode === PacketOperation.acknowledge && syndrome < 0x20;
      demand(isAck, `expected an ACK, received ${dumpPacket(arrived.packet)}`);
      if (answered === psn) return arrived;
    }
  }

  /** Waits for a response with this syndrome and PSN. Throws `Deviation` for any other. */
  async refused(psn: number, syndrome: number): Promise<Arrived> {
    const arrived = await this.response();
    const { packet } = arrived;
    const right =
      packet.opcode === PacketOperation.acknowledge &&
      packet.syndrome === syndrome &&
      packet.psn === psn;
    const wanted = dumpPacket({ ...packet, opcode: PacketOperation.acknowledge, syndrome, psn });
    demand(right, `expected ${wanted}; received ${dumpPacket(packet)}`);
    return arrived;
  }

  /**
   * Checks that the packets sent so far get no answer. It sends two Writes of no bytes: since the
   * peer handles packets in order, their two answers must come first. The second Write exposes an
   * answer to an earlier packet that had the PSN of the first. Throws `Deviation` for any other
   * answer.
   */
  async silent(): Promise<void> {
    for (let probe = 0; probe < 2; probe += 1) {
      const psn = this.request(PacketOperation.writeOnly, { dmaLength: 0 });
      const { packet } = await this.response();
      const { opcode, syndrome, psn: answered } = packet;
      demand(
        opcode === PacketOperation.acknowledge && syndrome < 0x20 && answered === psn,
        `expected no answer, and then an ACK of PSN ${psn}; received ${dumpPacket(packet)}`,
      );
    }
  }

  /** Reads the peer's memory, in one or more responses. */
  async read(address: bigint, key: number, length: number): Promise<Uint8Array> {
    const psn = this.psn;
    const count = Math.max(1, Math.ceil(length / PATH_MTU_BYTES));
    this.requestAt(psn, PacketOperation.readRequest, memory(address, key, length));
    this.psn = addPsn(psn, count);
    const parts: Uint8Array[] = [];
    while (parts.length < count) {
      const { packet, payload } = await this.response();
      const expected = addPsn(psn, parts.length);
      const isResponse = (opcodeTraits(packet.opcode) & Trait.readResponse) !== 0;
      demand(
        isResponse && packet.psn === expected,
        `expected a Read response with PSN ${expected}, received ${dumpPacket(packet)}`,
      );
      parts.push(payload);
    }
    return Buffer.concat(parts);
  }

  // The tester responds

  /** The peer's next unanswered request. Throws `Deviation` if none comes. */
  peerRequest(what = 'a request of the peer'): Promise<Arrived> {
    return this.#requests.next(what, (arrived) => this.#isOpen(arrived));
  }

  /** False for a repetition that the peer sent before it received the answer. */
  #isOpen({ packet }: Arrived): boolean {
    return psnDistance(packet.psn, this.#answered) > 0;
  }

  /** Records that the peer's requests up to `psn` are answered. */
  settle(psn: number): void {
    if (psnDistance(psn, this.#received) <= 0) this.#answered = psn;
  }

  /** Takes the peer's next request; false if none comes. */
  async anotherRequest(): Promise<boolean> {
    try {
      await this.peerRequest();
      return true;
    } catch (error) {
      if (error instanceof Deviation) return false;
      throw error;
    }
  }

  /** True if an unanswered request has arrived since `ms` and no row has taken it. */
  hasRequestSince(ms: number): boolean {
    return this.#requests.has((arrived) => arrived.atMs > ms && this.#isOpen(arrived));
  }

  /** Acknowledges the peer's requests up to `psn`. */
  acknowledge(psn: number, syndrome: number = ACK_WITHOUT_CREDITS): void {
    // A NAK acknowledges what is before it.
    this.settle(syndrome === ACK_WITHOUT_CREDITS ? psn : addPsn(psn, -1));
    this.requestAt(psn, PacketOperation.acknowledge, { syndrome, msn: 0, ackRequest: false });
  }

  /** Sends one response of a Read. */
  readResponse(psn: number, opcode: number, payload: Uint8Array): void {
    const fields = { syndrome: ACK_WITHOUT_CREDITS, msn: 0, ackRequest: false };
    this.requestAt(psn, opcode, fields, payload);
  }
}

/** The PSN of a request, or of the last response of a Read. */
function lastPsn({ packet }: Arrived): number {
  if (packet.opcode !== PacketOperation.readRequest) return packet.psn;
  return addPsn(packet.psn, Math.max(1, Math.ceil(packet.dmaLength / PATH_MTU_BYTES)) - 1);
}

/** The fields of a RETH or AtomicETH. */
export function memory(address: bigint, rkey: number, dmaLength: number): Partial<Packet> {
  return {
    vaHi: Number(address >> 32n),
    vaLo: Number(address & 0xffff_ffffn),
    rkey,
    dmaLength,
  };
}

function rejectReason(message: CmMessage): number | undefined {
  return message.name === 'REJ' ? message.fields.reason : undefined;
}
