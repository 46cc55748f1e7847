/**
 * One client of the devices: executes its commands, owns what it made, and takes all of it down
 * when it goes. The daemon has one for each control connection, the embedded provider has one.
 */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
} from '../../../verbs-api/contract/commands.ts';
import type { ObjectSummaries } from '../../../verbs-api/contract/control.ts';
import { CMEventType, QPState } from '../../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { ClientUsage } from '../../../verbs-api/contract/ipc-admin.ts';
import type {
  DeviceAsyncEvent,
  DeviceBackend,
  DeviceHost,
  ServedCmEvent,
} from '../../adapter/device-backend.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import { failFaultyVerb } from '../verb-faults.ts';
import type { ClientMemory } from './client-memory.ts';
import {
  type AnyObject,
  ContextObject,
  type CqObject,
  IdObject,
  PdObject,
  QpObject,
  SrqObject,
} from './client-objects.ts';
import { ClientState, type CommandHandlers } from './client-state.ts';
import { connectionCommands, deliverCmEvent, destroyId } from './connection-commands.ts';
import { DeviceDirectory } from './device-directory.ts';
import { EventRouter } from './event-router.ts';
import { destroyBuffer, destroyMR, destroyMW, memoryCommands } from './memory-commands.ts';
import { type ClientOwner, summarize } from './object-summaries.ts';
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
import { type ClientQuotas, DEFAULT_QUOTAS, OBJECT_KINDS } from './quotas.ts';

/** What a client is made with. */
export interface ClientOptions {
  readonly host: RnicHost;
  /** Serves native devices beside the emulated ones. Default: none. */
  readonly native?: DeviceHost | undefined;
  readonly memory: ClientMemory;
  /** Default: `DEFAULT_QUOTAS`. */
  readonly quotas?: ClientQuotas;
  /** Tells the client an event. Called in the order of the events. */
  readonly sendEvent: (event: DeviceEvent) => void;
  /** A CQ with a channel fired. Called in the turn in which the completion was written. */
  readonly sendCompletion: (channel: Handle, cq: Handle) => void;
  /** A completion channel is made: returns the token that names its event path. Default: ''. */
  readonly openChannel?: (channel: Handle) => string;
  /** A completion channel is gone. */
  readonly closeChannel?: (channel: Handle) => void;
  /** Who it is, for people. */
  readonly label: string;
  /** The process that it is of, for faults. Default: none. */
  readonly pid?: number;
}

/** See the module's comment. */
export class ClientContext {
  readonly label: string;
  readonly #options: ClientOptions;
  readonly #state: ClientState;
  readonly #handlers: CommandHandlers;
  readonly #routers: readonly EventRouter[];
  #closed = false;
  /** Commands that may have ended the work of a queue pair. */
  #workCommands = 0;

