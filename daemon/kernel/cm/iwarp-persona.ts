/**
 * Connections over iWARP, as the kernel presents those of siw: the connection moves the queue pair,
 * and there are no paths.
 */
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType, QPState } from '#contract/verbs/enums';
import { ERRNO, invalid, VerbsError } from '#contract/verbs/errors';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { CmConnParam } from './abi.ts';
import type { CmPersona } from './persona.ts';
import { expectRouted } from './routed-id.ts';

const ACCESS_REMOTE_WRITE_READ = 6;
const PORT = 1;
const NO_BYTES = new Uint8Array(0);

export const IWARP: CmPersona = {
  connect({ cm, id, expectQP }, parameters) {
    expectRouted(id);
    cm.connect(id, expectQP(parameters.qpn), connectionParameters(parameters));
  },

  accept({ cm, id, expectQP }, parameters) {
    if (!parameters.valid) {
      throw invalid('conn_param is NULL: iWARP needs it to know the queue pair');
    }
    cm.accept(id, expectQP(parameters.qpn), connectionParameters(parameters));
  },

  reject({ cm, id }, privateData) {
    // An MPA Reply has no field for a reason.
    cm.reject(id, privateData);
  },

  disconnect({ cm, id }) {
    cm.disconnect(id);
  },

  notify({ id: { state } }) {
    if (state !== 'connection' && state !== 'closed')
      throw invalid(`the id has no connection to notify; it is ${state}`);
  },

  qpAttributes({ id }, state) {
    const all = QPAttribute.state | QPAttribute.accessFlags | QPAttribute.portNum;
    const unconnected = { mask: all, state, portNum: PORT };
    if (id.state !== 'connection' && id.state !== 'closed') return unconnected;
    // From then on the connection moves the queue pair to RTS, not the program.
    if (state === QPState.RTS) return { mask: QPAttribute.portNum, state, portNum: PORT };
    if (state !== QPState.INIT && state !== QPState.RTR) {
      throw invalid(
        `a connected id moves its queue pair through INIT, RTR and RTS, not to state ${state}`,
      );
    }
    return { ...unconnected, accessFlags: ACCESS_REMOTE_WRITE_READ };
  },

  path: () => undefined,

  groupVector() {
    throw new VerbsError('ENOSYS', 'iWARP has no multicast: use a RoCE device');
  },

  outcome(event) {
    const { type, error } = event;
    // The program already knows this private data: it came with the connect request.
    const passiveStart = type === CMEventType.established && event.id.passive;
    // The kernel reports every disconnect with status 0 (`cma_iw_handler`).
    const ended = type === CMEventType.disconnected;
    return {
      status: error === undefined || ended ? 0 : -ERRNO[error].number,
      parameters: {
        kind: 'connected',
        privateData: passiveStart ? NO_BYTES : event.privateData,
        responderResources: event.responderResources ?? 0,
        initiatorDepth: event.initiatorDepth ?? 0,
      },
    };
  },
};

function connectionParameters(given: CmConnParam): CMParameters {
  const { privateData, initiatorDepth, responderResources } = given;
  return { privateData, initiatorDepth, responderResources, wire: undefined };
}
