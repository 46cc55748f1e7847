/**
 * Hostile datagrams to SCTP's UDP port, from an attacker on the path of an association: damaged
 * copies of its packets, with its tags and mostly with right checksums. A C library parses them.
 */
import { afterEach, expect, it } from 'vitest';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { patience } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import { BadNetwork, type RecordedEnd, SctpRig, SEGMENT, until } from '../support/sctp-pair.ts';

/** Datagrams that are forged; set SCTP_FORGED for a longer run. */
const FORGED_MIN = Number(process.env['SCTP_FORGED'] ?? 20_000);
const TEST_MS = 120_000 + FORGED_MIN;
const FORGED_FOR_EACH = 12;
const MESSAGES = 50;
const ATTEMPT_MS = 300;
const COMMON_HEADER_BYTES = 12;
const CHECKSUM_AT = 8;
const KINDS = 20;

/** A packet with some of it changed. */
function damaged(original: Uint8Array, prng: Prng, seen: readonly Uint8Array[]): Uint8Array {
  let packet: Uint8Array = original.slice();
  const choice = prng.below(KINDS);
  if (choice === 0) packet = packet.slice(0, prng.below(packet.length + 1));
  // Chunks of another packet after its own, or under its own header.
  if (choice === 1 || choice === 2) {
    const other = prng.choose(seen).subarray(COMMON_HEADER_BYTES);
    const kept = choice === 1 ? packet : packet.subarray(0, COMMON_HEADER_BYTES);
    packet = Uint8Array.from([...kept, ...other.subarray(0, 2000)]);
  }
  if (choice === 3) packet = packet.map(() => prng.below(256));
  // Another chunk type, and another length.
  if (choice >= 4 && choice < 8 && packet.length > COMMON_HEADER_BYTES + 4) {
    packet[COMMON_HEADER_BYTES] = choice < 7 ? prng.below(16) : prng.below(256);
    if (choice === 6) packet[COMMON_HEADER_BYTES + 3] = prng.below(256);
  }
  // Bytes near the start matter most.
  const flips = choice < 8 ? prng.below(3) : 1 + prng.below(8);
  const reach = Math.min(packet.length, prng.oneIn(4) ? packet.length : 80);
  for (let flip = 0; flip < flips && reach > 0; flip += 1) {
    packet[prng.below(reach)] = prng.oneIn(3)
      ? prng.choose([0, 1, 0x7f, 0x80, 0xff])
      : prng.below(256);
  }
  if (packet.length >= COMMON_HEADER_BYTES && !prng.oneIn(10)) {
    const fields = new DataView(packet.buffer, packet.byteOffset);
    fields.setUint32(CHECKSUM_AT, 0);
    fields.setUint32(CHECKSUM_AT, crc32c(packet), true);
  }
  return packet;
}

/** Messages both ways, until they have passed or the association has ended. */
async function converse([mine, theirs]: readonly [RecordedEnd, RecordedEnd]): Promise<void> {
  const isOver = () => mine.user.end !== undefined || theirs.user.end !== undefined;
  for (let index = 0; index < MESSAGES && !isOver(); index += 1) {
    mine.association.send(index % 4, SEGMENT, new Uint8Array(10 + index * 37));
    theirs.association.send(index % 3, SEGMENT, new Uint8Array(3000));
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (!isOver()) mine.association.shutdown();
}

/** Opens an association, or fails soon. */
async function attempt(rig: SctpRig, port: number): Promise<RecordedEnd | undefined> {
  return await rig.open(rig.hold(rig.here), rig.between, port, ATTEMPT_MS).catch(() => undefined);
}

describeWith(['sctp'], 'SCTP under hostile datagrams', () => {
  const rig = new SctpRig();

  afterEach(() => rig.close());

  it(
    'survives hostile packets to its UDP port',
    async () => {
      const prng = new Prng(17);
      const network = await BadNetwork.between(rig, () => ({ copies: 1, late: false }));
      const seen: Uint8Array[] = [];
      let forged = 0;
      let forging = false;
      network.forge = (bytes) => {
        if (!forging) return [];
        if (seen.length < 500) seen.push(bytes.slice(0, 3000));
        forged += FORGED_FOR_EACH;
        return Array.from({ length: FORGED_FOR_EACH }, () =>
          damaged(bytes.slice(0, 3000), prng, seen),
        );
      };
      let opened = 0;
      const listener = rig.listen();
      for (let round = 0; forged < FORGED_MIN; round += 1) {
        const accepted = rig.accepted.length;
        // Try a handshake now and then; it may fail among forgeries.
        forging = round % 4 === 0;
        const mine = await attempt(rig, listener.port);
        forging = true;
        const theirs = rig.accepted[accepted];
        if (mine !== undefined && theirs !== undefined) {
          opened += 1;
          await converse([mine, theirs]);
        }
        mine?.association.abort();
        theirs?.association.abort();
      }
      expect(opened).toBeGreaterThan(3);
      network.close();

      // The same port, without the forging network between.
      const accepted = rig.accepted.length;
      const mine = await rig.open(rig.hold(rig.here), rig.there, listener.port);
      await until('it is accepted', () => rig.accepted.length > accepted);
      mine.association.send(0, SEGMENT, Uint8Array.of(1, 2, 3));
      const theirs = rig.accepted.at(-1) as RecordedEnd;
      await until('the message', () => theirs.user.messages.length === 1);
      expect(theirs.user.messages[0]?.bytes).toEqual(Uint8Array.of(1, 2, 3));
    },
    patience(TEST_MS),
  );
});
