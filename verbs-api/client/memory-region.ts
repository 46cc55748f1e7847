/** Memory regions: registrations of own buffers and of memory shared with the device. */
import type { CommandReply, MemorySource } from '../contract/commands.ts';
import { VerbsError } from '../contract/errors.ts';
import type { MemoryTier, MR, MROptions, PD } from '../contract/provider.ts';
import type { SGE } from '../contract/work-request.ts';
import { ClientObject, type DeviceScope, type Session, TeardownRank } from './session.ts';

/** Memory that the device made for this client; freed with the last region registered in it. */
export class SharedBuffer {
  readonly octets: Uint8Array;
  readonly handle: number;
  readonly #session: Session;
  #regions = 0;

  constructor(session: Session, handle: number, octets: Uint8Array) {
    this.#session = session;
    this.handle = handle;
    this.octets = octets;
  }

  /** Handles mean nothing to another provider, even when it lives in the same process. */
  sharedBy(session: Session): boolean {
    return this.#session === session;
  }

  /** A region was registered in the buffer. */
  retain(): void {
    this.#regions += 1;
  }

  /** A region in the buffer is gone. */
  async giveBack(): Promise<void> {
    this.#regions -= 1;
    if (this.#regions === 0) await this.#session.request('freeBuffer', { buffer: this.handle });
  }
}

/** Shared buffers, found again by the memory of a view. */
const sharedBuffers = new WeakMap<ArrayBufferLike, SharedBuffer>();

/** `MR` over a link. */
export class ClientMR extends ClientObject implements MR {
  readonly pd: PD;
  readonly buffer: Uint8Array;
  readonly address: bigint;
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly tier: MemoryTier;
  readonly tierReason: string;
  readonly #handle: number;
  readonly #scope: DeviceScope;
  readonly #shared: SharedBuffer | undefined;
  /** `address` as a number where that is exact: posting is cheaper with it. */
  readonly #base: number | bigint;

  private constructor(
    pd: PD,
    scope: DeviceScope,
    buffer: Uint8Array,
    shared: SharedBuffer | undefined,
    reply: CommandReply<'regMR'>,
  ) {
    super(scope.session, 'memory region');
    this.pd = pd;
    this.buffer = buffer;
    this.address = reply.address;
    this.length = buffer.length;
    this.lkey = reply.lkey;
    this.rkey = reply.rkey;
    this.tier = reply.tier;
    this.tierReason = reply.tierReason;
    this.#handle = reply.mr;
    this.#scope = scope;
    this.#shared = shared;
    const end = reply.address + BigInt(buffer.length);
    this.#base = end <= Number.MAX_SAFE_INTEGER ? Number(reply.address) : reply.address;
    scope.add(this, TeardownRank.memoryRegion);
  }

  /** Registers `buffer`; memory that the device shares already is recognised. */
  static async register(
    pd: PD,
    scope: DeviceScope,
    pdHandle: number,
    buffer: Uint8Array,
    access: number,
    options: MROptions,
  ): Promise<ClientMR> {
    if (buffer.length === 0) throw new VerbsError('EINVAL', 'an empty buffer cannot be registered');
    const { session } = scope;
    const found = sharedBuffers.get(buffer.buffer);
    const shared = found?.sharedBy(session) === true ? found : undefined;
    const source: MemorySource =
      shared === undefined
        ? { kind: 'process', address: session.link.addressOf(buffer) }
        : {
            kind: 'buffer',
            buffer: shared.handle,
            offset: buffer.byteOffset - shared.octets.byteOffset,
          };
    shared?.retain();
    try {
      const reply = await session.request('regMR', {
        pd: pdHandle,
        source,
        lengthBytes: buffer.length,
        address: undefined,
        iova: options.iova === undefined ? undefined : BigInt(options.iova),
        access,
        key: options.key,
      });
      return new ClientMR(pd, scope, buffer, shared, reply);
    } catch (error) {
      await shared?.giveBack();
      throw error;
    }
  }

  /** Has the device make memory and registers all of it. */
  static async allocate(
    pd: PD,
    scope: DeviceScope,
    pdHandle: number,
    lengthBytes: number,
    access: number,
    options: MROptions,
  ): Promise<ClientMR> {
    const { session } = scope;
    if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
      throw new VerbsError('EINVAL', 'the length is a whole number of at least 1');
    }
    const reply = await session.request('allocBuffer', { lengthBytes });
    let octets: Uint8Array;
    try {
      octets = (await session.link.map(reply.mapping)).subarray(0, lengthBytes);
    } catch (error) {
      await session.request('freeBuffer', { buffer: reply.buffer });
      throw error;
    }
    sharedBuffers.set(octets.buffer, new SharedBuffer(session, reply.buffer, octets));
    return await ClientMR.register(pd, scope, pdHandle, octets, access, options);
  }

  sge(offset = 0, length: number = this.length - offset): SGE {
    if (!Number.isSafeInteger(offset) || !Number.isSafeInteger(length)) {
      throw new RangeError('offset and length are whole numbers');
    }
    if (offset < 0 || length < 0 || offset + length > this.length) {
      throw new RangeError(`octets ${offset}+${length} leave the region of ${this.length}`);
    }
    const base = this.#base;
    const addr = typeof base === 'number' ? base + offset : base + BigInt(offset);
    return { addr, length, lkey: this.lkey };
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('deregMR', { mr: this.#handle });
    await this.#shared?.giveBack();
  }

  protected override release(): void {
    this.#scope.remove(this);
  }
}
