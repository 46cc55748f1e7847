/** Protection domains: where regions and queues are made. */
import type { NativeDevice } from './device.ts';
import { checkPointer, checkResult } from './libraries.ts';
import { allocatePages, NativeMR, releasePages } from './memory-region.ts';
import { NativeObject } from './native-object.ts';
import { NativeQP, type NativeQPInit } from './queue-pair.ts';
import { NativeSRQ, type NativeSRQInit } from './shared-receive-queue.ts';

/** A protection domain. */
export class NativePD extends NativeObject {
  readonly device: NativeDevice;

  constructor(device: NativeDevice) {
    const pointer = device.libraries.verbs.ibv_alloc_pd(device.pointer);
    checkPointer('ibv_alloc_pd', device.subject, pointer);
    super(`the protection domain of ${device.info.name}`, pointer, [device]);
    this.device = device;
  }

  /**
   * Registers a buffer; `iova` is the address that peers count from. Throws `NativeError`: EINVAL
   * for an empty, detached or resizable buffer, unknown access bits, remote changes without local
   * write, or addresses above 2^53; EOPNOTSUPP for what the device lacks; ENOMEM, `lockedMemory`
   * when the process may not lock that much.
   */
  regMR(buffer: Uint8Array, access: number, iova?: number): NativeMR {
    return new NativeMR(this, buffer, access, iova);
  }

  /** Allocates page-aligned memory and registers it; it goes with the last region in it. */
  allocMR(lengthBytes: number, access: number, iova?: number): NativeMR {
    const octets = allocatePages(lengthBytes);
    try {
      return new NativeMR(this, octets, access, iova);
    } catch (error) {
      releasePages(octets);
      throw error;
    }
  }

  /** Makes a shared receive queue. EINVAL, ENOMEM. */
  createSRQ(init: NativeSRQInit): NativeSRQ {
    return new NativeSRQ(this, init);
  }

  /** Makes a reliable-connected queue pair, in RESET. EINVAL, ENOMEM. */
  createQP(init: NativeQPInit): NativeQP {
    return new NativeQP(this, init);
  }

  protected override destroy(pointer: number): void {
    checkResult(
      'ibv_dealloc_pd',
      this.subject,
      this.device.libraries.verbs.ibv_dealloc_pd(pointer),
    );
  }
}
