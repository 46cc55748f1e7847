/** Commands for connection ids, and delivery of their events to the client. */
import { isWildcard } from '#base/address';
import type {
  CMEventRecord,
  CMIdState,
  CMParameters,
  CommandName,
} from '#contract/protocol/commands';
import { CMEventType } from '#contract/verbs/enums';
import { invalid, isVerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { assertMayBind } from '#daemon/clients/objects/user-rights';
import type { DeviceHost, ServedCmEvent, ServedId } from '#daemon/host/served-device';
import { IdObject } from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';
import {
  answerService,
  askService,
  assertDatagramsAt,
  createServiceId,
  serviceAddress,
  serviceOf,
} from './datagram-commands.ts';

type ConnectionCommand = Extract<CommandName, `cm${string}`>;

/** Destroys a connection id; a connection on it is dropped. */
export function destroyId(state: ClientState, object: IdObject): void {
  state.table.remove(object);
  const { second } = object;
  second?.host.cm.destroy(second.id);
  object.host.cm.destroy(object.id);
}

export function connectionCommands(state: ClientState): CommandHandlers<ConnectionCommand> {
  const { directory, rights, table } = state;
  const idOf = (handle: number): IdObject => table.expect('id', handle);
  return {
    cmCreateId({ datagrams = false }) {
      const host = directory.emulated;
      const object = state.table.add('id', (handle) => {
        const id = datagrams ? createServiceId(directory) : host.cm.createId(undefined);
        id.program = state.client;
        id.account = state.ledger.share;
        id.user = state.user;
        return new IdObject(state.client, handle, host, id);
      });
      object.id.tag = object;
      return { id: object.handle };
    },
    cmDestroyId: ({ id }) => destroyId(state, idOf(id)),
    cmBindAddr({ id, address }) {
      const object = idOf(id);
      assertMayBind(rights, address);
      if (serviceOf(object) !== undefined) assertDatagramsAt(directory, address);
      else if (object.id.localAddress === undefined) moveTo(object, directory.at(address));
      object.host.cm.bindAddr(object.id, address);
      return idState(object.id);
    },
    cmResolveAddr({ id, destination, source, timeoutMs }) {
      const object = idOf(id);
      if (source !== undefined) assertMayBind(rights, source);
      const from = chooseHost(directory, object, destination, source);
      object.host.cm.resolveAddr(object.id, destination, from, timeoutMs);
    },
    cmResolveRoute({ id }) {
      const object = idOf(id);
      object.host.cm.resolveRoute(object.id);
    },
    cmListen({ id, backlog }) {
      const object = idOf(id);
      object.host.cm.listen(object.id, backlog);
      object.listening = true;
      listenOnSecond(state, object, backlog);
      return idState(object.id);
    },
    cmConnect({ id, qp, ...parameters }) {
      const object = idOf(id);
      const service = serviceOf(object);
      if (service !== undefined) {
        askService(directory, service, parameters);
        return;
      }
      if (qp === undefined) throw invalid('a connection needs a queue pair');
      const peer = table.expect('qp', qp).qp;
      object.host.cm.connect(object.id, peer, connectionParameters(parameters));
    },
    cmAccept({ id, qp, ...parameters }) {
      const object = idOf(id);
      const service = serviceOf(object);
      const peer = table.expect('qp', qp);
      if (service !== undefined) answerService(directory, service, peer, parameters);
      else object.host.cm.accept(object.id, peer.qp, connectionParameters(parameters));
    },
    cmReject({ id, privateData }) {
      const object = idOf(id);
      object.host.cm.reject(object.id, privateData);
    },
    cmDisconnect({ id }) {
      const object = idOf(id);
      object.host.cm.disconnect(object.id);
    },
  };
}
/**
 * Sends the client an event of its id. A connect request creates a new id, which is rejected if the
 * client has reached its quota.
 */
export function deliverCmEvent(
  state: ClientState,
  host: DeviceHost,
  owner: IdObject,
  event: ServedCmEvent,
): void {
  const { handle } = owner;
  if (event.type !== CMEventType.connectRequest) {
    // Ignore events of the second listener: the first one is still listening.
    if (event.id !== owner.id) return;
    state.sendEvent({ type: 'cm', event: eventRecord(event, handle, undefined) });
    return;
  }
  try {
    const object = state.table.add(
      'id',
      (next) => new IdObject(state.client, next, host, event.id),
    );
    event.id.tag = object;
    state.sendEvent({ type: 'cm', event: eventRecord(event, object.handle, handle) });
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    event.id.tag = undefined;
    host.cm.destroy(event.id);
  }
}

/**
 * Moves an id that is unbound, or bound to any address, to `host`. Returns true if it was elsewhere.
 */
function moveTo(object: IdObject, host: DeviceHost): boolean {
  if (object.host === host) return false;
  const moved = host.cm.createId(object);
  moved.account = object.id.account;
  moved.user = object.id.user;
  moved.program = object.client;
  object.host.cm.destroy(object.id);
  object.host = host;
  object.id = moved;
  return true;
}

/** Moves the id to the host that reaches the destination. Returns the source address to request. */
function chooseHost(
  directory: DeviceDirectory,
  object: IdObject,
  destination: SocketAddress,
  source: SocketAddress | undefined,
): SocketAddress | undefined {
  if (serviceOf(object) !== undefined) {
    assertDatagramsAt(directory, source);
    assertDatagramsAt(directory, destination);
    return source;
  }
  const bound = object.id.localAddress;
  if (object.listening || (bound !== undefined && !isWildcard(bound.address))) return source;
  const moved = moveTo(object, directory.towards(destination, source));
  // Keep a bound port.
  return moved && bound !== undefined ? bound : source;
}

/**
 * Makes an id that listens on any address also listen on the native devices if possible: a kernel
 * software RNIC takes its TCP port from the same machine and may find it in use.
 */
function listenOnSecond({ directory }: ClientState, object: IdObject, backlog: number): void {
  const native = directory.nativeEverywhere;
  const address = object.id.localAddress;
  if (serviceOf(object) !== undefined) return;
  if (native === undefined || object.host === native || address === undefined) return;
  if (!isWildcard(address.address)) return;
  const id = native.cm.createId(object);
  try {
    native.cm.bindAddr(id, address);
    native.cm.listen(id, backlog);
    object.second = { host: native, id };
  } catch (error) {
    native.cm.destroy(id);
    if (!isVerbsError(error)) throw error;
  }
}

function eventRecord(
  event: ServedCmEvent,
  id: number,
  listenId: number | undefined,
): CMEventRecord {
  return {
    type: event.type,
    id,
    listenId,
    error: event.error,
    privateData: event.privateData,
    initiatorDepth: event.initiatorDepth,
    responderResources: event.responderResources,
    state: idState(event.id),
    ud: serviceAddress(event),
    text: event.text,
  };
}

function idState(id: ServedId): CMIdState {
  return { device: id.device, localAddress: id.localAddress, peerAddress: id.peerAddress };
}

/** The parameters without the handles of the request. */
function connectionParameters(parameters: CMParameters): CMParameters {
  const { privateData, initiatorDepth, responderResources, wire } = parameters;
  return { privateData, initiatorDepth, responderResources, wire };
}
