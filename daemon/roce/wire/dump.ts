/**
 * Describes a packet in one line of text, for traces and test failures. Never parsed, never on the data path.
 */
import { opcodeName, opcodeTraits, Trait } from './opcode.ts';
import type { Packet } from './packet.ts';
import { NakCode, rnrTimerMicros, SyndromeKind, syndromeKind, syndromeValue } from './syndrome.ts';

/** Names of NAK codes in IBTA table 46. */
const NAK_NAMES: Readonly<Record<NakCode, string>> = {
  [NakCode.psnSequence]: 'PSN sequence error',
  [NakCode.invalidRequest]: 'invalid request',
  [NakCode.remoteAccess]: 'remote access error',
  [NakCode.remoteOperation]: 'remote operational error',
  [NakCode.invalidRdRequest]: 'invalid RD request',
};

/** `RC SEND Only to QP 18, PSN 7, 64 bytes, solicited, asks for ACK`. */
export function dumpPacket(packet: Readonly<Packet>): string {
  const { opcode, destQpn, psn } = packet;
  const traits = opcodeTraits(opcode);
  return [
    `${opcodeName(opcode)} to QP ${destQpn}`,
    `PSN ${psn}`,
    ...extendedText(packet, traits),
    ...((traits & Trait.payload) === 0 ? [] : [bytesText(packet.payloadLength)]),
    ...(packet.solicited ? ['solicited'] : []),
    ...(packet.ackRequest ? ['asks for ACK'] : []),
    ...(packet.fecn ? ['FECN'] : []),
    ...(packet.becn ? ['BECN'] : []),
  ].join(', ');
}

/** `ACK`, `RNR NAK for 640 µs`, `NAK PSN sequence error`. */
function syndromeText(syndrome: number): string {
  const value = syndromeValue(syndrome);
  switch (syndromeKind(syndrome)) {
    case SyndromeKind.ack:
      return 'ACK';
    case SyndromeKind.rnrNak:
      return `RNR NAK for ${rnrTimerMicros(value)} µs`;
    case SyndromeKind.nak:
      return `NAK ${NAK_NAMES[value as NakCode] ?? `code ${value}`}`;
    default:
      return `syndrome ${hex(syndrome, 2)}`;
  }
}

function extendedText(packet: Readonly<Packet>, traits: number): string[] {
  const words: string[] = [];
  if ((traits & Trait.deth) !== 0) {
    words.push(`from QP ${packet.sourceQpn} with Q_Key ${hex(packet.qkey, 8)}`);
  }
  const { vaHi, vaLo, rkey } = packet;
  const place = `R_Key ${hex(rkey, 8)} address ${wide(vaHi, vaLo)}`;
  if ((traits & Trait.reth) !== 0) words.push(`${bytesText(packet.dmaLength)} at ${place}`);
  if ((traits & Trait.atomicEth) !== 0) {
    const { swapAddHi, swapAddLo, compareHi, compareLo } = packet;
    words.push(place, `value ${wide(swapAddHi, swapAddLo)} compare ${wide(compareHi, compareLo)}`);
  }
  if ((traits & Trait.aeth) !== 0) words.push(syndromeText(packet.syndrome), `MSN ${packet.msn}`);
  if ((traits & Trait.atomicAckEth) !== 0) {
    words.push(`original ${wide(packet.originalHi, packet.originalLo)}`);
  }
  if ((traits & Trait.immediate) !== 0) words.push(`immediate ${hex(packet.immediate, 8)}`);
  if ((traits & Trait.ieth) !== 0) words.push(`invalidates ${hex(packet.invalidateRkey, 8)}`);
  return words;
}

function bytesText(count: number): string {
  return `${count} byte${count === 1 ? '' : 's'}`;
}

function hex(value: number, digits: number): string {
  return `0x${value.toString(16).padStart(digits, '0')}`;
}

function wide(hi: number, lo: number): string {
  return `${hex(hi, 8)}${lo.toString(16).padStart(8, '0')}`;
}
