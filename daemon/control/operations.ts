/** The table of operations, and the only way to execute them. */
import { z } from 'zod';
import {
  CONTROL_ROUTES,
  type ControlOperationName,
  type ControlReply,
  type MRSummary,
} from '#contract/protocol/control';
import { VerbsError } from '#contract/verbs/errors';
import { faultId, faultSpec, faultStatus } from './fault-schemas.ts';
import { inputFault } from './input-fault.ts';
import { ControlError, type Operation, type Operator } from './operation.ts';
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
  refusalFilter,
  refusalList,
  resetReport,
  traceRequest,
  traceSample,
} from './schemas.ts';
import type { ControlTarget } from './target.ts';

export const OPERATIONS: { readonly [N in ControlOperationName]: Operation<N> } = {
  status: {
    summary:
      'Status of the daemon, its devices with counters, and its clients with the objects they hold',
    request: noFields,
    reply: daemonStatus,
    run: (target) => target.status(),
  },
  listDevices: {
    summary: 'Devices with their counters',
    request: noFields,
    reply: z.array(deviceStatus),
    run: (target) => target.devices(),
  },
  listClients: {
    summary: 'Clients and the objects they hold',
    request: noFields,
    reply: z.array(clientStatus),
    run: (target) => target.clients(),
  },
  listQPs: {
    summary: 'Queue pairs',
    request: objectFilter,
    reply: z.array(qpSummary),
    run: async (target, filter) => (await target.objects('qps', filter)).qps,
  },
  listMRs: {
    summary: "Memory regions; only the daemon's own user sees keys and addresses",
    request: objectFilter,
    reply: z.array(mrSummary),
    run: async (target, filter, { isOwner }) => {
      const regions = (await target.objects('mrs', filter)).mrs;
      return isOwner ? regions : regions.map(withoutKey);
    },
  },
  listCQs: {
    summary: 'Completion queues',
    request: objectFilter,
    reply: z.array(cqSummary),
    run: async (target, filter) => (await target.objects('cqs', filter)).cqs,
  },
  listConnections: {
    summary: 'Connections of emulated devices, from the first SYN to the last FIN',
    request: connectionFilter,
    reply: z.array(connectionSummary),
    run: (target, filter) => target.connections(filter),
  },
  reset: {
    summary:
      'Disconnects all clients, closes all connections, removes all faults, resets all counters, and reports what was still open',
    request: noFields,
    reply: resetReport,
    run: (target) => target.reset(),
  },
  addFault: {
    summary: 'Injects a fault of the given kind, scope and trigger',
    request: faultSpec,
    reply: faultStatus,
    run: (target, spec) => target.addFault(spec),
  },
  listFaults: {
    summary: 'Active faults and how often each has fired',
    request: noFields,
    reply: z.array(faultStatus),
    run: (target) => target.faults(),
  },
  removeFault: {
    summary: 'Removes one fault and releases the data it held back',
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
      'Records work requests, MPA frames, FPDUs and completions until the record count or the time limit is reached',
    request: traceRequest,
    reply: traceSample,
    // As for a tap: it shows the STags of other users' programs while they are in use.
    ownerOnly: true,
    run: (target, request) => target.recordTrace(request),
  },
  listRefusals: {
    summary:
      "What programs were refused, and why; other users than the daemon's own see their own programs only",
    request: refusalFilter,
    reply: refusalList,
    run: (target, filter, { uid }) => target.refusals(filter, uid),
  },
};

export function isOperationName(name: unknown): name is ControlOperationName {
  return typeof name === 'string' && Object.hasOwn(OPERATIONS, name);
}

/**
 * Validates an external request and executes it. Rejects with `ControlError` EINVAL naming the invalid
 * field, with EACCES if the caller may not execute it, or with the operation's own `VerbsError`.
 */
export async function executeOperation<N extends ControlOperationName>(
  target: ControlTarget,
  name: N,
  request: unknown,
  caller: Operator,
): Promise<ControlReply<N>> {
  const operation: Operation<N> = OPERATIONS[name];
  const changes = CONTROL_ROUTES[name].method !== 'GET';
  if ((changes && !caller.mayChange) || (operation.ownerOnly === true && !caller.isOwner)) {
    throw new VerbsError('EACCES', `${name} is for the user of the daemon`);
  }
  const parsed = operation.request.safeParse(request);
  if (!parsed.success) {
    const { field, reason } = inputFault(parsed.error);
    throw new ControlError('EINVAL', field, reason);
  }
  const { operationTimes } = target;
  const started = operationTimes.now();
  while (target.settled !== undefined) await target.settled;
  try {
    return await operation.run(target, parsed.data, caller);
  } finally {
    operationTimes.add(name, operationTimes.now() - started);
  }
}

/** The same for an external operation name. EOPNOTSUPP if there is no such operation. */
export async function executeNamed(
  target: ControlTarget,
  name: unknown,
  request: unknown,
  caller: Operator,
): Promise<ControlReply<ControlOperationName>> {
  if (!isOperationName(name)) throw new VerbsError('EOPNOTSUPP', 'unknown operation');
  return await executeOperation(target, name, request, caller);
}

/** With key and address, anyone who can reach the program's port can read and write the region. */
function withoutKey({ key: _, address: __, ...rest }: MRSummary): MRSummary {
  return rest;
}
