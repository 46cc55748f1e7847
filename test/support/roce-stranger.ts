/** A host without a connection, which sends datagrams and messages to a device. */

import { createSocket } from 'node:dgram';
import { gidBytes } from '#daemon/host/host-addresses';
import type { RoceCounters } from '#daemon/host/roce/roce-counters';
import { writeCmMessage } from '#daemon/roce/wire/cm-message';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { GSI_QKEY, GSI_QPN } from '#daemon/roce/wire/mad';
import { until } from './patience.ts';
import { madPacket, roceDatagram } from './roce-datagram.ts';

/** A Q_Key that no queue pair of a test has. */
const WRONG_QKEY = 0x7777;

/** See the module's comment. Each packet is sent once the one before was handled. */
export class RoceStranger {
  readonly #socket = createSocket('udp4');
  readonly #from: string;
  readonly #to: string;
  readonly #counters: RoceCounters;

  /** `counters`: those of the device at the address `to`. */
  constructor(from: string, to: string, counters: RoceCounters) {
    this.#from = from;
    this.#to = to;
    this.#counters = counters;
  }

  async open(): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.bind(ROCE_PORT, this.#from, resolve));
  }

  close(): void {
    this.#socket.close();
  }

  /** Sends datagrams to this queue pair, which accepts none with their Q_Key. */
  async sendDatagrams(qpn: number, times: number): Promise<void> {
    const dropped = () => this.#counters.badQkeys;
    const bytes = this.#datagram(qpn, WRONG_QKEY, new Uint8Array(64));
    for (let sent = 0; sent < times; sent += 1) await this.#send(bytes, dropped);
  }

  /** Sends requests to a service without a listener, which the device rejects. */
  async sendRequests(times: number): Promise<void> {
    const answered = () => this.#counters.sentPackets;
    for (let sent = 0; sent < times; sent += 1) {
      const request = { localCommId: sent + 1, serviceIdLo: 0x106_0001, pathMtu: 5 };
      const ends = { localGid: gidBytes(this.#from), remoteGid: gidBytes(this.#to) };
      const mad = writeCmMessage(
        'REQ',
        { hi: 1, lo: sent },
        { ...request, ...ends, localQpn: sent },
      );
      await this.#send(this.#datagram(GSI_QPN, GSI_QKEY, mad), answered);
    }
  }

  async #send(bytes: Uint8Array, count: () => number): Promise<void> {
    const before = count();
    this.#socket.send(bytes, ROCE_PORT, this.#to);
    await until('the packet of a stranger', () => count() > before);
  }

  #datagram(destQpn: number, qkey: number, payload: Uint8Array): Uint8Array {
    const packet = madPacket({ destQpn, qkey, payloadLength: payload.length });
    return roceDatagram({ from: this.#from, to: this.#to }, packet, payload);
  }
}
