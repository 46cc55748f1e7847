/**
 * Wireshark's InfiniBand dissector as a judge of RoCEv2 packets: its fields, and its complaints.
 *
 * It shows the ICRC and does not check it. Its heuristics for protocols in the payload are off: they
 * call short Sends malformed.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const FIELDS = [
  'ip.src',
  'ipv6.src',
  'bth.opcode',
  'bth.se',
  'bth.m',
  'bth.padcnt',
  'bth.tver',
  'bth.p_key',
  'bth.destqp',
  'bth.a',
  'bth.psn',
  'reth.va',
  'reth.r_key',
  'reth.dmalen',
  'atomiceth.swapdt',
  'atomiceth.cmpdt',
  'aeth.syndrome',
  'aeth.msn',
  'atomicacketh.origremdt',
  'immdt',
  'ieth',
  'deth.q_key',
  'deth.srcqp',
  'payload',
  'invariant.crc',
] as const;
/** Name of a field; InfiniBand's without their first word. */
type RoceField = (typeof FIELDS)[number] | 'complaint';

/** Fields of one packet as Wireshark prints them; empty where the packet has none. */
export type DissectedPacket = Readonly<Record<RoceField, string>>;

/** IP's checksum is checked; heuristics that guess at payload are off. */
const CHECKED = ['-o', 'ip.check_checksum:TRUE'].concat(
  ['rpcordma', 'infiniband.eoib'].flatMap((name) => ['--disable-protocol', name]),
);

/** Severity from which an expert note counts as a complaint: warning. */
const WARNING = 0x0060_0000;

/**
 * Runs tshark on a recording; returns a row for each packet. `offloaded`: the system left UDP
 * checksums to the interface, so those in the recording are incomplete.
 */
export async function dissectRoce(path: string, offloaded = false): Promise<DissectedPacket[]> {
  const checksum = ['-o', `udp.check_checksum:${offloaded ? 'FALSE' : 'TRUE'}`];
  const names = FIELDS.map((name) => (name.startsWith('ip') ? name : `infiniband.${name}`));
  const wanted = [...names, '_ws.malformed', '_ws.expert.severity'].flatMap((name) => ['-e', name]);
  const { stdout } = await promisify(execFile)(
    'tshark',
    ['-n', '-r', path, ...CHECKED, ...checksum, '-T', 'fields', ...wanted],
    { maxBuffer: 64 << 20 },
  );
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      // The dissector repeats some fields.
      const values = line.split('\t').map((value) => value.replace(/^([^,]+),\1$/, '$1'));
      const severities = (values.at(-1) ?? '').split(',').map(Number);
      const warned = severities.some((severity) => severity >= WARNING) && line;
      const entries = FIELDS.map((name, index) => [name, values[index] ?? '']);
      return Object.fromEntries([
        ...entries,
        ['complaint', warned || (values.at(-2) ?? '')],
      ]) as DissectedPacket;
    });
}
