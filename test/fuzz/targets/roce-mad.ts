/**
 * Management datagrams to a RoCE device from other hosts: messages of connection management in any order,
 * with numbers that were heard or guessed, to a listener whose program accepts, rejects or does not care.
 * Beside it, a connection within the host must not notice.
 */

import { CMEventType, QPState } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import { gidBytes } from '#daemon/host/host-addresses';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import type { UdpNetwork, UdpSocket } from '#daemon/host/roce/udp-network';
import { ConnectionTable } from '#daemon/roce/cm/connection-table';
import {
  type CmFields,
  type CmMessageName,
  parseCmMessage,
  writeCmMessage,
} from '#daemon/roce/wire/cm-message';
import { ICRC_BYTES, ROCE_PORT } from '#daemon/roce/wire/icrc';
import { GSI_QKEY, GSI_QPN, MAD_BYTES } from '#daemon/roce/wire/mad';
import { Packet, PacketRefusal, parsePacket } from '#daemon/roce/wire/packet';
import type { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { CM_MESSAGES } from '#test/support/cm-messages';
import { fillSlot, type Datagram as Sent, sentMessages } from '#test/support/datagram-slots';
import type { Draws } from '#test/support/draws';
import { hexOf } from '#test/support/hex';
import { scribble } from '#test/support/mutate';
import { MASKS } from '#test/support/program-steps';
import { AT, CmWorld, WISHES } from '#test/support/roce-cm-world';
import { madPacket, roceDatagram } from '#test/support/roce-datagram';
import type { RoceEnd } from '#test/support/roce-host';
import type { VirtualTime } from '#test/support/virtual-time';
import { canary, claim, type FuzzState, type FuzzTarget, type Outcome } from '../target.ts';

/** The address of the device with the listener is AT's; 127.0.0.2 is the other one's, and forged here. */
const SENDERS = ['127.9.0.1', '127.9.0.2', '127.0.0.2'] as const;
/** Those that make and end connections are more frequent. */
const NAMES: readonly CmMessageName[] = [
  ...(Object.keys(CM_MESSAGES) as CmMessageName[]),
  ...(['REQ', 'RTU', 'RTU', 'DREQ'] as const),
];
const MESSAGES_MAX = 8;
/** rdma_cm's service id of port 0 in TCP's port space. */
const TCP_SERVICES = 0x0106_0000;
/** Numbers that messages repeat. */
const HEARD_MAX = 64;
/** Connections that strangers remember. */
const DIALOGUES_MAX = 8;
/** Queue pairs of accepted connections. */
const ACCEPTED_MAX = 4;
/** Steps of time between messages: none, a retransmission, more than any timeout. */
const PAUSES = [0, 0, 0, 0, 0, 0, 1000, 1000, 3_000_000, 200_000_000] as const;

/** UDP whose datagrams this target delivers and takes. */
class WireNetwork implements UdpNetwork {
  readonly messageBytes = 8192;
  readonly sent: Sent[] = [];
  readonly #sockets = new Map<string, WireSocket>();
  time: VirtualTime | undefined;

  open(address: string, onReadable: () => void): UdpSocket {
    const socket = new WireSocket(address, this.sent, onReadable);
    this.#sockets.set(address, socket);
    return socket;
  }

  openGroup(): UdpSocket {
    throw new Error('no group is joined');
  }

  routeMtu(): number {
    return 1500;
  }

  deliver(datagram: Sent): void {
    const socket = this.#sockets.get(datagram.to);
    claim(socket !== undefined, 'no socket at the address of the listener');
    socket.pending.push(datagram);
    this.time?.soon(socket.onReadable);
  }
}

class WireSocket implements UdpSocket {
  readonly segments = true;
  readonly pending: Sent[] = [];
  readonly onReadable: () => void;
  readonly #address: string;
  readonly #sent: Sent[];

  constructor(address: string, sent: Sent[], onReadable: () => void) {
    this.#address = address;
    this.#sent = sent;
    this.onReadable = onReadable;
  }

  send(batch: OutgoingBatch, first: number): number {
    for (const message of sentMessages(batch, first, this.#address, ROCE_PORT)) {
      this.#sent.push(...message);
    }
    return batch.count - first;
  }

  receive(batch: IncomingBatch): number {
    const taken = this.pending.splice(0, batch.slots);
    for (const [slot, datagram] of taken.entries()) fillSlot(batch, slot, [datagram]);
    return taken.length;
  }

  close(): void {}
}

/** A connection as the stranger who requested it knows it. */
interface Dialogue {
  readonly from: (typeof SENDERS)[number];
  readonly localCommId: number;
  readonly localQpn: number;
  /** From the reply. */
  remoteCommId: number;
  remoteQpn: number;
}

interface Accepted {
  readonly id: HostId;
  readonly end: RoceEnd;
}

class MadState implements FuzzState {
  readonly #network = new WireNetwork();
  readonly #world = new CmWorld(2, { ...ROCE_NETWORK, udp: this.#network });
  readonly #witness: readonly RoceEnd[];
  /** Those of the witness. */
  readonly #ids: readonly HostId[];
  readonly #heard: number[] = [1];
  readonly #dialogues: Dialogue[] = [];
  #commIds = 0;
  readonly #accepted: Accepted[] = [];
  readonly #free: RoceEnd[] = [];
  #draws: Draws | undefined;

  constructor() {
    const { time, host } = this.#world;
    this.#network.time = time;
    const { active, passive, dialer, acceptor } = this.#world.connected();
    this.#witness = [active, passive];
    this.#ids = [dialer, acceptor];
    host.onCmEvent = (_, event) => this.#handle(event);
  }

  run(draws: Draws): Outcome {
    this.#draws = draws;
    let answers = 0;
    for (let count = 1 + draws.below(MESSAGES_MAX); count > 0; count -= 1) {
      const datagram = this.#datagram(draws);
      if (draws.recording) draws.show(`${datagram.from} ${hexOf(datagram.bytes)}`);
      this.#network.deliver(datagram);
      this.#world.run(draws.pick(PAUSES));
      answers += this.#listen();
      for (const { qp } of this.#witness) {
        claim(qp.state === QPState.RTS, 'a connection within the host has noticed');
      }
    }
    return answers > 0 ? 'answered' : 'silent';
  }

  #datagram(draws: Draws): Sent {
    const packet = madPacket({
      sourceQpn: draws.oneIn(20) ? draws.below(2 ** 24) : GSI_QPN,
      qkey: draws.oneIn(30) ? draws.below(2 ** 32) : GSI_QKEY,
      payloadLength: draws.oneIn(20) ? 4 * draws.below(200) : MAD_BYTES,
    });
    const name = draws.pick(NAMES);
    const dialogue = this.#dialogue(draws, name);
    const from = dialogue?.from ?? draws.pick(SENDERS);
    const message = this.#message(draws, name, dialogue ?? { from });
    const hopLimit = draws.oneIn(20) ? 0 : 64;
    const to = AT.address;
    const bytes = roceDatagram({ from, to }, packet, message);
    return { from, fromPort: ROCE_PORT, to, bytes, trafficClass: 0, hopLimit };
  }

  /** The connection that a message belongs to, in most cases: a new one for a request. */
  #dialogue(draws: Draws, name: CmMessageName): Dialogue | undefined {
    if (draws.oneIn(4)) return undefined;
    if (name !== 'REQ' || draws.oneIn(8)) {
      return this.#dialogues.length === 0 ? undefined : draws.pick(this.#dialogues);
    }
    this.#commIds += 1;
    const known = { localCommId: this.#commIds, localQpn: this.#commIds };
    const dialogue = { from: draws.pick(SENDERS), ...known, remoteCommId: 0, remoteQpn: 0 };
    this.#dialogues.unshift(dialogue);
    this.#dialogues.length = Math.min(this.#dialogues.length, DIALOGUES_MAX);
    return dialogue;
  }

  #message(
    draws: Draws,
    name: CmMessageName,
    known: Partial<Dialogue> & Pick<Dialogue, 'from'>,
  ): Uint8Array {
    const number = () => (draws.oneIn(4) ? draws.below(2 ** 32) : draws.pick(this.#heard));
    const { localCommId = number(), remoteCommId = number() } = known;
    const { localQpn = draws.below(16), remoteQpn = this.#qpn(draws) } = known;
    const service = draws.oneIn(8) ? draws.below(2 ** 32) : TCP_SERVICES + AT.port;
    const gids = { localGid: gidBytes(known.from), remoteGid: gidBytes(AT.address) };
    const request = { serviceIdHi: 0, serviceIdLo: service, transportService: 0, ...gids };
    const fields = {
      ...CM_MESSAGES[name],
      ...{ localCommId, remoteCommId, localQpn, remoteQpn, requestId: number() },
      ...(name === 'REQ' ? request : {}),
    } as Partial<CmFields<typeof name>>;
    const mad = writeCmMessage(name, { hi: 0, lo: localCommId }, fields);
    if (draws.oneIn(4)) scribble(mad, draws.below(MAD_BYTES), draws);
    return mad;
  }

  /** The number of a queue pair of the host. */
  #qpn(draws: Draws): number {
    const ends = [...this.#witness, ...this.#accepted.map(({ end }) => end)];
    return draws.pick(ends).qp.qpn;
  }

  /** Takes the answers, and the numbers in them. */
  #listen(): number {
    const { sent } = this.#network;
    const answers = sent.splice(0);
    for (const { bytes } of answers) {
      const packet = new Packet();
      const refusal = parsePacket(bytes, 0, bytes.length - ICRC_BYTES, packet);
      claim(refusal === PacketRefusal.none, 'an answer is not a packet');
      const at = packet.payloadStart;
      const message = parseCmMessage(bytes.subarray(at, at + MAD_BYTES));
      claim(typeof message !== 'string', 'an answer is not a message');
      const { localCommId, remoteCommId, localQpn } = message.fields as Partial<Dialogue>;
      if (localCommId === undefined) continue;
      this.#heard.unshift(localCommId);
      const dialogue = this.#dialogues.find((each) => each.localCommId === remoteCommId);
      if (dialogue === undefined || localQpn === undefined) continue;
      Object.assign(dialogue, { remoteCommId: localCommId, remoteQpn: localQpn });
    }
    this.#heard.length = Math.min(this.#heard.length, HEARD_MAX);
    return answers.length;
  }

  /** The program of the listener. */
  #handle({ type, id }: HostCmEvent): void {
    const draws = this.#draws;
    if (draws === undefined) return;
    claim(!this.#ids.includes(id), 'a connection within the host has an event');
    const { cm, host } = this.#world;
    if (type !== CMEventType.connectRequest) {
      const at = this.#accepted.findIndex((each) => each.id === id);
      if (at >= 0 && type === CMEventType.disconnected) this.#release(at);
      return;
    }
    const fate = draws.below(4);
    if (fate === 0) cm.reject(id, Uint8Array.of(7));
    else if (fate === 1) cm.destroy(id);
    else {
      if (this.#accepted.length === ACCEPTED_MAX) this.#release(draws.below(ACCEPTED_MAX));
      const end = this.#free.pop() ?? this.#world.initialised(1);
      this.#accepted.push({ id, end });
      try {
        cm.accept(id, end.qp, WISHES);
      } catch (error) {
        // A request of a type that the queue pair does not have, for example.
        if (!isVerbsError(error)) throw error;
        this.#release(this.#accepted.length - 1);
      }
    }
    host.drain();
  }

  #release(at: number): void {
    const [released] = this.#accepted.splice(at, 1);
    if (released === undefined) return;
    const { id, end } = released;
    this.#world.cm.destroy(id);
    end.modify(QPState.RESET, QPAttribute.state);
    end.modify(QPState.INIT, MASKS[end.qp.type][0], { accessFlags: 0 });
    this.#free.push(end);
  }

  async close(): Promise<void> {
    this.#draws = undefined;
    const closing = this.#world.host.close();
    // Many ids are destroyed in slices, on the world's clock.
    this.#world.run(0);
    await closing;
  }
}

export const roceMad: FuzzTarget = {
  name: 'wire-mad',
  about: 'connection management of RoCE: messages of strangers, beside a connection of the host',
  batchInputs: 500,
  weight: 500,
  smokeInputs: 500,
  // A table that keeps the queue pairs of peers whose connections have ended.
  canary: canary(1000, ConnectionTable.prototype, 'forgetRemoteQp', () => undefined),
  open: () => new MadState(),
};
