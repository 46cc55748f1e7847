/** Memory regions: registered buffers, pinned by the device's driver. */
import type { MemoryTier, MR, PD } from '#contract/verbs/provider';
import { bytesWithin } from '#contract/verbs/region-range';
import { type RemoteMemory, remoteMemory } from '#contract/verbs/remote-memory';
import type { SGE } from '#contract/verbs/work-request';
import type { NativeMR } from '#native-bridge/rdma/memory-region';
import { TeardownRank } from '../client/lifetime.ts';
import { DeviceObject, type NativeDomain } from './device-scope.ts';

/** `MR` of a native device. For how its bytes stay in place, see `rdma/memory-region.ts`. */
export class RdmaMR extends DeviceObject implements MR {
  readonly pd: PD;
  readonly native: NativeMR;
  readonly address: bigint;
  readonly tier: MemoryTier = 'pinned';
  readonly #access: number;

  constructor(pd: NativeDomain, native: NativeMR, access: number) {
    super(pd.scope, 'memory region');
    this.pd = pd;
    this.native = native;
    this.address = BigInt(native.address);
    this.#access = access;
    pd.scope.add(this, TeardownRank.memoryRegion);
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
    return `registered with ${this.scope.native.info.name}, whose driver pins the pages`;
  }

  sge(offset = 0, lengthBytes?: number): SGE {
    this.assertUsable();
    const length = bytesWithin('mr.sge', this.length, offset, lengthBytes);
    return { addr: this.native.address + offset, length, lkey: this.lkey };
  }

  export(offset = 0, lengthBytes?: number): RemoteMemory {
    this.assertUsable();
    const length = bytesWithin('mr.export', this.length, offset, lengthBytes);
    return remoteMemory(this.native.iova + BigInt(offset), this.rkey, length, this.#access);
  }
}
