/** Multicast groups: which queue pairs receive the datagrams to a multicast GID. */
import { VerbsError } from '#contract/verbs/errors';
import type { RoceVerbs } from '#daemon/host/roce/roce-verbs';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import type { QP } from '#daemon/rnic/queue-pair';
import { Multicast } from '../layouts.ts';
import type { CommandCall } from '../open-device.ts';

const GID_BYTES = 16;

/** ATTACH_MCAST: EINVAL for another type of queue pair or a non-multicast GID; a repeat does nothing. */
export function attachMulticast(call: CommandCall): KernelReply {
  const { roce, qp, gid } = memberOf(call);
  const { client } = call.file;
  roce.attachMulticast(qp, gid, client, client.ledger.share);
  return DONE;
}

/** DETACH_MCAST: EINVAL for a queue pair that is not attached. */
export function detachMulticast(call: CommandCall): KernelReply {
  const { roce, qp, gid } = memberOf(call);
  roce.detachMulticast(qp, gid);
  return DONE;
}

function memberOf({ file, fields, bytes }: CommandCall): {
  roce: RoceVerbs;
  qp: QP;
  gid: Uint8Array;
} {
  const { request } = Multicast;
  const { qp } = file.table.expect('qp', fields.getUint32(request.handle, true));
  const { roce } = file.device;
  if (roce === undefined) throw new VerbsError('EOPNOTSUPP', 'multicast groups need a RoCE device');
  return { roce, qp, gid: bytes.slice(request.gid, request.gid + GID_BYTES) };
}
