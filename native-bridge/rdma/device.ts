/** An opened device: its attributes, the objects made from it, and its asynchronous events. */
import koffi, { type TypeObject } from 'koffi';
import type { DeviceAttributes, PortAttributes } from '#contract/verbs/attributes';
import { AsyncEventType } from '#contract/verbs/enums';
import { lastErrno } from '../libc/libc.ts';
import { holdRoot, releaseRoot } from '../libc/open-roots.ts';
import { makeNonBlocking, WOULD_BLOCK_ERRNO } from '../libc/watched-descriptor.ts';
import { NativeCompChannel, NativeCQ } from './completion-queue.ts';
import { guidText, type NativeDeviceInfo, withDeviceList } from './device-list.ts';
import { nodeFailure } from './device-node.ts';
import { type DeviceTraits, traitsOf } from './device-traits.ts';
import { callFailure, invalid, NativeError } from './errors.ts';
import { CONSTANTS, fieldOf } from './layouts.ts';
import { checkErrno, checkResult, type Libraries } from './libraries.ts';
import { NativeObject } from './native-object.ts';
import type { HotVerbs, OpenNativeDevice } from './open-device.ts';
import { NativePD } from './protection-domain.ts';
import { NativeSRQ } from './shared-receive-queue.ts';
import { Block, peek, StructBlock } from './struct-block.ts';

/** An asynchronous event with its element resolved. */
export interface NativeAsyncEvent {
  /** `enum ibv_event_type`. */
  readonly type: number;
  /** The object concerned; undefined for events of the port or the device. */
  readonly element: NativeObject | undefined;
  /** The port of a port event. */
  readonly port: number;
}

const MTU_BASE_BYTES = 128;
const [NODE_GUID_OFFSET] = fieldOf('ibv_device_attr', 'node_guid');
/** Events whose element is a completion queue, a queue pair or an SRQ; others name a port. */
const ELEMENT_EVENTS = new Set([0, 1, 2, 3, 4, 5, 6, 7, 15, 16]);

/** A context of a device. Closing it closes all objects made from it. */
export class NativeDevice extends NativeObject implements OpenNativeDevice {
  readonly libraries: Libraries;
  readonly info: NativeDeviceInfo;
  readonly traits: DeviceTraits;
  readonly attributes: DeviceAttributes;
  readonly hot: HotVerbs;
  /** Readable while asynchronous events are pending. */
  readonly asyncDescriptor: number;
  readonly objects = new Map<number, NativeObject>();
  readonly #event = new StructBlock('ibv_async_event');
  /** The driver's first queue (`firstQueueEntries`), otherwise unused, or 0. */
  readonly #firstQueue: number;

  private constructor(libraries: Libraries, pointer: number, info: NativeDeviceInfo) {
    super(`the device ${info.name}`, pointer, []);
    this.libraries = libraries;
    this.info = info;
    const raw = new StructBlock('ibv_device_attr');
    const { verbs } = libraries;
    checkResult('ibv_query_device', info.name, verbs.ibv_query_device(pointer, raw.address));
    this.traits = traitsOf(raw.get('vendor_id'));
    this.attributes = deviceAttributes(raw, this.traits);
    this.hot = hotVerbs(pointer);
    const { firstQueueEntries } = this.traits;
    this.#firstQueue =
      firstQueueEntries === 0 ? 0 : verbs.ibv_create_cq(pointer, firstQueueEntries, 0, 0, 0);
    this.asyncDescriptor = peek('ibv_context', 'async_fd', pointer);
    makeNonBlocking(this.asyncDescriptor);
    holdRoot(this);
  }

  /**
   * Opens the device called `name`, or the first one. Throws `NativeError`: `noDevice` (ENODEV) if it
   * does not exist, `noPermission` (EACCES) if its node may not be opened.
   */
  static open(libraries: Libraries, name?: string): NativeDevice {
    return withDeviceList(libraries, (devices) => {
      const device = devices.find(({ info }) => name === undefined || info.name === name);
      if (device === undefined) {
        const found = devices.map(({ info }) => info.name).join(', ');
        const wanted = name === undefined ? 'no device' : `no device ${name}`;
        const text = `rdma-core finds ${wanted}${found === '' ? '' : ` (available: ${found})`}`;
        throw new NativeError('noDevice', 'ENODEV', text);
      }
      const { verbs } = libraries;
      const context = verbs.ibv_open_device(device.pointer);
      if (context === 0) {
        const { name: subject, nodeName } = device.info;
        throw nodeFailure('ibv_open_device', subject, nodeName, lastErrno());
      }
      try {
        return new NativeDevice(libraries, context, device.info);
      } catch (error) {
        verbs.ibv_close_device(context);
        throw error;
      }
    });
  }

