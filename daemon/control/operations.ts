/** The table of operations, and the one way to execute them. */
import { z } from 'zod';
import {
  CONTROL_ROUTES,
  type ControlOperationName,
  type ControlReply,
  LIST_MAX,
  type ListWindow,
  type ObjectFilter,
  type ObjectOwner,
} from '../../verbs-api/contract/control.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { faultId, faultSpec, faultStatus } from './fault-schemas.ts';
import { inputFault } from './input-fault.ts';
import { ControlError, type Operation } from './operation.ts';
import {
  clientStatus,
  connectionFilter,
  connectionSummary,
  cqSummary,
  daemonStatus,
  deviceStatus,
  mrSummary,
  noFields,
  objectFilter,
  qpSummary,
  resetReport,
  traceRequest,
  traceSample,
} from './schemas.ts';
import type { ControlTarget } from './target.ts';

/** Operations by name. */
export const OPERATIONS: { readonly [N in ControlOperationName]: Operation<N> } = {
  status: {
    summary: 'The daemon, its devices with their counters, its clients with what they hold',
    request: noFields,
    reply: daemonStatus,
    run: (target) => target.status(),
  },
  listDevices: {
    summary: 'Devices with their counters',
    request: noFields,
    reply: z.array(deviceStatus),
    run: (target) => target.status().devices,
  },
  listClients: {
    summary: 'Clients with what they hold',
    request: noFields,
    reply: z.array(clientStatus),
    run: (target) => target.status().clients,
  },
  listQPs: {
    summary: 'Queue pairs',
    request: objectFilter,
    reply: z.array(qpSummary),
    run: (target, filter) => matching(target.objects().qps, filter),
  },
  listMRs: {
    summary: 'Memory regions',
    request: objectFilter,
    reply: z.array(mrSummary),
    run: (target, filter) => matching(target.objects().mrs, filter),
  },
  listCQs: {
    summary: 'Completion queues',
    request: objectFilter,
    reply: z.array(cqSummary),
    run: (target, filter) => matching(target.objects().cqs, filter),
  },
  listConnections: {
    summary: 'Connections of emulated devices, from the first SYN to the last FIN',
    request: connectionFilter,
    reply: z.array(connectionSummary),
    run: (target, filter) => windowOf(target.connections().filter(onDevice(filter)), filter),
  },
  reset: {
    summary:
      'Ends all clients and connections, removes faults, sets counters to zero, tells what was still open',
    request: noFields,
    reply: resetReport,
    run: (target) => target.reset(),
  },
  addFault: {
    summary: 'Has something go wrong, as its kind, scope and trigger say',
    request: faultSpec,
    reply: faultStatus,
    run: (target, spec) => target.addFault(spec),
  },
  listFaults: {
    summary: 'Faults, with how often each has happened',
    request: noFields,
    reply: z.array(faultStatus),
    run: (target) => target.faults(),
  },
  removeFault: {
    summary: 'Removes one fault; what it held back goes on',
    request: faultId,
    reply: faultStatus,
    run: (target, { id }) => target.removeFault(id),
  },
  removeFaults: {
    summary: 'Removes all faults',
    request: noFields,
    reply: z.array(faultStatus),
    run: (target) => target.removeFaults(),
  },
  recordTrace: {
    summary:
      'What passes from now on, until so many records came or so many milliseconds are over: work requests, MPA frames and FPDUs, completions',
    request: traceRequest,
    reply: traceSample,
    // As with a tap: it shows the STags of other users' programs while they are in use.
    ownerOnly: true,
    run: (target, request) => target.recordTrace(request),
  },
};

/** True for the name of an operation. */
export function isOperationName(name: unknown): name is ControlOperationName {
  return typeof name === 'string' && Object.hasOwn(OPERATIONS, name);
}

/**
 * Checks a request from outside and executes it. Rejects with `ControlError` EINVAL that names the
 * field that is wrong, or with what the operation refuses with (`VerbsError`).
 */
export async function executeOperation<N extends ControlOperationName>(
  target: ControlTarget,
  name: N,
  request: unknown,
): Promise<ControlReply<N>> {
  const operation: Operation<N> = OPERATIONS[name];
  const parsed = operation.request.safeParse(request);
  if (!parsed.success) {
    const { field, reason } = inputFault(parsed.error);
    throw new ControlError('EINVAL', field, reason);
  }
  return await operation.run(target, parsed.data);
}

/** Who asks, as far as it matters. */
export interface Caller {
  /** May do more than look. */
  readonly mayChange: boolean;
}

/**
 * The same for a name from outside. EOPNOTSUPP for one that names no operation; EACCES for one that
 * changes something or shows what is the owner's, from somebody else.
 */
export async function executeNamed(
  target: ControlTarget,
  name: unknown,
  request: unknown,
  caller: Caller,
): Promise<ControlReply<ControlOperationName>> {
  if (!isOperationName(name)) throw new VerbsError('EOPNOTSUPP', 'unknown operation');
  const forOwner = CONTROL_ROUTES[name].method !== 'GET' || OPERATIONS[name].ownerOnly === true;
  if (forOwner && !caller.mayChange) {
    throw new VerbsError('EACCES', `${name} is for the user of the daemon`);
  }
  return await executeOperation(target, name, request);
}

function matching<T extends ObjectOwner>(objects: readonly T[], filter: ObjectFilter): T[] {
  const { pid } = filter;
  const matches = objects.filter(onDevice(filter));
  return windowOf(pid === undefined ? matches : matches.filter((each) => each.pid === pid), filter);
}

function onDevice({ device }: { readonly device?: string }) {
  return (each: { readonly device: string }) => device === undefined || each.device === device;
}

function windowOf<T>(list: readonly T[], { offset = 0, limit = LIST_MAX }: ListWindow): T[] {
  return list.slice(offset, offset + limit);
}
