/** Completion queues and the channels that they report to. */
import { Completion, type WC } from '#contract/verbs/completion';
import { type WCOpcode, WCStatus } from '#contract/verbs/enums';
import { lastErrno } from '../libc/libc.ts';
import { makeNonBlocking, WOULD_BLOCK_ERRNO } from '../libc/watched-descriptor.ts';
import { callFailure, invalid } from './errors.ts';
import { fieldOf, sizeOf } from './layouts.ts';
import { checkResult } from './libraries.ts';
import { create, type HotVerbs, NativeDeviceObject, type OpenNativeDevice } from './open-device.ts';
import { Block, peek } from './struct-block.ts';

const POINTER_BYTES = 8;

export class NativeCompChannel extends NativeDeviceObject {
  /** Readable while events are pending; non-blocking. Only this object may close it. */
  readonly descriptor: number;
  /** Where the library writes the queue that fired, and its context. */
  readonly #fired = new Block(2 * POINTER_BYTES);

  constructor(device: OpenNativeDevice) {
    const pointer = create(device, 'ibv_create_comp_channel', device.pointer);
    super(device, 'completion channel', pointer);
    this.descriptor = peek('ibv_comp_channel', 'fd', pointer);
    makeNonBlocking(this.descriptor);
  }

  /** The next queue that fired, with its event acknowledged; undefined if none is pending. */
  readEvent(): NativeCQ | undefined {
    const { verbs } = this.device.libraries;
    const { address, view } = this.#fired;
    if (verbs.ibv_get_cq_event(this.pointer, address, address + POINTER_BYTES) !== 0) {
      const errno = lastErrno();
      if (errno === WOULD_BLOCK_ERRNO) return undefined;
      throw callFailure('ibv_get_cq_event', this.subject, errno);
    }
    const pointer = Number(view.getBigUint64(0, true));
    // Acknowledge at once: destroying a queue waits for it.
    verbs.ibv_ack_cq_events(pointer, 1);
    const cq = this.device.objects.get(pointer);
    return cq instanceof NativeCQ ? cq : undefined;
  }

  protected override destroy(pointer: number): void {
    this.call('ibv_destroy_comp_channel', pointer);
  }
}

export class NativeCQ extends NativeDeviceObject {
  readonly channel: NativeCompChannel | undefined;
  /** The kernel's handle: unique among the queues of a context. */
  readonly handle: number;
  readonly cqe: number;

  constructor(device: OpenNativeDevice, cqe: number, channel: NativeCompChannel | undefined) {
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > device.attributes.maxCqe) {
      throw invalid(`${device.subject} cannot have queues of ${cqe} entries`);
    }
    if (channel !== undefined && channel.device !== device) {
      throw invalid('the channel belongs to another context');
    }
    const channelPointer = channel?.pointer ?? 0;
    const pointer = create(device, 'ibv_create_cq', device.pointer, cqe, 0, channelPointer, 0);
    const parents = channel === undefined ? [device] : [device, channel];
    super(device, 'completion queue', pointer, parents);
    this.channel = channel;
    this.handle = peek('ibv_cq', 'handle', pointer);
    this.cqe = peek('ibv_cq', 'cqe', pointer);
  }

  /** Takes up to `max` completions without waiting. Throws EIO if the library fails. */
  poll(max: number): WC[] {
    return takeCompletions(this.device.hot, this.pointer, max);
  }

  /** Arms one event on the channel. */
  requestNotify(solicitedOnly: boolean): void {
    checkResult(
      'ibv_req_notify_cq',
      this.subject,
      this.device.hot.requestNotify(this.pointer, solicitedOnly ? 1 : 0),
    );
  }

  protected override destroy(pointer: number): void {
    this.call('ibv_destroy_cq', pointer);
  }
}

/** Maximum completions per call. */
const BATCH = 64;
const WORDS = sizeOf('ibv_wc') / 4;
const LONGS = sizeOf('ibv_wc') / 8;
const WR_ID = fieldOf('ibv_wc', 'wr_id')[0] / 8;
const STATUS = fieldOf('ibv_wc', 'status')[0] / 4;
const OPCODE = fieldOf('ibv_wc', 'opcode')[0] / 4;
const BYTE_LEN = fieldOf('ibv_wc', 'byte_len')[0] / 4;
const IMM_DATA = fieldOf('ibv_wc', 'imm_data')[0] / 4;
const QP_NUM = fieldOf('ibv_wc', 'qp_num')[0] / 4;
const WC_FLAGS = fieldOf('ibv_wc', 'wc_flags')[0] / 4;
const WITH_INV = 8;

/** Shared by all queues: a call fills it, and it is read completely before the next call. */
const block = new Block(BATCH * sizeOf('ibv_wc'));
const words = new Uint32Array(block.bytes.buffer);
const longs = new BigUint64Array(block.bytes.buffer);

/** Takes up to `max` completions of the queue at `cq`. */
function takeCompletions(hot: HotVerbs, cq: number, max: number): WC[] {
  const completions: WC[] = [];
  while (completions.length < max) {
    const wanted = Math.min(max - completions.length, BATCH);
    const count = hot.pollCQ(cq, wanted, block.address);
    if (count < 0) throw callFailure('ibv_poll_cq', 'a completion queue', count);
    for (let index = 0; index < count; index += 1) completions.push(completionAt(index));
    if (count < wanted) break;
  }
  return completions;
}

function completionAt(index: number): WC {
  const word = index * WORDS;
  const status = (words[word + STATUS] ?? 0) as WCStatus;
  const wcFlags = words[word + WC_FLAGS] ?? 0;
  const wc = new Completion();
  wc.wrId = longs[index * LONGS + WR_ID] ?? 0n;
  wc.status = status;
  wc.opcode = (words[word + OPCODE] ?? 0) as WCOpcode;
  if (status === WCStatus.success) wc.byteLen = words[word + BYTE_LEN] ?? 0;
  wc.qpNum = words[word + QP_NUM] ?? 0;
  wc.wcFlags = wcFlags;
  if ((wcFlags & WITH_INV) !== 0) wc.invalidatedRkey = words[word + IMM_DATA] ?? 0;
  return wc;
}
