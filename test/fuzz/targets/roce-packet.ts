/** Datagrams and packets of RoCEv2: refused by kind, or read whole and written again. */
import { crc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  DatagramRefusal,
  datagramHeaderBytes,
  parseDatagram,
  writeDatagramHeaders,
} from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { headerBytes } from '#daemon/roce/wire/opcode';
import {
  Packet,
  PacketRefusal,
  packetBytes,
  parsePacket,
  writeHeaders,
} from '#daemon/roce/wire/packet';
import { datagramsOf, recordingPath } from '#test/support/captured-datagrams';
import { hexOf } from '#test/support/hex';
import { mutated, scribble } from '#test/support/mutate';
import { datagramOf, OPCODES, packetOf } from '#test/support/roce-packets';
import { canary, claim, type FuzzTarget } from '../target.ts';

/** Longest headers: IPv6, UDP, base header, AtomicETH. */
const HEADERS_MAX_BYTES = 40 + 8 + 12 + 28;

function corpusOf(): Uint8Array[] {
  const own = OPCODES.map(packetOf).flatMap((packet) => [
    datagramOf(packet, 'ipv4'),
    datagramOf(packet, 'ipv6'),
  ]);
  const recorded = ['opcodes-ipv4', 'opcodes-ipv6'].map(recordingPath).flatMap(datagramsOf);
  return [...own, ...recorded];
}

/** The same headers without the bits that a reader ignores. */
function withoutReserved(bytes: Uint8Array, bth: number, opcode: number): string {
  const copy = bytes.slice(0, bth + headerBytes(opcode));
  copy[bth + 4] = (copy[bth + 4] ?? 0) & 0xc0;
  copy[bth + 8] = (copy[bth + 8] ?? 0) & 0x80;
  if (opcode >= 0x60) copy[bth + 16] = 0;
  return hexOf(copy.subarray(bth));
}

export const rocePacket: FuzzTarget = {
  name: 'wire-roce',
  about: 'RoCEv2 datagrams and packets: read, written again, their ICRCs checked',
  batchInputs: 100_000,
  weight: 40_000,
  smokeInputs: 20_000,
  // A reader that keeps a byte of the previous address.
  canary: canary(20_000, Uint8Array.prototype, 'fill', (fill, value, start, end) =>
    fill(value, end === 10 ? 1 : start, end),
  ),
  open() {
    const corpus = corpusOf();
    // Reused, as in a receiver: leftovers of one input must not affect the next.
    const datagram = new Datagram();
    const packet = new Packet();
    const again = new Packet();
    const written = new Uint8Array(HEADERS_MAX_BYTES);
    return {
      run(draws) {
        const source = draws.pick(corpus);
        const bytes = draws.oneIn(3)
          ? mutated(source, corpus, draws, draws.below(4))
          : Uint8Array.from(source);
        for (let count = draws.below(4); count > 0; count -= 1) {
          scribble(bytes, draws.below(HEADERS_MAX_BYTES), draws);
        }
        if (draws.recording) draws.show(hexOf(bytes));
        if (parseDatagram(bytes, 0, bytes.length, datagram) !== DatagramRefusal.none) {
          return 'no RoCEv2';
        }
        const { packetStart, packetLength } = datagram;
        const end = packetStart + packetLength;
        claim(packetLength >= 12 && end + ICRC_BYTES <= bytes.length, 'a packet out of bounds');
        claim(datagramHeaderBytes(datagram) === packetStart, 'headers of another length');
        claim(writeDatagramHeaders(written, 0, datagram) === packetStart, 'other headers');

        if (parsePacket(bytes, packetStart, packetLength, packet) !== PacketRefusal.none) {
          return 'refused';
        }
        const { payloadStart, payloadLength, opcode } = packet;
        claim(payloadStart + payloadLength <= end, 'a payload out of bounds');
        claim(packetBytes(packet) === packetLength, 'a packet of another length');
        const payload = writeHeaders(written, 0, packet);
        claim(payload === headerBytes(opcode), 'headers of another length');
        claim(
          withoutReserved(written, 0, opcode) === withoutReserved(bytes, packetStart, opcode),
          'headers changed by reading and writing them',
        );
        const headers = bytes.slice();
        headers.set(written.subarray(0, payload), packetStart);
        claim(
          parsePacket(headers, packetStart, packetLength, again) === PacketRefusal.none,
          'own headers refused',
        );
        const icrc = icrcOf(crc32, bytes, 0, packetStart, end);
        return icrc === readIcrc(bytes, end) ? 'right ICRC' : 'wrong ICRC';
      },
      close: () => undefined,
    };
  },
};
