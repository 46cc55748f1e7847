/**
 * One client of the devices: executes its commands, owns the objects it created, and destroys them
 * when it disconnects. The daemon has one per control connection, the embedded provider has one.
 */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
} from '#contract/protocol/commands';
import type { ObjectOwner } from '#contract/protocol/control';
import type { ClientUsage } from '#contract/protocol/ipc-admin';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { ClientMemory } from '#daemon/clients/objects/client-memory';
import type { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { COMPLETIONS_OF_OBJECT } from '#daemon/clients/objects/ending-owners';
import type { DeviceEventSink } from '#daemon/clients/objects/event-router';
import { eventReport, failureReport, type OwnReport } from '#daemon/clients/objects/failure-report';
import { mrSummary, qpSummary } from '#daemon/clients/objects/object-summaries';
import type { ObjectWindow } from '#daemon/clients/objects/object-window';
import { type ClientQuotas, DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { failFaultyVerb } from '#daemon/clients/objects/verb-faults';
import { WorkEpoch } from '#daemon/clients/objects/work-epoch';
import type {
  DeviceAsyncEvent,
  DeviceFailure,
  DeviceHost,
  ServedCmEvent,
  ServedDevice,
} from '#daemon/host/served-device';
import {
  type AnyObject,
  type ClientEvents,
  type ContextObject,
  type CqObject,
  contextOf,
  type IdObject,
  QpObject,
  SrqObject,
} from './client-objects.ts';
import { ClientState, type CommandHandlers } from './client-state.ts';
import { connectionCommands, deliverCmEvent, destroyId } from './connection-commands.ts';
import { ListedObjects } from './listed-objects.ts';
import { destroyBuffer, destroyMR, destroyMW, memoryCommands } from './memory-commands.ts';
import { destroyAH, pathCommands } from './path-commands.ts';
import {
  destroyChannel,
  destroyContext,
  destroyCQ,
  destroyPD,
  destroyQP,
  destroySRQ,
  deviceCommands,
  queueCommands,
} from './queue-commands.ts';

interface ClientOptions {
  /** All devices. Clients of the same hosts share one directory. */
  readonly directory: DeviceDirectory;
  readonly memory: ClientMemory;
  /** Default: `DEFAULT_QUOTAS`. */
  readonly quotas?: ClientQuotas;
  /** The client's user, for shares of limits and for rights. Default: the owner. */
  readonly uid?: number;
  /** The client's group. Default: unknown. */
  readonly gid?: number;
  /** Sends the client an event. Called in the order of the events. */
  readonly sendEvent: (event: DeviceEvent) => void;
  /** A CQ with a channel fired. Called in the turn that wrote the completion. */
  readonly sendCompletion: (channel: Handle, cq: Handle) => void;
  /** A completion channel was created: returns the token of its event path. Default: ''. */
  readonly openChannel?: (channel: Handle) => string;
  /** A completion channel was destroyed. */
  readonly closeChannel?: (channel: Handle) => void;
  /** Records failed work and events of the client. Default: records nothing. */
  readonly record?: (report: OwnReport) => void;
  /** An object of the NIC has been destroyed. Default: does nothing. */
  readonly judge?: (object: object, device: string) => void;
  /** Names the client in logs. */
  readonly label: string;
  /** Its process, for faults. Default: none. */
  readonly pid?: number;
}

/** The device and the objects that a refused request names. */
interface RefusedRequest {
  readonly device?: string;
  readonly objects?: Readonly<Record<string, number>>;
}

/** Owner of the objects, for summaries. */
type ClientOwner = Pick<ObjectOwner, 'client' | 'pid' | 'program'>;

type Destroyers = {
  readonly [K in AnyObject['kind']]: (
    state: ClientState,
    object: Extract<AnyObject, { readonly kind: K }>,
  ) => void;
};

/** By kind, in order of destruction: dependants first. */
const DESTROYERS: Destroyers = {
  id: destroyId,
  qp: destroyQP,
  srq: destroySRQ,
  cq: destroyCQ,
  ah: destroyAH,
  mw: destroyMW,
  mr: destroyMR,
  buffer: destroyBuffer,
  channel: destroyChannel,
  pd: destroyPD,
  context: destroyContext,
};
const KINDS_LEAVING = Object.keys(DESTROYERS) as readonly AnyObject['kind'][];

export class ClientContext implements ClientEvents, DeviceEventSink {
  readonly label: string;
  readonly #options: ClientOptions;
  readonly #state: ClientState;
  readonly #handlers: CommandHandlers;
  #closed = false;
  /** Of a closed client: the objects left; the next one to destroy is last. */
  #leaving: AnyObject[] | undefined;
  readonly #failures: unknown[] = [];
  readonly #epoch = new WorkEpoch();

  constructor(options: ClientOptions) {
    this.label = options.label;
    this.#options = options;
    const { pid, judge = () => undefined } = options;
    const { resources } = options.directory;
    this.#state = new ClientState(this, {
      directory:
        options.uid === undefined
          ? options.directory
          : options.directory.forUser({ uid: options.uid, gid: options.gid }),
      memory: options.memory,
      quotas: options.quotas ?? DEFAULT_QUOTAS,
      listing: pid === undefined ? undefined : new ListedObjects(resources, pid, judge),
      uid: options.uid,
      sendEvent: (event) => {
        if (!this.#closed) options.sendEvent(event);
      },
      openChannel: options.openChannel ?? (() => ''),
      closeChannel: options.closeChannel ?? (() => undefined),
    });
    this.#handlers = {
      ...deviceCommands(this.#state),
      ...memoryCommands(this.#state),
      ...queueCommands(this.#state),
      ...pathCommands(this.#state),
      ...connectionCommands(this.#state),
    };
    options.directory.events.add(this);
  }

  /** Executes a command, entirely or not at all. Throws `VerbsError`. */
  execute<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> {
    if (this.#closed) throw new VerbsError('EIO', 'the client is closed');
    failFaultyVerb(this.#options.directory.emulated, name, () => {
      return { device: deviceOf(this.#state, request), pid: this.#options.pid };
    });
    if (name === 'modifyQP' || name === 'destroyQP') this.#epoch.noteCommand();
    try {
      return (this.#handlers[name](request) ?? {}) as CommandReply<N>;
    } finally {
      this.#drain();
    }
  }

  describe(request: unknown): RefusedRequest {
    if (typeof request !== 'object' || request === null) return {};
    const { table } = this.#state;
    const device = placeOf(table, request);
    const qp: unknown = Reflect.get(request, 'qp');
    const object = typeof qp === 'number' ? table.find(qp) : undefined;
    const number = object instanceof QpObject ? object.qp.qpn : undefined;
    return {
      ...(device === undefined ? {} : { device }),
      ...(number === undefined ? {} : { objects: { qp: number } }),
    };
  }

  /** A QP or SRQ has new elements. Ignores handles of other or destroyed objects. */
  doorbell(handle: Handle): void {
    const object = this.#closed ? undefined : this.#state.table.find(handle);
    if (object instanceof QpObject) object.host.doorbell(object.qp);
    else if (object instanceof SrqObject) object.host.receiveDoorbell(object.srq);
  }

  /**
   * Destroys everything: ids and queue pairs first, since peers wait for their streams to end, memory
   * last. Attempts every destruction, then throws their errors. Destroys up to about `costMax` objects'
   * worth of work per call, and returns the work done: less when nothing is left.
   */
  close(costMax = Number.POSITIVE_INFINITY): number {
    this.#leaving ??= this.#leave();
    let cost = 0;
    while (cost < costMax) {
      const object = this.#leaving.pop();
      if (object === undefined) break;
      cost += this.#destroy(object);
    }
    this.#drain();
    const failures = this.#leaving.length > 0 ? [] : this.#failures.splice(0);
    if (failures.length > 0) throw new AggregateError(failures, `clean-up after ${this.label}`);
    return cost;
  }

  /**
   * A number that changes whenever a queue pair of the client may have abandoned work: a failed one
   * stays in its state until a command moves it.
   */
  workEpoch(): number {
    return this.#epoch.value(this.#state.table.ofKind('qp'));
  }

  usage(): ClientUsage {
    return this.#state.ledger.usage();
  }

  /** Compares the client's objects with its accounts, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#state.assertDeepInvariants();
  }

  /** Offers its queue pairs, regions or completion queues for a reply. */
  listObjects(owner: ClientOwner, window: ObjectWindow): void {
    const { table } = this.#state;
    const offer = (object: AnyObject, { device }: ContextObject, describe: () => void): void => {
      window.offer(device.name, owner.pid, () => {
        if (table.find(object.handle) === object) describe();
      });
    };
    const of = (object: AnyObject, context: ContextObject): ObjectOwner => {
      const { client, pid, program } = owner;
      return { client, pid, program, device: context.device.name, handle: object.handle };
    };
    switch (window.kind) {
      case 'qps':
        for (const object of table.ofKind('qp')) {
          const { context } = object.pd;
          offer(object, context, () => {
            window.qps.push(qpSummary(of(object, context), object.qp));
          });
        }
        break;
      case 'mrs':
        for (const object of table.ofKind('mr')) {
          const { context } = object.pd;
          offer(object, context, () => {
            window.mrs.push(mrSummary(of(object, context), object.mr));
          });
        }
        break;
      case 'cqs':
        for (const object of table.ofKind('cq')) {
          const { context, cq } = object;
          offer(object, context, () => {
            window.cqs.push({ ...of(object, context), entries: cq.count });
          });
        }
    }
  }

  /** See `ClientEvents`: an armed CQ of this client fired. */
  handleCompletion(object: CqObject): void {
    if (this.#closed || object.channel === undefined) return;
    this.#options.sendCompletion(object.channel.handle, object.handle);
  }

  /** See `ClientEvents`: an event of an id of this client, from the host that serves the id. */
  handleCmEvent(owner: IdObject, event: ServedCmEvent, host: DeviceHost): void {
    if (!this.#closed && this.#state.table.find(owner.handle) === owner) {
      deliverCmEvent(this.#state, host, owner, event);
    } else if (event.type === CMEventType.connectRequest) {
      // The listener was destroyed, or its client ended, while its connect request was in flight.
      host.cm.destroy(event.id);
    }
  }

  /** See `ClientEvents`: an asynchronous event of an object of this client. */
  handleObjectEvent(object: CqObject | QpObject | SrqObject, event: DeviceAsyncEvent): void {
    const context = object.kind === 'cq' ? object.context : object.pd.context;
    this.#recordEvent(context.device.name, event);
    this.#state.sendEvent({
      type: 'async',
      context: context.handle,
      event: {
        type: event.event,
        element: object.handle,
        qpNum: object.kind === 'qp' ? object.qp.qpn : undefined,
        text: event.text,
      },
    });
  }

  /** See `ClientEvents`: work of a queue pair of this client failed. */
  handleFailure({ pd }: QpObject, failure: DeviceFailure): void {
    const { qp, work, sentence } = failure;
    const { record } = this.#options;
    if (record !== undefined) record(failureReport(failure, pd.context.device.name, true));
    const { queue, wrId } = work ?? {};
    const named = queue === undefined || wrId === undefined ? undefined : { queue, wrId };
    this.#state.sendEvent({
      type: 'failure',
      context: pd.context.handle,
      failure: { qpNum: qp.qpn, work: named, sentence },
    });
  }

  get user(): number | object | undefined {
    return this.#state.user;
  }

  handleDeviceEvent(device: ServedDevice, event: DeviceAsyncEvent): void {
    for (const context of this.#state.table.ofKind('context')) {
      if (context.device !== device) continue;
      this.#recordEvent(device.name, event);
      this.#state.sendEvent({
        type: 'async',
        context: context.handle,
        event: { type: event.event, element: 1, qpNum: undefined, text: event.text },
      });
    }
  }

  #recordEvent(device: string, event: DeviceAsyncEvent): void {
    const { record } = this.#options;
    const report = record === undefined ? undefined : eventReport(event, device, true);
    if (report !== undefined) record?.(report);
  }

  #drain(): void {
    for (const host of this.#state.directory.hosts) host.drain();
  }

  #leave(): AnyObject[] {
    this.#closed = true;
    this.#options.directory.events.remove(this);
    const { table } = this.#state;
    return KINDS_LEAVING.flatMap((kind): readonly AnyObject[] => table.ofKind(kind)).reverse();
  }

  /** Returns the work done, in objects. */
  #destroy(object: AnyObject): number {
    // Already destroyed with another object.
    if (this.#state.table.find(object.handle) !== object) return 0;
    const before = completionsOf(object);
    try {
      const destroy: (state: ClientState, object: never) => void = DESTROYERS[object.kind];
      destroy(this.#state, object as never);
    } catch (error) {
      this.#failures.push(error);
    }
    return 1 + (completionsOf(object) - before) / COMPLETIONS_OF_OBJECT;
  }
}

/** Completions on the device of a queue pair; native devices flush without the daemon. */
function completionsOf(object: AnyObject): number {
  if (object.kind !== 'qp') return 0;
  const { counters } = object.pd.context.device.nic;
  return 'completions' in counters ? Number(counters.completions) : 0;
}

/** Request fields that identify the device when it is not named. */
const PLACE_FIELDS = ['context', 'pd', 'qp', 'srq', 'id'] as const;

/** The device that a request concerns; undefined if there is none, or none decided yet. */
function deviceOf({ table, directory }: ClientState, request: object): string | undefined {
  if ('name' in request) {
    const { name } = request;
    return typeof name === 'string' ? name : directory.find(undefined).device.name;
  }
  return placeOf(table, request);
}

/** The device of the objects that a request names. */
function placeOf(table: ClientState['table'], request: object): string | undefined {
  for (const field of PLACE_FIELDS) {
    const handle: unknown = Reflect.get(request, field);
    const object = typeof handle === 'number' ? table.find(handle) : undefined;
    if (object === undefined) continue;
    if (object.kind === 'id') return object.id.device;
    const context = object.kind === 'context' ? object : contextOf(object);
    if (context !== undefined) return context.device.name;
  }
  return undefined;
}
