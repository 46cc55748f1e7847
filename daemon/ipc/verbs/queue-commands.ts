/** Commands for devices, protection domains, completion channels and queues. */
import type { CommandReply, CommandRequest, Handle } from '#contract/protocol/commands';
import { QPType } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import { assertMayHaveQkey } from '#daemon/clients/objects/user-rights';
import {
  type ChannelObject,
  type ContextObject,
  CqObject,
  type PdObject,
  QpObject,
  SrqObject,
} from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';
import { initialiseQP, modifyQP, queryQP, roceOf } from './path-commands.ts';

/** Closes a device. EBUSY while objects created from it exist. */
export function destroyContext(state: ClientState, object: ContextObject): void {
  state.assertUnused(object);
  state.table.remove(object);
}

/** Deallocates a protection domain. EBUSY while anything belongs to it. */
export function destroyPD(state: ClientState, object: PdObject): void {
  object.pd.close();
  state.table.remove(object);
  object.context.users -= 1;
}

/** Destroys a completion channel. EBUSY while completion queues report to it. */
export function destroyChannel(state: ClientState, object: ChannelObject): void {
  state.assertUnused(object);
  state.table.remove(object);
  state.closeChannel(object.handle);
  object.context.users -= 1;
}

/** Destroys a completion queue. EBUSY while queue pairs complete to it. */
export function destroyCQ(state: ClientState, object: CqObject): void {
  object.cq.close();
  state.table.remove(object);
  object.context.users -= 1;
  if (object.channel !== undefined) object.channel.users -= 1;
  state.rings.release(object.ring, object.cq.count);
}

/** Destroys a shared receive queue. EBUSY while queue pairs use it. */
export function destroySRQ(state: ClientState, object: SrqObject): void {
  object.srq.close();
  state.table.remove(object);
  state.rings.release(object.ring, object.srq.count);
}

/** Destroys a queue pair; its connection is reset. */
export function destroyQP(state: ClientState, object: QpObject): void {
  object.pd.context.device.roce?.leaveGroups(object.qp);
  object.qp.close(object.host.now());
  state.table.remove(object);
  state.rings.release(object.ring, object.qp.sqCount + object.qp.rqCount);
}

export function deviceCommands(
  state: ClientState,
): CommandHandlers<
  | 'listDevices'
  | 'openDevice'
  | 'closeDevice'
  | 'queryDevice'
  | 'queryPort'
  | 'allocPD'
  | 'deallocPD'
  | 'createCompChannel'
  | 'destroyCompChannel'
> {
  const { directory, table } = state;
  return {
    listDevices: () => ({ devices: directory.devices().map((device) => device.info) }),
    openDevice({ name }) {
      const { host, device } = directory.find(name);
      const object = state.add('context', () => ({ host, device }));
      return {
        context: object.handle,
        device: device.info,
        unsupported: device.unsupported,
        receivesNeedDoorbell: device.receivesNeedDoorbell,
      };
    },
    closeDevice: ({ context }) => destroyContext(state, table.expect('context', context)),
    queryDevice: ({ context }) => table.expect('context', context).device.attributes(),
    queryPort({ context, port }) {
      const { device } = table.expect('context', context);
      if (port !== 1) throw invalid(`the device has port 1 only, not ${port}`);
      return device.port();
    },
    allocPD({ context }) {
      const owner = table.expect('context', context);
      const { nic, name } = owner.device;
      const object = state.add('pd', () => ({ context: owner, pd: nic.allocPD() }), name);
      owner.users += 1;
      return { pd: object.handle };
    },
    deallocPD: ({ pd }) => destroyPD(state, table.expect('pd', pd)),
    createCompChannel({ context }) {
      const owner = table.expect('context', context);
      const make = (handle: Handle) => ({ context: owner, token: state.openChannel(handle) });
      const object = state.add('channel', make);
      owner.users += 1;
      return { channel: object.handle, token: object.token };
    },
    destroyCompChannel: ({ channel }) => destroyChannel(state, table.expect('channel', channel)),
  };
}

export function queueCommands(
  state: ClientState,
): CommandHandlers<
  | 'createCQ'
  | 'destroyCQ'
  | 'createSRQ'
  | 'modifySRQ'
  | 'querySRQ'
  | 'destroySRQ'
  | 'createQP'
  | 'modifyQP'
  | 'queryQP'
  | 'destroyQP'
