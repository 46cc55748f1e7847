/**
 * Lets the peer of one connection into memory, for one call at a time.
 *
 * Memory that is registered already is opened by binding a memory window, in the send queue ahead
 * of the message that tells of it, and closed by invalidating that: no message to the device but
 * those posts. The registration below it gives the peer no right at all. Other memory is registered
 * for the call, and so is all of it on devices without windows: a question to the device and its
 * answer, each time.
 */
import { randomInt } from 'node:crypto';
import { Access, MWType } from '../contract/enums.ts';
import type { MR, MW } from '../contract/provider.ts';
import type { ExposedRegion } from './core/requester-types.ts';
import type { RdmaChannel, WindowTarget } from './rdma-channel.ts';

/** Memory that the peer is let into. */
export interface Exposure {
  readonly region: ExposedRegion;
  /** Ends the peer's access. Resolves once it has none. */
  close(): Promise<void>;
}

/** Windows of one connection at most; calls beyond them register. A window is a few octets. */
const WINDOWS_MAX = 256;
/** How long an invalidation may wait behind requests that the peer does not take. */
const INVALIDATE_TIMEOUT_MS = 2000;

/** The access that a registration needs for windows on it, and for the device itself. */
export const WINDOWED_ACCESS: number = Access.localWrite | Access.mwBind;

/** See the module's comment. */
export class MemoryExposer {
  readonly #channel: RdmaChannel;
  readonly #usesWindows: boolean;
  readonly #free: MW[] = [];
  #windowCount = 0;

  /** `usesWindows` is false where the device has none. */
  constructor(channel: RdmaChannel, usesWindows: boolean) {
    this.#channel = channel;
    this.#usesWindows = usesWindows;
  }

  /**
   * Opens `octets`, which lie in `mr` if that is given, with `WINDOWED_ACCESS`. `access` is what
   * the peer may do. At once where a window is free. Rejects as `PD.regMR` does.
   */
  expose(octets: Uint8Array, access: number, mr?: MR): Exposure | Promise<Exposure> {
    if (mr === undefined || !this.#usesWindows) return this.#register(octets, access);
    const start = octets.byteOffset - mr.buffer.byteOffset;
    const target = { mr, start, lengthBytes: octets.length, access };
    const window = this.#free.pop();
    if (window !== undefined) return this.#bind(window, octets, target);
    if (this.#windowCount >= WINDOWS_MAX) return this.#register(octets, access);
    return this.#bindNew(octets, target);
  }

  async #register(octets: Uint8Array, access: number): Promise<Exposure> {
    const local = access & Access.remoteWrite ? Access.localWrite : 0;
    const mr = await this.#channel.pd.regMR(octets, access | local);
    const region = { handle: mr.rkey, offset: mr.address, octets };
    return { region, close: () => mr.close() };
  }

  async #bindNew(octets: Uint8Array, target: WindowTarget): Promise<Exposure> {
    this.#windowCount += 1;
    try {
      const window = await this.#channel.pd.allocMW(MWType.type2);
      return this.#bind(window, octets, target);
    } catch (error) {
      this.#windowCount -= 1;
      throw error;
    }
  }

  #bind(window: MW, octets: Uint8Array, target: WindowTarget): Exposure {
    // RPCR2-8.1-01 The device drew the index at random; the key is another one for each call.
    window.rkey = ((window.rkey & ~0xff) | ((window.rkey + randomInt(1, 256)) & 0xff)) >>> 0;
    this.#channel.bind(window.rkey, target);
    const offset = target.mr.address + BigInt(target.start);
    const region = { handle: window.rkey, offset, octets };
    return { region, close: () => this.#unbind(window) };
  }

  async #unbind(window: MW): Promise<void> {
    const channel = this.#channel;
    const timer = setTimeout(
      () => channel.fail('the server does not take what is sent'),
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
      // RPCR2-4.5.4-01 The window ends with the connection, and the peer's access with it.
      await channel.close();
    } finally {
      clearTimeout(timer);
    }
  }
}
