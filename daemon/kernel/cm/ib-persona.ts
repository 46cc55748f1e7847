/**
 * Connections of RoCE devices, as the kernel presents those of InfiniBand: the program moves its
 * queue pair with the attributes of INIT_QP_ATTR, and confirms the peer's reply with an ACCEPT.
 */
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO, invalid, isVerbsError } from '#contract/verbs/errors';
import { gidText } from '#daemon/host/host-addresses';
import type { HostCm } from '#daemon/host/host-cm';
import type { HostCmEvent } from '#daemon/host/host-id';
import { vectorOf } from '#daemon/roce/cm/queue-pair-moves';
import type { CmConnParam } from './abi.ts';
import type { DatagramParameters } from './event-record.ts';
import type { CmPersona } from './persona.ts';
import { expectRouted } from './routed-id.ts';

/** `IB_EVENT_COMM_EST`: data arrived before the peer's confirmation. */
const COMMUNICATION_ESTABLISHED = 4;
const HOP_LIMIT = 64;
/** Reject reason: consumer-defined. */
const CONSUMER_DEFINED = 28;
const NO_BYTES = new Uint8Array(0);

export const INFINIBAND: CmPersona = {
  connect({ cm, id }, parameters) {
    expectRouted(id);
    cm.request(id, programParameters(parameters));
  },

  accept({ cm, id }, parameters) {
    if (id.state === 'closed') {
      throw invalid('cannot accept: the connection of the id has failed or ended');
    }
    if (id.state !== 'connection') {
      const text = `accept the id of a CONNECT_REQUEST event; this one is ${id.state}`;
      throw invalid(text);
    }
    if (!parameters.valid) {
      cm.establish(id);
      return;
    }
    try {
      cm.answer(id, programParameters(parameters));
    } catch (error) {
      // Like the kernel, reject, so that the peer does not wait for a reply that failed.
      try {
        cm.reject(id, NO_BYTES, CONSUMER_DEFINED);
      } catch (other) {
        // Report the first failure. A peer that has a reply needs no rejection.
        if (!isVerbsError(other)) throw other;
      }
      throw error;
    }
  },

  reject({ cm, id }, privateData, reason) {
    cm.reject(id, privateData, reason === 0 ? CONSUMER_DEFINED : reason);
  },

  disconnect({ cm, id }) {
    cm.disconnect(id);
  },

  notify({ cm, id }, event) {
    if (event !== COMMUNICATION_ESTABLISHED) {
      throw invalid(
        `unsupported event ${event} for NOTIFY: only ${COMMUNICATION_ESTABLISHED} (IBV_EVENT_COMM_EST) is supported`,
      );
    }
    cm.noteCommunication(id);
  },

  qpAttributes({ cm, id }, state) {
    return cm.qpAttributes(id, state);
  },

  path(id) {
    const path = id.roce?.path;
    const known = id.state === 'routed' || id.state === 'connection' || id.state === 'closed';
    // SIDR requests carry no path.
    if (path === undefined || !known || (id.datagram && id.passive)) return undefined;
    const port = id.localAddress?.port ?? 0;
    return { ...path, serviceId: id.passive ? serviceIdOf(id.portSpace, port) : 0n };
  },

  groupVector({ id, device }, dgid) {
    const own = gidText(id.localAddress?.address ?? '::');
    const sgidIndex = device.gids?.findIndex(({ gid }) => gid === own) ?? -1;
    if (sgidIndex < 0) throw invalid(`no GID of the device holds the address of the id (${own})`);
    return vectorOf({ dgid, sgidIndex, flowLabel: 0, hopLimit: HOP_LIMIT, trafficClass: 0 });
  },

  outcome(event) {
    const { ib, id, privateData } = event;
    return {
      status: statusOf(event),
      parameters: id.datagram
        ? serviceParameters(event)
        : {
            kind: 'connected',
            privateData,
            responderResources: event.responderResources ?? 0,
            initiatorDepth: event.initiatorDepth ?? 0,
            qpn: ib?.qpn ?? 0,
            flowControl: ib?.flowControl ?? false,
            retryCount: ib?.retryCount ?? 0,
            rnrRetryCount: ib?.rnrRetry ?? 0,
            sharedReceives: ib?.srq ?? false,
          },
    };
  },
};

/** The service id of a port: the port space above the port. */
export function serviceIdOf(portSpace: number, port: number): bigint {
  return (BigInt(portSpace) << 16n) | BigInt(port);
}

function programParameters(given: CmConnParam): Parameters<HostCm['answer']>[1] {
  return {
    qpn: given.qpn,
    srq: given.sharedReceives,
    privateData: given.privateData,
    responderResources: given.responderResources,
    initiatorDepth: given.initiatorDepth,
    flowControl: given.flowControl,
    retryCount: given.retryCount,
    rnrRetry: given.rnrRetryCount,
    qkey: given.qkey,
  };
}

/** The peer's reason, or a negative errno. */
function statusOf({ type, error, ib }: HostCmEvent): number {
  if (ib !== undefined && ib.status !== 0) return ib.status;
  if (error === undefined) return 0;
  // The end of an established connection is no failure, unless the peer does not respond.
  if (type === CMEventType.disconnected && error !== 'ETIMEDOUT') return 0;
  return -ERRNO[error].number;
}

function serviceParameters({ type, id, ib, privateData }: HostCmEvent): DatagramParameters {
  const path = type === CMEventType.established ? id.roce?.path : undefined;
  return {
    kind: 'datagram',
    privateData,
    qpn: ib?.qpn ?? 0,
    qkey: ib?.qkey ?? 0,
    vector: path && vectorOf(path),
  };
}
