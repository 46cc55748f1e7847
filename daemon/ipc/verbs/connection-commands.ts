/** Commands for connection ids, and their events on the way to the client. */
import type {
  CMEventRecord,
  CMIdState,
  CMParameters,
  CommandName,
} from '../../../verbs-api/contract/commands.ts';
import { CMEventType } from '../../../verbs-api/contract/enums.ts';
import { isVerbsError } from '../../../verbs-api/contract/errors.ts';
import type { CmId } from '../../cm/cm-id.ts';
import type { CmEvent } from '../../cm/cm-types.ts';
import { IdObject } from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';

type ConnectionCommand = Extract<CommandName, `cm${string}`>;

/** Destroys a connection id; a connection on it is dropped. */
export function destroyId(state: ClientState, object: IdObject): void {
  state.remove(object);
  state.host.cm.destroy(object.id);
}

/** See the module's comment. */
export function connectionCommands(state: ClientState): CommandHandlers<ConnectionCommand> {
  const { table } = state;
  const { cm } = state.host;
  const idOf = (handle: number): CmId => table.expect('id', handle).id;
  return {
    cmCreateId() {
      const object = state.add('id', (handle) => {
        return new IdObject(state.client, handle, cm.createId(undefined));
      });
      object.id.tag = object;
      return { id: object.handle };
    },
    cmDestroyId({ id }) {
      destroyId(state, table.expect('id', id));
      return {};
    },
    cmBindAddr({ id, address }) {
      cm.bindAddr(idOf(id), address);
      return idState(idOf(id));
    },
    cmResolveAddr({ id, destination, source }) {
      cm.resolveAddr(idOf(id), destination, source);
      return idState(idOf(id));
    },
    cmResolveRoute({ id }) {
      cm.resolveRoute(idOf(id));
      return {};
    },
    cmListen({ id, backlog }) {
      cm.listen(idOf(id), backlog);
      return idState(idOf(id));
    },
    cmConnect({ id, qp, ...parameters }) {
      cm.connect(idOf(id), table.expect('qp', qp).qp, connectionParameters(parameters));
      return {};
    },
    cmAccept({ id, qp, ...parameters }) {
      cm.accept(idOf(id), table.expect('qp', qp).qp, connectionParameters(parameters));
      return {};
    },
    cmReject({ id, privateData }) {
      cm.reject(idOf(id), privateData);
      return {};
    },
    cmDisconnect({ id }) {
      cm.disconnect(idOf(id));
      return {};
    },
  };
}

/**
 * Tells the client about an event of its id. A connect request brings a new id, which is rejected
 * when the client may have no more.
 */
export function deliverCmEvent(state: ClientState, owner: IdObject, event: CmEvent): void {
  const { handle } = owner;
  if (event.type !== CMEventType.connectRequest) {
    state.sendEvent({ type: 'cm', event: eventRecord(event, handle, undefined) });
    return;
  }
  try {
    const object = state.add('id', (next) => new IdObject(state.client, next, event.id));
    event.id.tag = object;
    state.sendEvent({ type: 'cm', event: eventRecord(event, object.handle, handle) });
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    event.id.tag = undefined;
    state.host.cm.destroy(event.id);
  }
}

function eventRecord(event: CmEvent, id: number, listenId: number | undefined): CMEventRecord {
  return {
    type: event.type,
    id,
    listenId,
    error: event.error,
    privateData: event.privateData,
    initiatorDepth: event.initiatorDepth,
    responderResources: event.responderResources,
    state: idState(event.id),
    text: event.text,
  };
}

function idState(id: CmId): CMIdState {
  return { device: id.device, localAddress: id.localAddress, peerAddress: id.peerAddress };
}

/** The parameters alone, without the handles beside them. */
function connectionParameters(parameters: CMParameters): CMParameters {
  const { privateData, initiatorDepth, responderResources, wire } = parameters;
  return { privateData, initiatorDepth, responderResources, wire };
}
