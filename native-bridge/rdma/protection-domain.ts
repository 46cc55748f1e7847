/** Protection domains, which create regions and queues. */
import { allocatePages, NativeMR, releasePages } from './memory-region.ts';
import { create, NativeDeviceObject, type OpenNativeDevice } from './open-device.ts';
import { NativeQP, type NativeQPInit } from './queue-pair.ts';
import { NativeSRQ, type NativeSRQInit } from './shared-receive-queue.ts';

export class NativePD extends NativeDeviceObject {
  constructor(device: OpenNativeDevice) {
    super(device, 'protection domain', create(device, 'ibv_alloc_pd', device.pointer));
  }

  /**
   * Registers a buffer; `iova` is its first address for peers. Throws `NativeError`: EINVAL for an
   * empty, detached or resizable buffer, unknown access bits, remote write or atomic access without local
   * write, or addresses beyond 64 bits; EOPNOTSUPP for a feature that the device lacks; ENOMEM,
   * `lockedMemory` if the process may not lock that much.
   */
  regMR(buffer: Uint8Array, access: number, iova?: bigint): NativeMR {
    return new NativeMR(this, buffer, access, iova);
  }

  /** Allocates page-aligned memory and registers it; it is freed with the last region in it. */
  allocMR(lengthBytes: number, access: number, iova?: bigint): NativeMR {
    const bytes = allocatePages(lengthBytes);
    try {
      return new NativeMR(this, bytes, access, iova);
    } catch (error) {
      releasePages(bytes);
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
    this.call('ibv_dealloc_pd', pointer);
  }
}
