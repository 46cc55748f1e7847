/** The verbs that only RoCE devices have. */
import type { Micros } from '#base/time';
import type { GidEntry } from '#contract/verbs/attributes';
import { QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { AH } from '#daemon/rnic/address-handle';
import type { PathAttributes } from '#daemon/rnic/ib-port';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import type { Nic } from '#daemon/rnic/nic';
import type { AddressVector, QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { RoceBackend } from '../served-device.ts';
import { type GroupAccount, isMulticastGid, type MulticastGroups } from './multicast-groups.ts';
import type { RocePort } from './roce-port.ts';

const PORT = 1;
/** Groups of one queue pair: more than any program joins, and few enough to bound memory. */
const GROUPS_OF_QP_MAX = 256;

export class RoceVerbs implements RoceBackend {
  readonly #nic: Nic;
  readonly #port: RocePort;
  readonly #groups: () => MulticastGroups;

  /** `groups` returns the groups of the host. */
  constructor(port: RocePort, nic: Nic, groups: () => MulticastGroups) {
    this.#port = port;
    this.#nic = nic;
    this.#groups = groups;
  }

  gidTable(): readonly GidEntry[] {
    return this.#port.gids.entries().flatMap(({ gid, interfaceName }, gidIndex) => {
      if (interfaceName === undefined) return [];
      return [{ gid, gidIndex, portNum: PORT, gidType: 'rocev2' as const }];
    });
  }

  createAH(pd: PD, vector: AddressVector): AH {
    return this.#nic.createAH(pd, vector);
  }

  modifyPath(qp: QP, change: QPModification, now: Micros): void {
    qp.modifyPath(change, now);
  }

  queryPath(qp: QP): PathAttributes {
    return qp.queryPath();
  }

  attachMulticast(qp: QP, gid: Uint8Array, owner: object, account?: GroupAccount): void {
    checkMember(qp, gid);
    const groups = this.#groups();
    if (groups.members(gid).has(qp)) return;
    if (groups.groupsOf(qp) >= GROUPS_OF_QP_MAX) {
      throw new VerbsError('ENOMEM', `a queue pair is in at most ${GROUPS_OF_QP_MAX} groups`);
    }
    groups.attach(qp, gid, owner, this.#port, account);
  }

  detachMulticast(qp: QP, gid: Uint8Array): void {
    checkMember(qp, gid);
    if (this.#groups().detach(qp, gid)) return;
    throw invalid('the queue pair is not attached to the group');
  }

  leaveGroups(qp: QP): void {
    this.#groups().forget(qp);
  }
}

function checkMember(qp: QP, gid: Uint8Array): void {
  if (qp.type !== QPType.ud) {
    throw invalid('only a queue pair of type UD receives from a multicast group');
  }
  if (!isMulticastGid(gid)) throw invalid('the GID is not that of a group');
}
