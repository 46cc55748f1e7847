/**
 * Messages of InfiniBand's connection management as a peer writes and reads them, by code that
 * shares nothing with the code under test. Numbers are hexadecimal text, as in the packets.
 */
import { compactHex } from './hex.ts';
import { digits } from './raw-roce.ts';

/** Attribute numbers of the messages. */
export const Mad = {
  req: 0x10,
  mra: 0x11,
  rej: 0x12,
  rep: 0x13,
  rtu: 0x14,
  dreq: 0x15,
  drep: 0x16,
  sidrReq: 0x17,
  sidrRep: 0x18,
} as const;
const HEADER_HEX = 48;
const MAD_HEX = 512;
/** DETH of the general services: the well-known Q_Key, from QP 1. */
export const GSI_DETH = '8001000000000001';
/** Service id of port 0 in rdma_cm's space of TCP ports, and of UDP ports. */
export const [TCP_SERVICE, UDP_SERVICE] = [0x0106_0000n, 0x0111_0000n];

/** A message: its attribute, its transaction, and what follows the header. */
export interface RawMad {
  readonly attribute: number;
  readonly transaction: string;
  readonly body: string;
}

/** The 256 bytes of a message; the body is filled up with zeros. */
export function writeMad(attribute: number, transaction: string, body: string): string {
  const header = `01 07 02 03 0000 0000 ${transaction} ${digits(attribute, 4)} 0000 00000000`;
  return compactHex(`${header} ${body}`).padEnd(MAD_HEX, '0');
}

/** Reads what follows the DETH of a packet. */
export function readMad(text: string): RawMad {
  if (text.length !== MAD_HEX) throw new Error(`a message of ${text.length / 2} bytes`);
  const start = text.slice(0, 16);
  if (start !== '0107020300000000') throw new Error(`a message that begins with ${start}`);
  return {
    transaction: text.slice(16, 32),
    attribute: Number.parseInt(text.slice(32, 36), 16),
    body: text.slice(HEADER_HEX),
  };
}

/** Fields of a REQ that tests choose. */
export interface RawRequest {
  readonly commId: string;
  readonly service: bigint;
  readonly qpn: number;
  readonly psn: number;
  /** GIDs as hexadecimal text. */
  readonly from: string;
  readonly to: string;
  /** rdma_cm's addresses, and data of the program. */
  readonly privateData: string;
  /** 0 is RC, the default; 1 is UC. */
  readonly transport?: number;
  /** Local and remote LID, as hexadecimal text. */
  readonly lids?: string;
}

/** The body of a REQ. */
export function requestBody(request: RawRequest): string {
  const { commId, service, qpn, psn, from, to, privateData } = request;
  const { transport = 0, lids = 'ffff ffff' } = request;
  // Time to answer 2^20 · 4.096 µs; 4 Reads each way; 7 retries each; path MTU 1024; 15 repetitions.
  return compactHex(
    `${commId} 00000000 ${digits(service, 16)} 0102030405060708 00000000 00000000
     ${digits(qpn, 6)}04 00000004 000000${digits(0xa1 | (transport << 1), 2)} ${digits(psn, 6)}a7 ffff 37 f0
     ${lids} ${from} ${to} 00000000 00 40 08 98 00*44 ${privateData}`,
  );
}

/** The header of rdma_cm before the data of the program: port and IPv4 addresses. */
export function ipHeader(port: number, from: string, to: string): string {
  const padded = (address: string): string =>
    `${'00'.repeat(12)}${address
      .split('.')
      .map((part) => digits(Number(part), 2))
      .join('')}`;
  return `0040${digits(port, 4)}${padded(from)}${padded(to)}`;
}

/** The GID of an IPv4 address, as hexadecimal text. */
export function mappedGidHex(address: string): string {
  const bytes = address.split('.').map((part) => digits(Number(part), 2));
  return `${'00'.repeat(10)}ffff${bytes.join('')}`;
}