  /** Returns the state of a port. Throws EINVAL for a port that the device lacks. */
  queryPort(port = 1): PortAttributes {
    if (!Number.isInteger(port) || port < 1 || port > this.attributes.physPortCnt) {
      throw invalid(`${this.subject} has no port ${port}`);
    }
    const raw = new StructBlock('ibv_port_attr');
    const { verbs } = this.libraries;
    const result = verbs.ibv_query_port(this.pointer, port, raw.address);
    checkResult('ibv_query_port', this.subject, result);
    const gid = new Block(16);
    verbs.ibv_query_gid(this.pointer, port, 0, gid.address);
    return {
      state: raw.get('state') === CONSTANTS.IBV_PORT_ACTIVE ? 'active' : 'down',
      maxMtuBytes: MTU_BASE_BYTES << raw.get('max_mtu'),
      activeMtuBytes: MTU_BASE_BYTES << raw.get('active_mtu'),
      maxMessageBytes: raw.get('max_msg_sz'),
      gid: Buffer.from(gid.bytes.subarray(0, 16)).toString('hex'),
      linkLayer: 'Ethernet',
    };
  }

  /** Allocates a protection domain. ENOMEM. */
  allocPD(): NativePD {
    return new NativePD(this);
  }

  /** Creates a completion channel. ENOMEM. */
  createCompChannel(): NativeCompChannel {
    return new NativeCompChannel(this);
  }

  /** Creates a completion queue that reports to `channel`, if given. EINVAL, ENOMEM. */
  createCQ(cqe: number, channel?: NativeCompChannel): NativeCQ {
    return new NativeCQ(this, cqe, channel);
  }

  /** Takes an asynchronous event and acknowledges it; undefined if none is pending. */
  readAsyncEvent(): NativeAsyncEvent | undefined {
    const { verbs } = this.libraries;
    const event = this.#event;
    if (verbs.ibv_get_async_event(this.pointer, event.address) !== 0) {
      const errno = lastErrno();
      if (errno === WOULD_BLOCK_ERRNO) return undefined;
      throw callFailure('ibv_get_async_event', this.subject, errno);
    }
    const type = event.get('event_type');
    const element = event.get('element');
    const named = ELEMENT_EVENTS.has(type) ? this.objects.get(element) : undefined;
    // Acknowledge at once: destroying an object waits for that.
    verbs.ibv_ack_async_event(event.address);
    if (type === AsyncEventType.srqLimitReached && named instanceof NativeSRQ)
      named.noteLimitReached();
    return { type, element: named, port: ELEMENT_EVENTS.has(type) ? 0 : element % 256 };
  }

  /** Destroys all objects made from the device, dependants first, and closes it. */
  override dispose(): void {
    if (this.disposed) return;
    this.disposeChildren();
    super.dispose();
  }

  protected override destroy(pointer: number): void {
    const { verbs } = this.libraries;
    if (this.#firstQueue !== 0) verbs.ibv_destroy_cq(this.#firstQueue);
    checkErrno('ibv_close_device', this.subject, verbs.ibv_close_device(pointer));
  }

  protected override released(): void {
    releaseRoot(this);
  }
}

const prototypes = {
  pollCQ: koffi.proto('int NativePollCQ(uint64_t cq, int max, uint64_t completions)'),
  requestNotify: koffi.proto('int NativeRequestNotify(uint64_t cq, int solicitedOnly)'),
  post: koffi.proto('int NativePost(uint64_t queue, uint64_t list, uint64_t bad)'),
};

function hotVerbs(context: number): HotVerbs {
  const at = (field: Parameters<typeof peek<'ibv_context'>>[1], type: TypeObject) =>
    koffi.decode(BigInt(peek('ibv_context', field, context)), type);
  return {
    pollCQ: at('ops.poll_cq', prototypes.pollCQ),
    requestNotify: at('ops.req_notify_cq', prototypes.requestNotify),
    postSend: at('ops.post_send', prototypes.post),
    postRecv: at('ops.post_recv', prototypes.post),
    postSrqRecv: at('ops.post_srq_recv', prototypes.post),
  };
}

function deviceAttributes(
  raw: StructBlock<'ibv_device_attr'>,
  traits: DeviceTraits,
): DeviceAttributes {
  return {
    fwVer: raw.getText('fw_ver'),
    nodeGuid: guidText(raw.view.getBigUint64(NODE_GUID_OFFSET, true)),
    vendorId: raw.get('vendor_id'),
    vendorPartId: raw.get('vendor_part_id'),
    hwVer: raw.get('hw_ver'),
    maxMrSize: raw.get('max_mr_size'),
    maxQp: raw.getSigned('max_qp'),
    maxQpWr: raw.getSigned('max_qp_wr'),
    maxSge: raw.getSigned('max_sge'),
    maxSgeRd: raw.getSigned('max_sge_rd'),
    maxInline: traits.maxInline,
    maxCq: raw.getSigned('max_cq'),
    maxCqe: raw.getSigned('max_cqe'),
    maxMr: raw.getSigned('max_mr'),
    maxMw: raw.getSigned('max_mw'),
    maxPd: raw.getSigned('max_pd'),
    maxQpRdAtom: raw.getSigned('max_qp_rd_atom'),
    maxQpInitRdAtom: raw.getSigned('max_qp_init_rd_atom'),
    maxSrq: raw.getSigned('max_srq'),
    maxSrqWr: raw.getSigned('max_srq_wr'),
    maxSrqSge: raw.getSigned('max_srq_sge'),
    atomics: raw.getSigned('atomic_cap') !== CONSTANTS.IBV_ATOMIC_NONE,
    immediateData: false,
    physPortCnt: raw.get('phys_port_cnt'),
  };
}
