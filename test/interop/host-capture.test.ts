/** A host's own recording, judged by Wireshark. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { WROpcode } from '#contract/verbs/enums';
import { PcapngCapture } from '#daemon/capture/pcapng-capture';
import { until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { connectPair, RnicNode } from '../support/rnic-node.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { dissect } from './tshark.ts';

const directory = temporaryFolder();

describeWith(['tshark'], 'tshark on a capture of a host', () => {
  it('finds every FPDU of Sends, Writes and Reads, none malformed, every CRC good', async () => {
    const pieces: Uint8Array[] = [];
    const tap = new PcapngCapture({ write: (bytes) => pieces.push(bytes.slice()) });
    // A nudge, after 100 ms without an answer, would be one more Write without payload.
    const wire = { nudgeDelayMicros: NEVER };
    const from = new RnicNode({
      devices: [{ name: 'iwarp0', addresses: [], wire }],
      observer: { tap },
    });
    const to = new RnicNode();
    for (const address of ['127.0.0.1', '::1']) {
      const { active, activeId, passive } = await connectPair(from, to, address);
      const sgList = [{ addr: active.address(), length: 100_000, lkey: active.mr.lkey }];
      const remote = { remoteAddr: passive.address(), rkey: passive.mr.rkey };
      passive.receive(0, 64);
      active.send(0, 33);
      active.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...remote });
      active.postSend({ opcode: WROpcode.rdmaRead, sgList, ...remote });
      await active.completions(3);
      from.host.cm.disconnect(activeId);
      await until('the connection to close', () => from.host.connections().length === 0);
    }
    await Promise.all([from.host.close(), to.host.close()]);
    const file = join(directory, 'host.pcap');
    writeFileSync(file, Buffer.concat(pieces));
    const { fpdus, malformed, crcGood } = await dissect(file);
    expect(malformed).toEqual([]);
    expect(crcGood).toBe(fpdus.length);
    const payloads = (opcode: number, headerBytes: number): number[] =>
      fpdus.filter((fpdu) => fpdu.opcode === opcode).map((fpdu) => fpdu.ulpduLength - headerBytes);
    const total = (lengths: number[]): number => lengths.reduce((sum, length) => sum + length, 0);
    expect(payloads(3, 18)).toEqual([33, 33]);
    expect(payloads(1, 18)).toEqual([28, 28]);
    // The first Write of each connection is the ready-to-receive one, without payload.
    expect(payloads(0, 14).filter((length) => length === 0)).toHaveLength(2);
    expect(total(payloads(0, 14))).toBe(200_000);
    expect(total(payloads(2, 14))).toBe(200_000);
  });
});
