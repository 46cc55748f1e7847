/** Commands for programs that connect queue pairs themselves: attributes, address handles, groups. */
import type { Micros } from '#base/time';
import type { CommandReply, CommandRequest } from '#contract/protocol/commands';
import { QPState } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { gidBytes } from '#contract/verbs/gid';
import type { DeviceQP, RoceBackend, ServedDevice } from '#daemon/host/served-device';
import type { AhObject, QpObject } from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';
import { addressVector, deviceModification, shownPath } from './path-attributes.ts';

/** Attributes of a queue pair before it is connected: no rights. */
const INIT_PATH = { accessFlags: 0, pkeyIndex: 0, portNum: 1 } as const;

type Modify = CommandRequest<'modifyQP'>;

/** The RoCE part of a device. EOPNOTSUPP on others, which lack `what`. */
export function roceOf({ name, roce }: ServedDevice, what: string): RoceBackend {
  if (roce !== undefined) return roce;
  throw new VerbsError('EOPNOTSUPP', `device ${name} is an iWARP device: it has no ${what}`);
}

/** Frees an address handle: datagrams that name it fail from now on. */
export function destroyAH(state: ClientState, object: AhObject): void {
  object.ah.close();
  state.table.remove(object);
}

/** Changes state and attributes: see `QP.modify`. */
export function modifyQP(
  { qp, host, pd }: QpObject,
  state: Modify['state'],
  attributes: Modify['attributes'],
): void {
  const { device } = pd.context;
  if (device.roce === undefined && attributes === undefined && state !== undefined) {
    qp.modify(state, host.now());
    return;
  }
  const roce = roceOf(device, 'queue pair attributes other than the state');
  roce.modifyPath(qp, deviceModification(state, attributes ?? {}), host.now());
}

/** Initialises the queue pair of a connection id. On RoCE, connecting sets the other attributes. */
export function initialiseQP({ roce }: ServedDevice, qp: DeviceQP, now: Micros): void {
  if (roce === undefined) qp.modify(QPState.INIT, now);
  else roce.modifyPath(qp, deviceModification(QPState.INIT, INIT_PATH), now);
}

export function queryQP({ qp, pd }: QpObject): CommandReply<'queryQP'> {
  const { roce } = pd.context.device;
  const attributes = { ...qp.query(), qpNum: qp.qpn };
  return roce === undefined ? attributes : { ...attributes, ...shownPath(roce.queryPath(qp)) };
}

export function pathCommands(
  state: ClientState,
): CommandHandlers<'queryGidTable' | 'createAH' | 'destroyAH' | 'attachMcast' | 'detachMcast'> {
  const { table } = state;
  return {
    queryGidTable({ context }) {
      const { device } = table.expect('context', context);
      return { entries: roceOf(device, 'GID table').gidTable() };
    },
    createAH({ pd, attributes }) {
      const owner = table.expect('pd', pd);
      const { device } = owner.context;
      const roce = roceOf(device, 'address handles');
      const make = () => ({ pd: owner, ah: roce.createAH(owner.pd, addressVector(attributes)) });
      const object = state.add('ah', make, device.name);
      return { ah: object.handle, number: object.ah.number };
    },
    destroyAH: ({ ah }) => destroyAH(state, table.expect('ah', ah)),
    attachMcast({ qp, gid }) {
      const object = table.expect('qp', qp);
      groupsOf(object).attachMulticast(object.qp, gidBytes(gid), state, state.ledger.share);
    },
    detachMcast({ qp, gid }) {
      const object = table.expect('qp', qp);
      groupsOf(object).detachMulticast(object.qp, gidBytes(gid));
    },
  };
}

function groupsOf({ pd }: QpObject): RoceBackend {
  return roceOf(pd.context.device, 'multicast groups');
}
