/** Traffic between two iwarpds, recorded by the daemon's own tap and read by Wireshark. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import { PcapngCapture } from '#daemon/capture/pcapng-capture';
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import { until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type Channel, connectPair, RnicNode } from '../support/rnic-node.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type DissectedFpdu, type Dissection, dissect } from './tshark.ts';

const TAGGED_BYTES = 14;
const UNTAGGED_BYTES = 18;
const READ_REQUEST_BYTES = 28;
/** Lengths with and without PAD, lengths around a segment's, and several segments. */
const SIZES = [0, 1, 2, 3, 4, 63, 1423, 1424, 1425, 4096, 65_536, 200_000];

const directory = temporaryFolder();

/** Two hosts with the options `wire`, whose traffic is recorded in a file. */
class Recorded {
  readonly from: RnicNode;
  readonly to: RnicNode;
  readonly #pieces: Uint8Array[] = [];

  constructor(wire: Partial<WireDefaults>) {
    const tap = new PcapngCapture({ write: (bytes) => this.#pieces.push(bytes.slice()) });
    // A nudge, when an answer takes 100 ms, would be one more Write.
    const own = { nudgeDelayMicros: NEVER, ...wire };
    const devices = [{ name: 'iwarp0', addresses: [], wire: own }];
    this.from = new RnicNode({ devices, observer: { tap } });
    this.to = new RnicNode({ devices });
  }

  async dissect(): Promise<Dissection> {
    await Promise.all([this.from.host.close(), this.to.host.close()]);
    const file = join(directory, 'traffic.pcap');
    writeFileSync(file, Buffer.concat(this.#pieces));
    return await dissect(file);
  }
}

/** Sends, Writes and Reads of every size, and one Send with Invalidate of the peer's region. */
async function talk(active: Channel, passive: Channel): Promise<void> {
  const remote = { remoteAddr: passive.address(), rkey: passive.mr.rkey };
  for (const length of SIZES) {
    const sgList = [{ addr: active.address(), length, lkey: active.mr.lkey }];
    passive.receive(0, length);
    active.send(0, length);
    active.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...remote });
    active.postSend({ opcode: WROpcode.rdmaRead, sgList, ...remote });
    const done = await active.completions(3);
    expect(done.map(({ status }) => status)).toEqual(Array(3).fill(WCStatus.success));
    await passive.completions(1);
  }
  const invalidateRkey = passive.mr.rkey;
  const flags = SendFlag.solicited;
  passive.receive(0, 64);
  active.postSend({ opcode: WROpcode.sendWithInv, flags, invalidateRkey, sgList: [] });
  expect((await passive.completions(1))[0]?.invalidatedRkey).toBe(invalidateRkey);
}

function ofOpcode(fpdus: readonly DissectedFpdu[], opcode: number): readonly DissectedFpdu[] {
  return fpdus.filter((fpdu) => fpdu.opcode === opcode);
}

function lastCount(fpdus: readonly DissectedFpdu[]): number {
  return fpdus.filter(({ last }) => last).length;
}

function payloadBytes(fpdus: readonly DissectedFpdu[]): number {
  const lengths = fpdus.map(
    ({ ulpduLength, tagged }) => ulpduLength - (tagged ? TAGGED_BYTES : UNTAGGED_BYTES),
  );
  return lengths.reduce((sum, length) => sum + length, 0);
}

const ALL_BYTES = SIZES.reduce((sum, length) => sum + length, 0);

describeWith(['tshark'], 'tshark on what two iwarpds say', () => {
  const wires: readonly (readonly [string, Partial<WireDefaults>])[] = [
    ['revision 1, CRC', { mpaRevision: 1 }],
    ['revision 1', { mpaRevision: 1, crcRequested: false }],
    ['revision 2, CRC', {}],
    ['revision 2', { crcRequested: false }],
    ['revision 2, CRC, nothing ready-to-receive', { peerToPeer: false }],
    ['revision 2, CRC, large FPDUs', { fpduSize: { kind: 'large' } }],
    ['revision 2, CRC, small FPDUs', { fpduSize: { kind: 'fixed', mulpduBytes: 128 } }],
  ];

  describe.each(wires)('%s', (_name, wire) => {
    it('finds every message of every size, none malformed, every CRC good', async () => {
      const recorded = new Recorded(wire);
      const { active, activeId, passive } = await connectPair(recorded.from, recorded.to);
      await talk(active, passive);
      recorded.from.host.cm.disconnect(activeId);
      await until('the end', () => recorded.from.host.connections().length === 0);
      const { fpdus, malformed, crcGood, crcBad } = await recorded.dissect();
      expect(malformed).toEqual([]);
      expect([crcGood, crcBad]).toEqual([wire.crcRequested === false ? 0 : fpdus.length, 0]);
      const rtr = wire.mpaRevision === 1 || wire.peerToPeer === false ? 0 : 1;
      const counts = [SIZES.length + rtr, SIZES.length, SIZES.length, SIZES.length];
      const kinds = [0, 1, 2, 3].map((opcode) => ofOpcode(fpdus, opcode));
      expect(kinds.map(lastCount)).toEqual(counts);
      const requests = SIZES.length * READ_REQUEST_BYTES;
      expect(kinds.map(payloadBytes)).toEqual([ALL_BYTES, requests, ALL_BYTES, ALL_BYTES]);
      expect(lastCount(ofOpcode(fpdus, 6))).toBe(1);
    });

    it('reads our Terminate', async () => {
      const recorded = new Recorded(wire);
      const { active, passive } = await connectPair(recorded.from, recorded.to);
      const sgList = [{ addr: active.address(), length: 100, lkey: active.mr.lkey }];
      const rkey = (passive.mr.rkey ^ 0x5a5a00) >>> 0;
      active.postSend({ opcode: WROpcode.rdmaRead, sgList, remoteAddr: 0, rkey });
      expect((await active.completions(1))[0]?.status).toBe(WCStatus.remAccessErr);
      await until('the end', () => recorded.from.host.connections().length === 0);
      const { terminates, malformed, crcBad } = await recorded.dissect();
      expect(malformed).toEqual([]);
      expect(crcBad).toBe(0);
      expect(terminates).toEqual([{ frame: expect.any(Number), layer: 0, etype: 1, code: 0 }]);
    });
  });

  // Wireshark finds markers only where a segment is one FPDU: it counts them from the segment's start.
  const markedWires: readonly (readonly [string, Partial<WireDefaults>])[] = [
    ['revision 1, CRC', { mpaRevision: 1 }],
    ['revision 2, CRC', {}],
    ['revision 2', { crcRequested: false }],
  ];

  it.each(markedWires)(
    'finds the FPDUs between markers, %s [MPA-4.3-01, MPA-4.3-07]',
    async (_name, wire) => {
      const recorded = new Recorded({ ...wire, markersRequested: true });
      const { active, activeId, passive } = await connectPair(recorded.from, recorded.to);
      let sends = 0;
      for (let length = 0; length < 1300; length += 13, sends++) {
        passive.receive(0, length);
        active.send(0, length);
        await Promise.all([active.completions(1), passive.completions(1)]);
      }
      recorded.from.host.cm.disconnect(activeId);
      await until('the end', () => recorded.from.host.connections().length === 0);
      const { fpdus, malformed, crcGood, crcBad } = await recorded.dissect();
      expect(malformed).toEqual([]);
      expect([crcGood, crcBad]).toEqual([wire.crcRequested === false ? 0 : fpdus.length, 0]);
      const payloads = ofOpcode(fpdus, 3).map(({ ulpduLength }) => ulpduLength - UNTAGGED_BYTES);
      expect(payloads).toEqual(Array.from({ length: sends }, (_, index) => index * 13));
    },
  );
});
