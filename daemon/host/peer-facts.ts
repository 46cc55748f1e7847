/** Facts about the queue pair at the other end of a failed connection. */
import type { PeerFacts } from '../rnic/failure-sentence.ts';
import { QP } from '../rnic/queue-pair.ts';
import type { Conduits } from './conduits.ts';
import type { EmulatedDevice } from './emulated-device.ts';
import { gidAddress } from './host-addresses.ts';

/**
 * Above this many connections, the other end is not searched for, and an error message contains only what
 * came over the wire: a search must not grow with other users' connections.
 */
const ENDS_SEARCHED_MAX = 1024;

/** Whether two queue pairs belong to programs of one user. */
export type UserCheck = (one: QP, other: QP) => boolean;

/** Undefined if the queue pair never had a peer. */
export function peerFacts(
  qp: QP,
  devices: readonly EmulatedDevice[],
  conduits: Conduits,
  isSameUser: UserCheck,
): PeerFacts | undefined {
  const device = devices.find(({ nic }) => nic.findQP(qp.qpn) === qp);
  const far =
    device?.rocePort === undefined ? farConduit(qp, conduits) : farDestination(qp, device, devices);
  if (far === undefined) return undefined;
  const { qp: peer, qpn, address, isOwnPort = false } = far;
  const sameUser = peer !== undefined && isSameUser(qp, peer);
  const reception = isOwnPort ? receptionOf(qp, sameUser ? peer : undefined) : undefined;
  if (peer === undefined) return { qpn, address, here: undefined, reception };
  const cause = peer.cause ?? peer.found;
  return { qpn, address, here: { cause, sameUser }, reception };
}

function receptionOf({ qpn }: QP, peer: QP | undefined): PeerFacts['reception'] {
  if (peer === undefined) return { qp: undefined, senderQpn: qpn };
  const { state, destQpNum, rqPsn } = peer.queryPath();
  return { qp: { state, destQpNum, psn: rqPsn }, senderQpn: qpn };
}

interface FarEnd {
  readonly qp: QP | undefined;
  readonly qpn: number | undefined;
  readonly address: string;
  /** A RoCE device of this host has the address. */
  readonly isOwnPort?: boolean;
}

/** The other end of a queue pair whose program named its destination. */
function farDestination(
  qp: QP,
  { rocePort }: EmulatedDevice,
  devices: readonly EmulatedDevice[],
): FarEnd | undefined {
  const { destQpNum, ahAttr } = qp.queryPath();
  const address = gidAddress(ahAttr.dgid);
  const port = rocePort?.peer(ahAttr.dgid);
  const peer = devices.find((device) => device.rocePort === port && port !== undefined);
  const isOwnPort = peer !== undefined;
  return { qp: peer?.nic.findQP(destQpNum), qpn: destQpNum, address, isOwnPort };
}

/** The other end of a connection manager's queue pair: the conduit whose addresses are ours, swapped. */
function farConduit(qp: QP, conduits: Conduits): FarEnd | undefined {
  const { endpoint } = conduits.of(qp) ?? {};
  if (endpoint === undefined) return undefined;
  const { local, remote } = endpoint;
  let searched = 0;
  for (const { endpoint: other } of conduits.all()) {
    if (searched === ENDS_SEARCHED_MAX) break;
    searched += 1;
    const matches =
      other.local.port === remote.port &&
      other.remote.port === local?.port &&
      other.local.address === remote.address &&
      other.remote.address === local.address;
    if (matches && other !== endpoint && other.qp instanceof QP) {
      return { qp: other.qp, qpn: other.qp.qpn, address: remote.address };
    }
  }
  return { qp: undefined, qpn: undefined, address: remote.address };
}
