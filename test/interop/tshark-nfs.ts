/**
 * NFS over RDMA as Wireshark reads it. One known quirk: it assembles a READ reply from RDMA Writes
 * and then calls it malformed, from Linux's server and from ours.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const FIELDS =
  'tcp.dstport rpcordma.xid rpcordma.msg_type rpc.msgtyp nfs.procedure_v3 _ws.malformed'.split(' ');
const RDMA_ERROR = '4';
const RPC_REPLY = '1';

/** Runs tshark on a recording; throws its error message if it cannot read the file. */
export async function dissectNfs(pcapFile: string, serverPort: number) {
  const words = ['-n', '-r', pcapFile, '-Y', 'rpcordma || _ws.malformed', '-T', 'fields'];
  const { stdout } = await promisify(execFile)(
    'tshark',
    [...words, ...FIELDS.flatMap((field) => ['-e', field])],
    { maxBuffer: 64 << 20 },
  );
  // XIDs of RPC-over-RDMA messages to the server, and from it.
  const calls = new Set<string>();
  const replies = new Set<string>();
  // Replies by the number of their procedure in NFS version 3.
  const procedures = new Map<number, number>();
  // Procedures of the frames that it calls malformed; undefined where it finds none.
  const malformed: (number | undefined)[] = [];
  let errors = 0;
  for (const line of stdout.split('\n').filter((text) => text !== '')) {
    const [port, xids, types, directions, names, broken] = line.split('\t').map(values);
    const seen = port?.[0] === String(serverPort) ? calls : replies;
    for (const xid of xids ?? []) seen.add(xid);
    errors += (types ?? []).filter((type) => type === RDMA_ERROR).length;
    if (broken !== undefined && broken.length > 0) malformed.push(numberOf(names?.[0]));
    if (directions?.[0] !== RPC_REPLY) continue;
    for (const procedure of (names ?? []).map(Number)) {
      procedures.set(procedure, (procedures.get(procedure) ?? 0) + 1);
    }
  }
  return { calls, replies, errors, procedures, malformed };
}

function values(cell: string): string[] {
  return cell === '' ? [] : cell.split(',');
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
