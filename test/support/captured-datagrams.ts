/** The RoCEv2 datagrams of capture files, and the location of rxe's recordings. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CaptureFileParser } from '#daemon/capture/capture-file';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, DatagramRefusal, parseDatagram } from '#daemon/roce/wire/datagram';
import { icrcOf, readIcrc } from '#daemon/roce/wire/icrc';
import { repositoryRoot } from './prerequisites.ts';

const ETHERNET_BYTES = 14;

/** The folder of all recordings of rxe. */
export const RXE_RECORDINGS = join(repositoryRoot(), 'test/vectors/roce/recordings');

/** Path of a recording. */
export function recordingPath(name: string): string {
  return join(RXE_RECORDINGS, `${name}.pcap`);
}

/** The datagrams of a capture file, each from its IP header on, in its own buffer. */
export function datagramsOf(path: string): Uint8Array[] {
  const parser = new CaptureFileParser();
  parser.push(readFileSync(path));
  const datagrams: Uint8Array[] = [];
  for (let packet = parser.poll(); packet !== undefined; packet = parser.poll()) {
    datagrams.push(Uint8Array.from(packet.bytes.subarray(ETHERNET_BYTES)));
  }
  return datagrams;
}

/** Whether a datagram ends with the ICRC that our codec computes over it. */
export function hasRightIcrc(bytes: Uint8Array): boolean {
  const datagram = new Datagram();
  const refusal = parseDatagram(bytes, 0, bytes.length, datagram);
  const { packetStart, packetLength } = datagram;
  const end = packetStart + packetLength;
  const right = icrcOf(crc32, bytes, 0, packetStart, end);
  return refusal === DatagramRefusal.none && right === readIcrc(bytes, end);
}
