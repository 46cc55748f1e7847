/** The recordings of rxe in `test/vectors/roce`, as datagrams. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CaptureFileParser } from '../../daemon/capture/capture-file.ts';
import { repositoryRoot } from '../interop/prerequisites.ts';

const ETHERNET_BYTES = 14;

/** Path of a recording. */
export function roceRecordingPath(family: 'ipv4' | 'ipv6'): string {
  return join(repositoryRoot(), `test/vectors/roce/recordings/opcodes-${family}.pcap`);
}

/** The datagrams of a capture file, each from its IP header on, in a buffer of its own. */
export function datagramsOf(path: string): Uint8Array[] {
  const parser = new CaptureFileParser();
  parser.push(readFileSync(path));
  const datagrams: Uint8Array[] = [];
  for (let packet = parser.poll(); packet !== undefined; packet = parser.poll()) {
    datagrams.push(Uint8Array.from(packet.bytes.subarray(ETHERNET_BYTES)));
  }
  return datagrams;
}
