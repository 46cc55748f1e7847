/** The attributes with which a connection's queue pair enters INIT, RTR and RTS. */
import { QPState } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import { stepMask } from '#daemon/rnic/ib-transitions';
import type { AddressVector, QPModification } from '#daemon/rnic/qp-attributes';
import type { CmConnection } from './cm-connection.ts';
import type { CmPath } from './cm-path.ts';

const PORT = 1;
/** Reads and atomics that a device has outstanding. */
const RD_ATOMIC_MAX = 128;
/** IBV_ACCESS_REMOTE_WRITE, and with REMOTE_READ and REMOTE_ATOMIC. */
const WRITES = 0x2;
const WRITES_READS_ATOMICS = 0xe;

type VectorParts = Pick<CmPath, 'dgid' | 'sgidIndex' | 'flowLabel' | 'hopLimit' | 'trafficClass'>;

export function vectorOf(path: VectorParts): AddressVector {
  const { dgid, sgidIndex, flowLabel, hopLimit, trafficClass } = path;
  return {
    dgid,
    sgidIndex,
    flowLabel,
    hopLimit,
    trafficClass,
    dlid: 0,
    sl: 0,
    srcPathBits: 0,
    staticRate: 0,
    isGlobal: true,
    portNum: PORT,
  };
}

/** Throws EINVAL for another state, or before the peer has announced its attributes. */
export function queuePairMove(connection: CmConnection, state: QPState): QPModification {
  if (state === QPState.INIT) return initMove(connection);
  if (state === QPState.RTR) return rtrMove(connection);
  if (state === QPState.RTS) return rtsMove(connection);
  throw invalid('a connection has attributes for INIT, RTR and RTS only');
}

function initMove(connection: CmConnection): QPModification {
  const accessFlags = servedDepth(connection) > 0 ? WRITES_READS_ATOMICS : WRITES;
  const mask = stepMask(connection.type, QPState.INIT);
  return { mask, state: QPState.INIT, accessFlags, pkeyIndex: 0, portNum: PORT };
}

function rtrMove(connection: CmConnection): QPModification {
  const { path, remote, type } = connection;
  if (remote === undefined) throw invalid('cannot enter RTR: the peer has not answered yet');
  return {
    mask: stepMask(type, QPState.RTR),
    state: QPState.RTR,
    ahAttr: vectorOf(path),
    pathMtu: path.pathMtu,
    destQpNum: remote.qpn,
    // IBTA 12.7.31: each end chooses the other end's first PSN.
    rqPsn: connection.startingPsn,
    maxDestRdAtomic: servedDepth(connection),
    minRnrTimer: 0,
  };
}

function rtsMove(connection: CmConnection): QPModification {
  const { local, remote, type, retryCount, timeout } = connection;
  if (remote === undefined) throw invalid('cannot enter RTS: the peer has not answered yet');
  return {
    mask: stepMask(type, QPState.RTS),
    state: QPState.RTS,
    sqPsn: remote.startingPsn,
    timeout,
    retryCnt: retryCount,
    rnrRetry: remote.rnrRetry,
    maxRdAtomic: Math.min(
      local?.initiatorDepth ?? RD_ATOMIC_MAX,
      remote.responderResources,
      RD_ATOMIC_MAX,
    ),
  };
}

/** Reads and atomics that we serve at once: what the peer wants, up to what we offer. */
function servedDepth({ local, remote }: CmConnection): number {
  const offered = local?.responderResources ?? RD_ATOMIC_MAX;
  const wanted = remote?.initiatorDepth ?? RD_ATOMIC_MAX;
  return Math.min(offered, wanted, RD_ATOMIC_MAX);
}
