/** Multicast groups: which queue pairs receive the datagrams to a multicast GID. */
import { QPType } from '../../../../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../../../../verbs-api/contract/verbs/errors.ts';
import { isMulticastGid } from '../../../../host/roce/multicast-groups.ts';
import type { QP } from '../../../../rnic/queue-pair.ts';
import { DONE, type KernelReply } from '../../kernel-file.ts';
import { Multicast } from '../layouts.ts';
import type { CommandCall } from '../open-device.ts';

const GID_BYTES = 16;
/** Groups of one queue pair: more than any program joins, and too few to fill the daemon's memory. */
const GROUPS_MAX = 256;

/** ATTACH_MCAST: EINVAL for a queue pair of another type or another GID; again does nothing. */
export function attachMulticast(call: CommandCall): KernelReply {
  const { qp, gid } = memberOf(call);
  const groups = call.file.services.host.multicastGroups;
  if (groups.members(gid).has(qp)) return DONE;
  if (groups.groupsOf(qp) >= GROUPS_MAX) {
    throw new VerbsError('ENOMEM', `a queue pair is in at most ${GROUPS_MAX} groups`);
  }
  groups.attach(qp, gid, call.file.client);
  return DONE;
}

/** DETACH_MCAST: EINVAL for a queue pair that is not attached. */
export function detachMulticast(call: CommandCall): KernelReply {
  const { qp, gid } = memberOf(call);
  if (call.file.services.host.multicastGroups.detach(qp, gid)) return DONE;
  throw new VerbsError('EINVAL', 'the queue pair is not attached to the group');
}

function memberOf({ file, fields, bytes }: CommandCall): { qp: QP; gid: Uint8Array } {
  const { request } = Multicast;
  const { qp } = file.table.expect('qp', fields.getUint32(request.handle, true));
  const gid = bytes.slice(request.gid, request.gid + GID_BYTES);
  if (qp.type !== QPType.ud || !isMulticastGid(gid)) {
    throw new VerbsError('EINVAL', 'a UD queue pair is attached to a multicast GID');
  }
  return { qp, gid };
}
