/**
 * Opens memory to the peer of one connection, for one call at a time.
 *
 * Registered memory is opened by binding a memory window, posted on the send queue ahead of the message
 * that advertises it, and closed by invalidating the window: no device requests besides those posts.
 * The underlying registration gives the peer no access. Other memory, and all memory on devices without
 * windows, is registered for the call: a request to the device and its response, each time.
 */
import { randomInt } from 'node:crypto';
import { Access, MWType } from '#contract/verbs/enums';
import type { MR, MW } from '#contract/verbs/provider';
import type { ExposedRegion } from './core/requester-types.ts';
import type { RdmaChannel, WindowTarget } from './rdma-channel.ts';

export interface Exposure {
  readonly region: ExposedRegion;
  /** Ends the peer's access; resolves when it has ended. */
  close(): Promise<void>;
}

/**
 * Maximum windows per connection; calls beyond them register memory. A window takes a few bytes.
 */
const WINDOWS_MAX = 256;
/** Limit for an invalidation that waits for requests which the peer does not accept. */
const INVALIDATE_TIMEOUT_MS = 2000;

/** Access flags of a registration that windows are bound to, plus access for the device itself. */
export const WINDOWED_ACCESS: number = Access.localWrite | Access.mwBind;

export class MemoryExposer {
  readonly #channel: RdmaChannel;
  readonly #usesWindows: boolean;
  readonly #free: MW[] = [];
  #windowCount = 0;

  /** `usesWindows`: false if the device has none. */
  constructor(channel: RdmaChannel, usesWindows: boolean) {
    this.#channel = channel;
    this.#usesWindows = usesWindows;
  }

  /**
   * Opens `bytes` with `access` for the peer. If `mr` is given, `bytes` lie in it and it has
   * `WINDOWED_ACCESS`. Synchronous when a window is free. Rejects like `PD.regMR`.
   */
  expose(bytes: Uint8Array, access: number, mr?: MR): Exposure | Promise<Exposure> {
    if (mr === undefined || !this.#usesWindows) return this.#register(bytes, access);
    const start = bytes.byteOffset - mr.buffer.byteOffset;
    const target = { mr, start, lengthBytes: bytes.length, access };
    const window = this.#free.pop();
    if (window !== undefined) return this.#bind(window, bytes, target);
    if (this.#windowCount >= WINDOWS_MAX) return this.#register(bytes, access);
    return this.#bindNew(bytes, target);
  }

  async #register(bytes: Uint8Array, access: number): Promise<Exposure> {
    const local = access & Access.remoteWrite ? Access.localWrite : 0;
    const mr = await this.#channel.pd.regMR(bytes, access | local);
    const region = { handle: mr.rkey, offset: mr.address, bytes };
    return { region, close: () => mr.close() };
  }

  async #bindNew(bytes: Uint8Array, target: WindowTarget): Promise<Exposure> {
    this.#windowCount += 1;
    try {
      const window = await this.#channel.pd.allocMW(MWType.type2);
      return this.#bind(window, bytes, target);
    } catch (error) {
      this.#windowCount -= 1;
      throw error;
    }
  }

  #bind(window: MW, bytes: Uint8Array, target: WindowTarget): Exposure {
    // RPCR2-8.1-01 The device drew the index at random; each call gets another key.
    window.rkey = ((window.rkey & ~0xff) | ((window.rkey + randomInt(1, 256)) & 0xff)) >>> 0;
    this.#channel.bind(window.rkey, target);
    const offset = target.mr.address + BigInt(target.start);
    const region = { handle: window.rkey, offset, bytes };
    return { region, close: () => this.#unbind(window) };
  }

  async #unbind(window: MW): Promise<void> {
    const channel = this.#channel;
    const timer = setTimeout(
      () => channel.fail('the server does not receive messages'),
      INVALIDATE_TIMEOUT_MS,
    );
    try {
      const invalidated = new Promise<void>((resolve) => {
        channel.invalidate(window.rkey, resolve);
        channel.flush();
      });
      await channel.whileOpen(invalidated);
      this.#free.push(window);
    } catch {
      // RPCR2-4.5.4-01 Closing the connection ends the window and the peer's access.
      await channel.close();
    } finally {
      clearTimeout(timer);
    }
  }
}
