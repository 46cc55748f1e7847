/**
 * The contents of the recordings in `test/interop/captures`, as data: `NAME.json` belongs to `NAME.pcap`.
 *
 * The README there describes where the recordings come from and how the expectations were made; none
 * was printed by the code under test.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repositoryRoot } from './prerequisites.ts';

/** Fields of an MPA Request or Reply. */
export interface ExpectedStartup {
  readonly revision: 1 | 2;
  readonly markers: boolean;
  readonly crc: boolean;
  readonly rejected: boolean;
  /** S is set; the next six are there only then. */
  readonly enhanced: boolean;
  readonly peerToPeer?: boolean;
  readonly rtrSend?: boolean;
  readonly rtrWrite?: boolean;
  readonly rtrRead?: boolean;
  readonly ird?: number;
  readonly ord?: number;
  /** Hexadecimal, without the enhanced word. */
  readonly privateData: string;
}

export interface ExpectedDirection {
  readonly startup: ExpectedStartup;
  /** A line for each FPDU; the README explains it. */
  readonly fpdus: readonly string[];
  readonly end: 'FIN' | 'RST' | 'none';
}

export interface ExpectedConnection {
  readonly ports: readonly [number, number];
  /** The side whose first FPDU is earlier. */
  readonly firstFpdu: 'initiator' | 'responder' | 'none';
  readonly initiator: ExpectedDirection;
  readonly responder: ExpectedDirection;
}

export interface ExpectedCapture {
  readonly title: string;
  /** Where the kernel's siw deviates from the RFCs here; the README explains the words. */
  readonly quirks: readonly string[];
  readonly connections: readonly ExpectedConnection[];
  /** TCP connections that are not MPA's. */
  readonly otherConnections: number;
}

const directory = join(repositoryRoot(), 'test/interop/captures');

export function captureNames(): string[] {
  const files = readdirSync(directory).filter((file) => file.endsWith('.pcap'));
  return files.map((file) => file.slice(0, -'.pcap'.length));
}

export function capturePath(name: string): string {
  return join(directory, `${name}.pcap`);
}

export function readExpectation(name: string): ExpectedCapture {
  return JSON.parse(readFileSync(join(directory, `${name}.json`), 'utf8')) as ExpectedCapture;
}
