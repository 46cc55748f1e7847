/** Completion queues and the channels that they report to. */
import type { WC } from '#contract/verbs/completion';
import { lastErrno } from '../libc/libc.ts';
import { makeNonBlocking, WOULD_BLOCK_ERRNO } from '../libc/watched-descriptor.ts';
import { CompletionBatch } from './completion-batch.ts';
import { callFailure, NativeError } from './errors.ts';
import { checkPointer, checkResult } from './libraries.ts';
import { NativeObject } from './native-object.ts';
import type { OpenNativeDevice } from './open-device.ts';
import { Block, peek } from './struct-block.ts';

const POINTER_BYTES = 8;

export class NativeCompChannel extends NativeObject {
  readonly device: OpenNativeDevice;
  /** Readable while events are pending; non-blocking. Only this object may close it. */
  readonly descriptor: number;
  /** Where the library writes the queue that fired, and its context. */
  readonly #fired = new Block(2 * POINTER_BYTES);

  constructor(device: OpenNativeDevice) {
    const pointer = device.libraries.verbs.ibv_create_comp_channel(device.pointer);
    checkPointer('ibv_create_comp_channel', device.subject, pointer);
    super(`the completion channel of ${device.info.name}`, pointer, [device]);
    this.device = device;
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
    checkResult(
      'ibv_destroy_comp_channel',
      this.subject,
      this.device.libraries.verbs.ibv_destroy_comp_channel(pointer),
    );
  }
}

export class NativeCQ extends NativeObject {
  readonly device: OpenNativeDevice;
  readonly channel: NativeCompChannel | undefined;
  /** The kernel's handle: unique among the queues of a context. */
  readonly handle: number;
  readonly cqe: number;
  readonly #address: number;

  constructor(device: OpenNativeDevice, cqe: number, channel: NativeCompChannel | undefined) {
    if (!Number.isInteger(cqe) || cqe < 1 || cqe > device.attributes.maxCqe) {
      throw new NativeError(
        'refused',
        'EINVAL',
        `${device.subject} cannot have queues of ${cqe} entries`,
      );
    }
    if (channel !== undefined && channel.device !== device) {
      throw new NativeError('refused', 'EINVAL', 'the channel belongs to another context');
    }
    const pointer = device.libraries.verbs.ibv_create_cq(
      device.pointer,
      cqe,
      0,
      channel?.pointer ?? 0,
      0,
    );
    checkPointer('ibv_create_cq', device.subject, pointer);
    super(
      `the completion queue of ${device.info.name}`,
      pointer,
      channel === undefined ? [device] : [device, channel],
    );
    this.device = device;
    this.channel = channel;
    this.handle = peek('ibv_cq', 'handle', pointer);
    this.cqe = peek('ibv_cq', 'cqe', pointer);
    this.#address = pointer;
    device.objects.set(pointer, this);
  }

  /** Takes up to `max` completions without waiting. Throws EIO if the library fails. */
  poll(max: number): WC[] {
    return CompletionBatch.take(this.device.hot, this.pointer, max);
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
    checkResult(
      'ibv_destroy_cq',
      this.subject,
      this.device.libraries.verbs.ibv_destroy_cq(pointer),
    );
  }

  protected override released(): void {
    this.device.objects.delete(this.#address);
  }
}
