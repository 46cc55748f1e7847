/** Wireshark's view of our RoCEv2 packets, and of the kernel's as we read them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { PcapngWriter } from '#daemon/capture/pcapng-writer';
import { Datagram, parseDatagram } from '#daemon/roce/wire/datagram';
import { opcodeName, opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import { Packet, paddingBytes, parsePacket } from '#daemon/roce/wire/packet';
import { datagramsOf, recordingPath } from '../support/captured-datagrams.ts';
import { concat, hexOf } from '../support/hex.ts';
import { describeWith } from '../support/prerequisites.ts';
import { datagramOf, OPCODES, packetOf } from '../support/roce-packets.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type DissectedPacket, dissectRoce } from './tshark-roce.ts';

const FAMILIES = ['ipv4', 'ipv6'] as const;

function wide(hi: number, lo: number): bigint {
  return (BigInt(hi) << 32n) | BigInt(lo);
}

/** The fields that Wireshark must show for a packet; its numbers come as decimal or 0x text. */
function expectedFields(packet: Packet, bytes: Uint8Array): Record<string, bigint | string> {
  const traits = opcodeTraits(packet.opcode);
  const fields: Record<string, bigint | string> = {
    'bth.opcode': BigInt(packet.opcode),
    'bth.se': BigInt(packet.solicited),
    'bth.m': BigInt(packet.migrated),
    'bth.padcnt': BigInt(paddingBytes(packet.payloadLength)),
    'bth.tver': 0n,
    'bth.p_key': BigInt(packet.pkey),
    'bth.destqp': BigInt(packet.destQpn),
    'bth.a': BigInt(packet.ackRequest),
    'bth.psn': BigInt(packet.psn),
    'invariant.crc': BigInt(`0x${hexOf(bytes.subarray(-4))}`),
    complaint: '',
  };
  const hex = (value: number) => value.toString(16).padStart(8, '0');
  if ((traits & (Trait.reth | Trait.atomicEth)) !== 0) {
    fields['reth.va'] = wide(packet.vaHi, packet.vaLo);
    fields['reth.r_key'] = BigInt(packet.rkey);
  }
  if ((traits & Trait.reth) !== 0) fields['reth.dmalen'] = BigInt(packet.dmaLength);
  if ((traits & Trait.atomicEth) !== 0) {
    fields['atomiceth.swapdt'] = wide(packet.swapAddHi, packet.swapAddLo);
    fields['atomiceth.cmpdt'] = wide(packet.compareHi, packet.compareLo);
  }
  if ((traits & Trait.aeth) !== 0) {
    fields['aeth.syndrome'] = BigInt(packet.syndrome);
    fields['aeth.msn'] = BigInt(packet.msn);
  }
  if ((traits & Trait.atomicAckEth) !== 0) {
    fields['atomicacketh.origremdt'] = wide(packet.originalHi, packet.originalLo);
  }
  if ((traits & Trait.immediate) !== 0) fields['immdt'] = hex(packet.immediate);
  if ((traits & Trait.ieth) !== 0) fields['ieth'] = hex(packet.invalidateRkey);
  if ((traits & Trait.deth) !== 0) {
    fields['deth.q_key'] = BigInt(packet.qkey);
    fields['deth.srcqp'] = BigInt(packet.sourceQpn);
  }
  return fields;
}

/** The same fields as Wireshark showed them. */
function shownFields(
  row: DissectedPacket,
  expected: Record<string, bigint | string>,
): Record<string, bigint | string> {
  return Object.fromEntries(
    Object.entries(expected).map(([name, value]) => {
      const text = row[name as keyof DissectedPacket];
      const flag = text === 'True' ? '1' : text === 'False' ? '0' : text;
      return [name, typeof value === 'bigint' && flag !== '' ? BigInt(flag) : flag];
    }),
  );
}

describeWith(['tshark'], 'tshark on RoCEv2', () => {
  let directory = '';
  beforeAll(() => {
    directory = temporaryFolder();
  });

  function record(name: string, datagrams: readonly Uint8Array[]): string {
    const pieces: Uint8Array[] = [];
    const writer = new PcapngWriter((bytes) => pieces.push(Uint8Array.from(bytes)));
    for (const bytes of datagrams) {
      writer.packet(0, 14 + bytes.length, (frame) => {
        frame.fill(2, 0, 12);
        frame.set((bytes[0] ?? 0) >> 4 === 4 ? [0x08, 0x00] : [0x86, 0xdd], 12);
        frame.set(bytes, 14);
      });
    }
    const path = join(directory, name);
    writeFileSync(path, concat(...pieces));
    return path;
  }

  it.each(FAMILIES)('reads every opcode over %s as we wrote it', async (family) => {
    const packets = OPCODES.map(packetOf);
    const datagrams = packets.map((packet) => datagramOf(packet, family));
    const rows = await dissectRoce(record(`${family}.pcapng`, datagrams));
    expect(rows).toHaveLength(37);
    rows.forEach((row, index) => {
      const packet = packets[index] ?? new Packet();
      const expected = expectedFields(packet, datagrams[index] ?? new Uint8Array());
      expect(shownFields(row, expected), opcodeName(packet.opcode)).toEqual(expected);
    });
  });

  it.each(FAMILIES)('reads what rxe sent over %s as we do', async (family) => {
    const path = recordingPath(`opcodes-${family}`);
    const datagrams = datagramsOf(path);
    const rows = await dissectRoce(path);
    expect(rows).toHaveLength(datagrams.length);
    const datagram = new Datagram();
    const packet = new Packet();
    rows.forEach((row, index) => {
      const bytes = datagrams[index] ?? new Uint8Array();
      parseDatagram(bytes, 0, bytes.length, datagram);
      parsePacket(bytes, datagram.packetStart, datagram.packetLength, packet);
      const expected = expectedFields(packet, bytes);
      // rxe sends no UDP checksum over IPv6 either, which Wireshark calls an error.
      if (family === 'ipv6') delete expected['complaint'];
      expect(shownFields(row, expected), opcodeName(packet.opcode)).toEqual(expected);
    });
  });

  it('shows another packet for each flipped bit of the transport headers', async () => {
    const original = datagramOf(packetOf(0x0b), 'ipv4');
    const changed: Uint8Array[] = [original];
    for (let at = 29; at < 28 + 32; at += 1) {
      const copy = Uint8Array.from(original);
      copy[at] = (copy[at] ?? 0) ^ 0x40;
      // FECN, BECN and reserved bits are in no field of the dissector's.
      if (at !== 28 + 4 && at !== 28 + 8) changed.push(copy);
    }
    const rows = await dissectRoce(record('flipped.pcapng', changed));
    const texts = rows.map((row) => JSON.stringify(row));
    expect(rows).toHaveLength(changed.length);
    expect(new Set(texts).size).toBe(texts.length);
  });
});
