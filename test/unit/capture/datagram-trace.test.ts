import { describe, expect, it } from 'vitest';
import { DatagramTrace, type TracedPacket } from '#daemon/capture/datagram-trace';
import { opcodeName } from '#daemon/roce/wire/opcode';
import { datagramOf, OPCODES, packetOf } from '#test/support/roce-packets';

const SEND_ONLY = 0x04;
const trace = new DatagramTrace();

function changed(at: number, value: number): Uint8Array {
  const bytes = datagramOf(packetOf(SEND_ONLY), 'ipv4');
  bytes[at] = value;
  return bytes;
}

function textOf(bytes: Uint8Array): string | undefined {
  return trace.take(bytes, 0)?.text;
}

describe('the trace of RoCEv2 datagrams', () => {
  it.each(['ipv4', 'ipv6'] as const)('names every packet over %s', (family) => {
    for (const opcode of OPCODES) {
      const packet = packetOf(opcode);
      const traced = trace.take(datagramOf(packet, family), 0);
      expect(traced).toMatchObject({
        kind: 'packet',
        opcode: opcodeName(opcode),
        payloadBytes: packet.payloadLength,
      });
      expect(traced?.text).toMatch(
        new RegExp(`^${opcodeName(opcode)} to QP ${packet.destQpn}, PSN ${packet.psn},? ?`),
      );
    }
  });

  it.each<[number, string]>([
    [0x04, 'RC SEND Only to QP 10596868, PSN 12702212, 97 bytes, solicited, asks for ACK'],
    [
      0x0a,
      'RC RDMA WRITE Only to QP 10596874, PSN 12702218, 2147483648 bytes at R_Key 0x9192930a ' +
        'address 0xf10203048506070a, 97 bytes, asks for ACK',
    ],
    [
      0x11,
      'RC Acknowledge to QP 10596881, PSN 12702225, RNR NAK for 1280 µs, MSN 14803473, asks for ACK',
    ],
    [
      0x12,
      'RC ATOMIC Acknowledge to QP 10596882, PSN 12702226, ACK, MSN 14803474, ' +
        'original 0x71727374f5f6f7f8, asks for ACK',
    ],
    [
      0x13,
      'RC CmpSwap to QP 10596883, PSN 12702227, R_Key 0x91929313 address 0xf102030485060713, ' +
        'value 0xfffffffe11121314 compare 0x81828384ffffffff, asks for ACK',
    ],
    [
      0x65,
      'UD SEND Only with Immediate to QP 10596965, PSN 12702309, from QP 12648430 with Q_Key ' +
        '0x80010065, immediate 0xdeadbe65, 97 bytes, solicited, asks for ACK',
    ],
  ])('prints the headers of a packet 0x%s', (opcode, text) => {
    expect(textOf(datagramOf(packetOf(opcode), 'ipv4'))).toBe(text);
  });

  it('names a NAK', () => {
    const packet = packetOf(0x11);
    packet.syndrome = 0x62;
    expect(textOf(datagramOf(packet, 'ipv4'))).toContain(', NAK remote access error, MSN ');
  });

  it.each<[string, Uint8Array, string]>([
    ['a damaged byte', changed(50, 0x5a), 'bad packet: wrong ICRC: RC SEND Only to QP 10596868'],
    ['a damaged ICRC', changed(143, 0), 'bad packet: wrong ICRC: RC SEND Only'],
    [
      'a wrong length',
      changed(25, 9),
      'bad packet: the lengths of IP and UDP contradict each other',
    ],
    ['a part of a datagram', changed(6, 0x20), 'bad packet: a fragment'],
  ])('explains the fault of %s', (_, bytes, text) => {
    const traced = trace.take(bytes, 0);
    expect(traced?.kind).toBe('error');
    expect(traced?.text.slice(0, text.length)).toBe(text);
  });

  it.each<[string, Uint8Array]>([
    ['another port', changed(22, 1)],
    ['another protocol', changed(9, 6)],
    ['no IP', changed(0, 0x55)],
    ['nothing', new Uint8Array()],
    ['the start of a header', datagramOf(packetOf(SEND_ONLY), 'ipv4').slice(0, 25)],
  ])('leaves out %s', (_, bytes) => {
    expect(trace.take(bytes, 0)).toBeUndefined();
  });

  it('reads the headers of a packet that the recorder cut off, and checks no ICRC', () => {
    const bytes = datagramOf(packetOf(SEND_ONLY), 'ipv4');
    const cut: TracedPacket | undefined = trace.take(bytes.slice(0, 60), 0);
    expect(cut?.kind).toBe('packet');
    expect(cut?.text).toMatch(/^RC SEND Only to QP 10596868, .*, cut off by the recorder$/);
    expect(textOf(bytes.slice(0, 39))).toBe('bad packet: cut off by the recorder');
  });

  it('reports both ends', () => {
    const ends = (family: 'ipv4' | 'ipv6') => {
      const traced = trace.take(datagramOf(packetOf(SEND_ONLY), family), 0);
      return [traced?.source, traced?.destination];
    };
    expect(ends('ipv4')).toEqual(['10.1.0.1:49152', '10.1.0.2:4791']);
    expect(ends('ipv6')).toEqual(['[fd00::1]:49152', '[fd00::2]:4791']);
  });
});