  constructor(options: ClientOptions) {
    this.label = options.label;
    this.#options = options;
    const directory = new DeviceDirectory(options.host, options.native);
    this.#state = new ClientState(this, {
      directory,
      memory: options.memory,
      quotas: options.quotas ?? DEFAULT_QUOTAS,
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
      ...connectionCommands(this.#state),
    };
    this.#routers = directory.hosts.map((host) => EventRouter.of(host));
    for (const router of this.#routers) router.add(this);
  }

  /**
   * Executes a command. Throws `VerbsError`, or rejects with it where the reply takes time; then
   * nothing is half-made.
   */
  execute<N extends CommandName>(
    name: N,
    request: CommandRequest<N>,
  ): CommandReply<N> | Promise<CommandReply<N>> {
    if (this.#closed) throw new VerbsError('EIO', 'the client is closed');
    failFaultyVerb(this.#options.host, name, () => {
      return { device: deviceOf(this.#state, request), pid: this.#options.pid };
    });
    if (name === 'modifyQP' || name === 'destroyQP') this.#workCommands += 1;
    try {
      return this.#handlers[name](request);
    } finally {
      this.#drain();
    }
  }

  /** A QP or SRQ has new elements. A handle that is neither (any more) is ignored. */
  doorbell(handle: Handle): void {
    const object = this.#state.table.find(handle);
    if (object instanceof QpObject) object.host.doorbell(object.qp);
    else if (object instanceof SrqObject) object.host.receiveDoorbell(object.srq);
  }

  /**
   * Takes everything down: ids and queue pairs first, so that peers see their streams end, memory
   * last. Throws what a destruction threw, after all of them were tried. The second call does
   * nothing.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const router of this.#routers) router.remove(this);
    const failures = this.#destroyAll();
    this.#drain();
    if (failures.length > 0) throw new AggregateError(failures, `clean-up after ${this.label}`);
  }

  /**
   * A number that changes whenever a queue pair of the client may have given up work: one that
   * fails stays in its state until a command moves it.
   */
  workEpoch(): number {
    let failed = 0;
    for (const { qp } of this.#state.table.ofKind('qp')) {
      if (qp.state === QPState.ERR || qp.state === QPState.SQE) failed += 1;
    }
    return this.#workCommands * 0x1_0000 + failed;
  }

  /** What the client holds. */
  usage(): ClientUsage {
    const { ledger, table } = this.#state;
    const objects: Record<string, number> = {};
    for (const kind of OBJECT_KINDS) objects[kind] = ledger.count(kind);
    const tiers: Record<string, number> = {};
    const tierReasons: Record<string, string> = {};
    for (const { mr, reason } of table.ofKind('mr')) {
      const { tier } = mr.backing;
      tiers[tier] = (tiers[tier] ?? 0) + 1;
      tierReasons[tier] = reason;
    }
    return {
      objects,
      sharedBytes: ledger.held('sharedBytes'),
      pinnedBytes: ledger.held('pinnedBytes'),
      tiers,
      tierReasons,
    };
  }

  /** Queue pairs, regions and completion queues, for those who look at the daemon. */
  objects(owner: ClientOwner): ObjectSummaries {
    return summarize(this.#state.table, owner);
  }

  /** From the router: an armed CQ of this client fired. */
  handleCompletion(object: CqObject): void {
    if (this.#closed || object.channel === undefined) return;
    this.#options.sendCompletion(object.channel.handle, object.handle);
  }

  /** From the router: an event of an id of this client, by the host that serves it. */
  handleCmEvent(host: DeviceHost, owner: IdObject, event: ServedCmEvent): void {
    if (this.#state.table.find(owner.handle) === owner) {
      deliverCmEvent(this.#state, host, owner, event);
    } else if (event.type === CMEventType.connectRequest) {
      // The listener went while its connect request was on the way.
      host.cm.destroy(event.id);
    }
  }

  /** From the router: an asynchronous event of an object of this client. */
  handleElementEvent(object: CqObject | QpObject | SrqObject, event: DeviceAsyncEvent): void {
    const context = object.kind === 'cq' ? object.context : object.pd.context;
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

  /** From the router: an asynchronous event of a whole device. */
  handleDeviceEvent(device: DeviceBackend, event: DeviceAsyncEvent): void {
    for (const context of this.#state.table.ofKind('context')) {
      if (context.device !== device) continue;
      this.#state.sendEvent({
        type: 'async',
        context: context.handle,
        event: { type: event.event, element: 1, qpNum: undefined, text: event.text },
      });
    }
  }

  #drain(): void {
    for (const host of this.#state.directory.hosts) host.drain();
  }

  /** Dependants before what they depend on. */
  #destroyAll(): unknown[] {
    const state = this.#state;
    const { table } = state;
    const failures: unknown[] = [];
    const destroy = <T extends AnyObject>(
      objects: T[],
      how: (state: ClientState, object: T) => void,
    ) => {
      for (const object of objects) {
        try {
          how(state, object);
        } catch (error) {
          failures.push(error);
        }
      }
    };
    destroy(table.ofKind('id'), destroyId);
    destroy(table.ofKind('qp'), destroyQP);
    destroy(table.ofKind('srq'), destroySRQ);
    destroy(table.ofKind('cq'), destroyCQ);
    destroy(table.ofKind('mw'), destroyMW);
    destroy(table.ofKind('mr'), destroyMR);
    destroy(table.ofKind('buffer'), destroyBuffer);
    destroy(table.ofKind('channel'), destroyChannel);
    destroy(table.ofKind('pd'), destroyPD);
    destroy(table.ofKind('context'), destroyContext);
    return failures;
  }
}

/** Fields of requests by which the device is found, where it is not named. */
const PLACE_FIELDS = ['context', 'pd', 'qp', 'srq', 'id'] as const;

/** The device that a request is about; undefined when it is about none, or none is decided. */
function deviceOf({ table, directory }: ClientState, request: object): string | undefined {
  if ('name' in request) {
    const { name } = request;
    return typeof name === 'string' ? name : directory.devices()[0]?.name;
  }
  for (const field of PLACE_FIELDS) {
    const handle: unknown = Reflect.get(request, field);
    const object = typeof handle === 'number' ? table.find(handle) : undefined;
    if (object === undefined) continue;
    if (object instanceof IdObject) return object.id.device;
    if (object instanceof ContextObject) return object.device.name;
    if (object instanceof PdObject) return object.context.device.name;
    if (object instanceof QpObject || object instanceof SrqObject) {
      return object.pd.context.device.name;
    }
  }
  return undefined;
}