> {
  const { table } = state;
  return {
    createCQ: (request) => createCQ(state, request),
    destroyCQ: ({ cq }) => destroyCQ(state, table.expect('cq', cq)),
    createSRQ: (request) => createSRQ(state, request),
    modifySRQ: ({ srq, srqLimit }) => table.expect('srq', srq).srq.modify({ srqLimit }),
    querySRQ: ({ srq }) => table.expect('srq', srq).srq.query(),
    destroySRQ: ({ srq }) => destroySRQ(state, table.expect('srq', srq)),
    createQP: (request) => createQP(state, request),
    modifyQP({ qp, state: next, attributes }) {
      const object = table.expect('qp', qp);
      if (attributes?.qkey !== undefined) assertMayHaveQkey(state.rights, attributes.qkey);
      modifyQP(object, next, attributes);
    },
    queryQP: ({ qp }) => queryQP(table.expect('qp', qp)),
    destroyQP: ({ qp }) => destroyQP(state, table.expect('qp', qp)),
  };
}

function createCQ(
  state: ClientState,
  request: CommandRequest<'createCQ'>,
): CommandReply<'createCQ'> {
  const context = state.table.expect('context', request.context);
  const channel =
    request.channel === undefined ? undefined : state.table.expect('channel', request.channel);
  if (channel !== undefined && channel.context !== context) {
    throw invalid('the channel belongs to another context');
  }
  const { nic, name } = context.device;
  const make = (handle: Handle): CqObject =>
    state.rings.make((rings) => {
      const ring = (bytes: number) => rings.take(bytes);
      const cq = nic.createCQ({ cqe: request.cqe, ring, tag: undefined });
      rings.charge(cq.count, () => cq.close());
      return new CqObject(state.client, handle, { context, cq, ring: rings.at(0), channel });
    });
  const object = state.table.add('cq', make, name);
  object.cq.tag = object;
  context.users += 1;
  if (channel !== undefined) channel.users += 1;
  return { cq: object.handle, cqe: object.cq.count, ring: object.ring.mapping };
}

function createSRQ(
  state: ClientState,
  request: CommandRequest<'createSRQ'>,
): CommandReply<'createSRQ'> {
  const { maxWr, maxSge, srqLimit } = request;
  const pd = state.table.expect('pd', request.pd);
  const { nic, name } = pd.context.device;
  const make = (handle: Handle): SrqObject =>
    state.rings.make((rings) => {
      const ring = (bytes: number) => rings.take(bytes);
      const srq = nic.createSRQ(pd.pd, { maxWr, maxSge, srqLimit, ring, tag: undefined });
      rings.charge(srq.count, () => srq.close());
      return new SrqObject(state.client, handle, { pd, srq, ring: rings.at(0) });
    });
  const object = state.table.add('srq', make, name);
  object.srq.tag = object;
  return { srq: object.handle, count: object.srq.count, ring: object.ring.mapping };
}

function createQP(
  state: ClientState,
  request: CommandRequest<'createQP'>,
): CommandReply<'createQP'> {
  const { table } = state;
  const pd = table.expect('pd', request.pd);
  const sendCQ = table.expect('cq', request.sendCQ);
  const recvCQ = table.expect('cq', request.recvCQ);
  const srq = request.srq === undefined ? undefined : table.expect('srq', request.srq);
  const { device, host } = pd.context;
  for (const part of [sendCQ.context, recvCQ.context, srq?.pd.context]) {
    if (part !== undefined && part.device !== device) {
      throw invalid('the queues belong to different devices');
    }
  }
  const { type = QPType.rc } = request;
  if (type !== QPType.rc) roceOf(pd.context.device, 'queue pairs of a type other than RC');
  const { capabilities, sqSigAll } = request;
  const make = (handle: Handle): QpObject =>
    state.rings.make((rings) => {
      const queues = { sendCQ: sendCQ.cq, recvCQ: recvCQ.cq, srq: srq?.srq };
      const ring = (bytes: number) => rings.take(bytes);
      const init = { type, ...queues, capabilities, sqSigAll, ring, tag: undefined };
      const qp = device.nic.createQP(pd.pd, init);
      rings.charge(qp.sqCount + qp.rqCount, () => qp.close(host.now()));
      return new QpObject(state.client, handle, { pd, qp, ring: rings.at(0) });
    });
  const object = state.table.add('qp', make, device.name);
  const { qp } = object;
  qp.tag = object;
  if (request.initialised === true) initialiseQP(device, qp, host.now());
  return {
    qp: object.handle,
    qpNum: qp.qpn,
    capabilities: qp.capabilities,
    ring: object.ring.mapping,
    sqCount: qp.sqCount,
    rqOffset: qp.rqOffset,
    rqCount: qp.rqCount,
  };
}
