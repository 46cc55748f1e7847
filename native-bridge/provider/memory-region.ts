/** Memory regions: registered buffers, pinned by the device's driver. */
import type { MemoryTier, MR, PD } from '../../verbs-api/contract/provider.ts';
import type { SGE } from '../../verbs-api/contract/work-request.ts';
import type { NativeMR } from '../rdma/memory-region.ts';
import { type DeviceScope, TeardownRank } from './device-scope.ts';
import { OwnedObject } from './owned-object.ts';

/** `MR` of a native device. How its octets stay where they are: `rdma/memory-region.ts`. */
export class RdmaMR extends OwnedObject implements MR {
  readonly pd: PD;
  readonly native: NativeMR;
  readonly address: bigint;
  readonly tier: MemoryTier = 'pinned';
  readonly #scope: DeviceScope;

  constructor(pd: PD, scope: DeviceScope, native: NativeMR) {
    super(scope.presence, 'memory region');
    this.pd = pd;
    this.native = native;
    this.address = BigInt(native.address);
    this.#scope = scope;
    scope.add(this, TeardownRank.memoryRegion);
  }

  get buffer(): Uint8Array {
    return this.native.buffer;
  }

  get length(): number {
    return this.native.buffer.length;
  }

  get lkey(): number {
    return this.native.lkey;
  }

  get rkey(): number {
    return this.native.rkey;
  }

  get tierReason(): string {
    return `registered with ${this.#scope.native.info.name}, whose driver pins the pages`;
  }

  sge(offset = 0, length: number = this.length - offset): SGE {
    if (!Number.isSafeInteger(offset) || !Number.isSafeInteger(length)) {
      throw new RangeError('offset and length are whole numbers');
    }
    if (offset < 0 || length < 0 || offset + length > this.length) {
      throw new RangeError(`octets ${offset}+${length} leave the region of ${this.length}`);
    }
    return { addr: this.native.address + offset, length, lkey: this.lkey };
  }

  protected override destroy(): void {
    this.native.dispose();
  }

  protected override released(): void {
    this.#scope.remove(this);
  }
}
