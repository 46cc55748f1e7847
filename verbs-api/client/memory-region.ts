/** Memory regions: registrations of own buffers and of memory shared with the device. */
import type { CommandReply, MemorySource } from '#contract/protocol/commands';
import { Access } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { MemoryTier, MR, MROptions, PD } from '#contract/verbs/provider';
import { bytesWithin } from '#contract/verbs/region-range';
import { type RemoteMemory, remoteMemory } from '#contract/verbs/remote-memory';
import type { SGE } from '#contract/verbs/work-request';
import { TeardownRank } from './lifetime.ts';
import { type Domain, ScopedObject, type Session } from './session.ts';

/**
 * Memory that the device allocated for this client; freed with the last region registered in it.
 */
class SharedBuffer {
  readonly bytes: Uint8Array;
  readonly handle: number;
  readonly #session: Session;
  #regions = 0;

  constructor(session: Session, handle: number, bytes: Uint8Array) {
    this.#session = session;
    this.handle = handle;
    this.bytes = bytes;
  }

  /** Handles are valid for one provider only, even if another one is in the same process. */
  sharedBy(session: Session): boolean {
    return this.#session === session;
  }

  /** A region was registered in the buffer. */
  retain(): void {
    this.#regions += 1;
  }

  /** A region in the buffer was closed. */
  async giveBack(): Promise<void> {
    this.#regions -= 1;
    if (this.#regions === 0) await this.#session.request('freeBuffer', { buffer: this.handle });
  }
}

/** Shared buffers by the memory of a view. */
const sharedBuffers = new WeakMap<ArrayBufferLike, SharedBuffer>();

/** Properties of a region that peers see. */
interface PeerView {
  /** The address of its first byte. */
  readonly address: bigint;
  /** The rights that it was registered with. */
  readonly access: number;
}

export class ClientMR extends ScopedObject implements MR {
  readonly pd: PD;
  readonly buffer: Uint8Array;
  readonly address: bigint;
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly tier: MemoryTier;
  readonly tierReason: string;
  readonly #handle: number;
  readonly #shared: SharedBuffer | undefined;
  /** `address` as a number if that is exact: this makes posting cheaper. */
  readonly #base: number | bigint;
  readonly #peers: PeerView;

  private constructor(
    pd: Domain,
    buffer: Uint8Array,
    shared: SharedBuffer | undefined,
    reply: CommandReply<'regMR'>,
    peers: PeerView,
  ) {
    super(pd.scope, 'memory region');
    this.pd = pd;
    this.buffer = buffer;
    this.address = reply.address;
    this.length = buffer.length;
    this.lkey = reply.lkey;
    this.rkey = reply.rkey;
    this.#peers = peers;
    this.tier = reply.tier;
    this.tierReason = reply.tierReason;
    this.#handle = reply.mr;
    this.#shared = shared;
    const end = reply.address + BigInt(buffer.length);
    this.#base = end <= Number.MAX_SAFE_INTEGER ? Number(reply.address) : reply.address;
    pd.scope.add(this, TeardownRank.memoryRegion);
  }

  /** Registers `buffer`; detects memory that the device already shares. */
  static async register(
    pd: Domain,
    buffer: Uint8Array,
    access: number,
    options: MROptions,
  ): Promise<ClientMR> {
    if (buffer.length === 0) throw invalid('an empty buffer cannot be registered');
    const { session } = pd.scope;
    const found = sharedBuffers.get(buffer.buffer);
    const shared = found?.sharedBy(session) === true ? found : undefined;
    const source: MemorySource =
      shared === undefined
        ? { kind: 'process', address: session.commandChannel.addressOf(buffer) }
        : {
            kind: 'buffer',
            buffer: shared.handle,
            offset: buffer.byteOffset - shared.bytes.byteOffset,
          };
    shared?.retain();
    try {
      const reply = await session.request('regMR', {
        pd: pd.handle,
        source,
        lengthBytes: buffer.length,
        address: undefined,
        iova: options.iova === undefined ? undefined : BigInt(options.iova),
        access,
        key: options.key,
      });
      const first = options.iova ?? ((access & Access.zeroBased) === 0 ? reply.address : 0);
      const peers = { address: BigInt.asUintN(64, BigInt(first)), access };
      return new ClientMR(pd, buffer, shared, reply, peers);
    } catch (error) {
      await shared?.giveBack();
      throw error;
    }
  }

  /** Allocates memory of the device and registers all of it. */
  static async allocate(
    pd: Domain,
    lengthBytes: number,
    access: number,
    options: MROptions,
  ): Promise<ClientMR> {
    const { session } = pd.scope;
    const reply = await session.request('allocBuffer', { lengthBytes });
    let bytes: Uint8Array;
    try {
      bytes = (await session.commandChannel.map(reply.mapping)).subarray(0, lengthBytes);
    } catch (error) {
      await session.request('freeBuffer', { buffer: reply.buffer });
      throw error;
    }
    sharedBuffers.set(bytes.buffer, new SharedBuffer(session, reply.buffer, bytes));
    return await ClientMR.register(pd, bytes, access, options);
  }

  sge(offset = 0, lengthBytes?: number): SGE {
    this.assertUsable();
    const length = bytesWithin('mr.sge', this.length, offset, lengthBytes);
    const base = this.#base;
    const addr = typeof base === 'number' ? base + offset : base + BigInt(offset);
    return { addr, length, lkey: this.lkey };
  }

  export(offset = 0, lengthBytes?: number): RemoteMemory {
    this.assertUsable();
    const length = bytesWithin('mr.export', this.length, offset, lengthBytes);
    const { address, access } = this.#peers;
    return remoteMemory(address + BigInt(offset), this.rkey, length, access);
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('deregMR', { mr: this.#handle });
    await this.#shared?.giveBack();
  }
}
