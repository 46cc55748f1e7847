/** Valid inputs to mutate: vectors, recordings and output of our own encoders. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bytesOf } from '../support/hex.ts';

/** The checkout's root, for compiled code that reads source files. */
export function repositoryRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return folder;
}

/** Folders of recordings: siw's TCP connections, rxe's packets. */
const RECORDINGS = ['test/interop/captures', 'test/vectors/roce'];

export function recordings(mostBytes: number): ReadonlyMap<string, Uint8Array> {
  const found = new Map<string, Uint8Array>();
  for (const name of RECORDINGS) {
    const folder = join(repositoryRoot(), name);
    for (const file of readdirSync(folder).sort()) {
      if (!file.endsWith('.pcap')) continue;
      const bytes = Uint8Array.from(readFileSync(join(folder, file)));
      if (bytes.length <= mostBytes) found.set(file.slice(0, -'.pcap'.length), bytes);
    }
  }
  return found;
}

let knownFrames: Uint8Array[] | undefined;

/** MPA Request and Reply frames of the vectors. */
export function startupFrames(): readonly Uint8Array[] {
  knownFrames ??= readStartupFrames();
  return knownFrames;
}

function readStartupFrames(): Uint8Array[] {
  const path = join(repositoryRoot(), 'test/vectors/mpa-startup.json');
  const { valid } = JSON.parse(readFileSync(path, 'utf8')) as {
    readonly valid: readonly { readonly bytes: string }[];
  };
  return valid.map(({ bytes }) => bytesOf(bytes));
}

/** STags of a region that peers may use, and of one that they may not. */
export const OPEN_STAG = 0x11223344;

/**
 * Segments of every kind, in an order that a peer may use. They name `OPEN_STAG` and addresses
 * from 0x1000 to 0x1fff.
 */
export const SEGMENTS: readonly Uint8Array[] = [
  'c140 11223344 0000000000001000 4142434445464748',
  '0143 00000000 00000000 00000001 00000000 55*30',
  '4143 00000000 00000000 00000001 0000001e 55*30',
  '4145 00000000 00000000 00000002 00000000 4142',
  '4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000020 11223344 0000000000001000',
  '414a 00000000 00000001 00000002 00000000 00000000 00000007 11223344 0000000000001008 0000000000000001 00*16 ff*8',
  '414a 00000000 00000001 00000003 00000000 00000002 00000009 11223344 0000000000001010 0000000000000005 ff*8 0000000000000000 ff*8',
  '4148 00000000 00000000 00000003 00000000 0102030405060708',
  '8140 11223344 0000000000001ff0 41424344',
  'c140 11223344 0000000000001ffc 41424344',
  '4143 00000000 00000000 00000004 00000000 66*64',
  '4144 11223344 00000000 00000005 00000000 4142',
  '4147 00000000 00000002 00000001 00000000 1201c000 0016 4143 00000000 00000005 00000001 00000000',
].map(bytesOf);

/** A peer's answers to our requests, which start with identifier or MSN 1. */
export const ANSWERS: readonly Uint8Array[] = [
  '8142 11223344 0000000000001000 41*20',
  'c142 11223344 0000000000001014 41*20',
  '414b 00000000 00000003 00000001 00000000 00000000 000000000000002a',
  'c142 11223344 0000000000001000',
  'c142 11223344 0000000000001000 41*40',
].map(bytesOf);
