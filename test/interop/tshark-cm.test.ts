/** Wireshark's view of our messages of InfiniBand's connection management. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, it } from 'vitest';
import { PcapngWriter } from '#daemon/capture/pcapng-writer';
import { type CmFields, type CmMessageName, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { GSI_QKEY, GSI_QPN, MAD_BYTES } from '#daemon/roce/wire/mad';
import { Packet } from '#daemon/roce/wire/packet';
import { CM_MESSAGES } from '../support/cm-messages.ts';
import { concat, hexOf } from '../support/hex.ts';
import { describeWith } from '../support/prerequisites.ts';
import { datagramOf } from '../support/roce-packets.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/**
 * Wireshark's names of the fields that its dissector shows, by our names. It does not know MRA and
 * SIDR, and splits the 32 bits of flow label and packet rate in a REQ into 12 and 20, unlike the
 * specification.
 */
const FIELDS: {
  readonly [N in CmMessageName]?: Partial<Record<keyof CmFields<N>, string>>;
} = {
  REQ: {
    localCommId: 'req',
    localCaGuid: 'req.localcaguid',
    localQkey: 'req.localqkey',
    localQpn: 'req.localqpn',
    responderResources: 'req.responderres',
    initiatorDepth: 'req.initdepth',
    remoteResponseTimeout: 'req.remoteresptout',
    transportService: 'req.transpsvctype',
    flowControl: 'req.e2eflowctrl',
    startingPsn: 'req.startpsn',
    localResponseTimeout: 'req.localresptout',
    retryCount: 'req.retrcount',
    pkey: 'req.pkey',
    pathMtu: 'req.pppmtu',
    rnrRetry: 'req.rnrretrcount',
    maxCmRetries: 'req.maxcmretr',
    srq: 'req.srq',
    localLid: 'req.prim_locallid',
    remoteLid: 'req.prim_remotelid',
    trafficClass: 'req.prim_tfcclass',
    hopLimit: 'req.prim_hoplim',
    serviceLevel: 'req.prim_sl',
    subnetLocal: 'req.prim_subnetlocal',
    localAckTimeout: 'req.prim_localacktout',
  },
  REP: {
    localCommId: 'rep',
    remoteCommId: 'rep.remotecommid',
    localQkey: 'rep.localqkey',
    localQpn: 'rep.localqpn',
    startingPsn: 'rep.startpsn',
    responderResources: 'rep.respres',
    initiatorDepth: 'rep.initdepth',
    targetAckDelay: 'rep.tgtackdelay',
    failoverAccepted: 'rep.failoveracc',
    flowControl: 'rep.e2eflowctrl',
    rnrRetry: 'rep.rnrretrcount',
    srq: 'rep.srq',
    localCaGuid: 'rep.localcaguid',
    privateData: 'rep.private',
  },
  RTU: {
    localCommId: 'rtu.localcommid',
    remoteCommId: 'rtu.remotecommid',
    privateData: 'rtu.private',
  },
  REJ: {
    localCommId: 'rej.localcommid',
    remoteCommId: 'rej.remotecommid',
    message: 'rej.msgrej',
    infoLength: 'rej.rejinfolen',
    reason: 'rej.reason',
    info: 'rej.ari',
    privateData: 'rej.private',
  },
  DREQ: {
    localCommId: 'dreq.localcommid',
    remoteCommId: 'dreq.remotecommid',
    remoteQpn: 'req.remoteqpneecn',
    privateData: 'dreq.private',
  },
  DREP: {
    localCommId: 'drsp.localcommid',
    remoteCommId: 'drsp.remotecommid',
    privateData: 'drsp.private',
  },
};
const NAMES = Object.keys(FIELDS) as CmMessageName[];
/** The header of rdma_cm before private data, and the addresses of the ports. */
const ADDRESSES = {
  'req.ip_cm.ipv': '0x04',
  'req.ip_cm.sport': '0x9c40',
  'req.ip_cm.sip4': '10.1.0.1',
  'req.ip_cm.dip4': '10.1.0.2',
  'req.serviceid.dport': '0x1b39',
} as const;

describeWith(['tshark'], 'tshark on connection management', () => {
  let directory = '';
  beforeAll(() => {
    directory = temporaryFolder();
  });

  /** The fields of a message as Wireshark shows them. */
  async function dissect(name: CmMessageName, fields: readonly string[]): Promise<string[]> {
    const packet = new Packet();
    packet.opcode = 0x64;
    packet.destQpn = GSI_QPN;
    packet.sourceQpn = GSI_QPN;
    packet.qkey = GSI_QKEY;
    packet.payloadLength = MAD_BYTES;
    const mad = writeCmMessage(name, { hi: 1, lo: 2 }, CM_MESSAGES[name]);
    const bytes = datagramOf(packet, 'ipv4', mad);
    const pieces: Uint8Array[] = [];
    const writer = new PcapngWriter((piece) => pieces.push(Uint8Array.from(piece)));
    writer.packet(0, 14 + bytes.length, (frame) => {
      frame.fill(2, 0, 12);
      frame.set([0x08, 0x00], 12);
      frame.set(bytes, 14);
    });
    const path = join(directory, `${name}.pcapng`);
    writeFileSync(path, concat(...pieces));
    const wanted = [...fields, '_ws.malformed'].flatMap((field) => ['-e', field]);
    const parameters = ['-n', '-r', path, '-T', 'fields', ...wanted];
    const { stdout } = await promisify(execFile)('tshark', parameters);
    return stdout.replace(/\n$/, '').split('\t');
  }

  it.each(NAMES)('reads a %s as we wrote it', async (name) => {
    const known = Object.entries(FIELDS[name] ?? {});
    const shown = await dissect(
      name,
      known.map(([, field]) => `infiniband.cm.${field}`),
    );
    const expected: Record<string, unknown> = { ...CM_MESSAGES[name] };
    const values = known.map(([ours, theirs], index) => {
      const text = shown[index] ?? '';
      const value = expected[ours];
      const flag = text === 'True' ? '1' : text === 'False' ? '0' : text;
      if (typeof value === 'number') return [theirs, flag === '' ? undefined : Number(flag)];
      return [theirs, text.replace(/^0x/, '')];
    });
    const meant = known.map(([ours, theirs]) => {
      const value = expected[ours];
      return [theirs, value instanceof Uint8Array ? hexOf(value) : value];
    });
    expect(Object.fromEntries(values)).toEqual(Object.fromEntries(meant));
    expect(shown.at(-1)).toBe('');
  });

  it("reads rdma_cm's addresses in a REQ", async () => {
    const names = Object.keys(ADDRESSES);
    const shown = await dissect(
      'REQ',
      names.map((field) => `infiniband.cm.${field}`),
    );
    expect(Object.fromEntries(names.map((name, index) => [name, shown[index]]))).toEqual(ADDRESSES);
  });
});
