/**
 * An open uverbs device without a socket: commands as the bytes that rdma-core's siw provider
 * writes, answered by the daemon's own file over a real host.
 */

import { DescriptorsInFlight } from '#daemon/clients/descriptors-in-flight';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { EndedClients } from '#daemon/clients/objects/ended-clients';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost, type RnicHostOptions } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { executeOn } from '#daemon/kernel/command-boundary';
import { KernelClient } from '#daemon/kernel/kernel-client';
import type { KernelReply } from '#daemon/kernel/kernel-file';
import { KernelServer } from '#daemon/kernel/kernel-server';
import { emitReply, ShimOp, type ShimRequest } from '#daemon/kernel/shim-protocol';
import { UverbsFile } from '#daemon/kernel/uverbs/file';
import { Refusals } from '#daemon/refusals/refusals';
import { addressOf } from '#native-bridge/libc/libc';
import { SharedMemory, SYSTEM_PAGE_BYTES } from '#native-bridge/libc/shared-memory';
import { hexOf } from './hex.ts';
import { commands } from './kernel-commands.ts';
import { SELF } from './own-process.ts';
import { assertReplyReason } from './reasons.ts';

/** Where the rings of a file begin, and how far apart small ones are. */
export const RINGS = { first: 0xa_0000, step: SYSTEM_PAGE_BYTES } as const;

/** A request as the shim would send it. */
export function request(op: number, fields: Partial<ShimRequest> = {}): ShimRequest {
  const { pid } = process;
  return { op, flags: 0, pid, id: 1, argument: 0, payload: new Uint8Array(0), ...fields };
}

export class UverbsRig {
  readonly host: RnicHost;
  readonly server: KernelServer;
  readonly refusals: Refusals;
  readonly client: KernelClient;
  readonly file: UverbsFile;

  constructor(options: Partial<RnicHostOptions> = {}, quotas = DEFAULT_QUOTAS, owner = SELF) {
    this.host = new RnicHost({ system: hostSystem(), roce: ROCE_NETWORK, ...options });
    this.refusals = new Refusals(() => '2026-01-01T00:00:00.000Z');
    this.server = new KernelServer({
      directory: new DeviceDirectory(this.host, undefined),
      quotas,
      memoryTiers: ['shared', 'process_vm', 'agent'],
      note: () => undefined,
      nextClientId: () => 2,
      pair: () => {
        throw new Error('no connections');
      },
      inFlight: new DescriptorsInFlight(quotas.budget),
      ended: new EndedClients(() => '2026-01-01T00:00:00.000Z'),
      refusals: this.refusals,
    });
    this.client = new KernelClient(1, owner, quotas, { refusals: this.refusals });
    this.file = this.openFile();
    this.server.memories.hold(SELF, this.file);
  }

  /** Another open of the device. */
  openFile(number = 77): UverbsFile {
    const { client } = this;
    const token = new Uint8Array(16);
    return new UverbsFile({ token, number, client, services: this.server, deviceIndex: 0 });
  }

  /** Writes a command. The status, and for a success the response as hexadecimal text. */
  write(payload: Uint8Array, file = this.file): { status: number; response: string } {
    const { status, response } = this.reply(payload, file);
    return { status, response: hexOf(response ?? new Uint8Array(0)) };
  }

  /** Writes a command that succeeds; its response. */
  must(payload: Uint8Array, file = this.file): DataView {
    const { status, response = new Uint8Array(0) } = this.reply(payload, file);
    if (status < 0) throw new Error(`refused with ${status}`);
    return new DataView(response.buffer, response.byteOffset, response.length);
  }

  /** The handle returned by a creating command. */
  create(payload: Uint8Array, file = this.file): number {
    return this.must(payload, file).getUint32(0, true);
  }

  /** Executes a command as the server does; its reply must be one that can be sent. */
  reply(payload: Uint8Array, file = this.file): KernelReply {
    return this.execute(request(ShimOp.write, { payload }), file);
  }

  execute(asked: ShimRequest, file = this.file): KernelReply {
    const reply = this.#attempt(asked, file);
    emitReply(asked.id, reply);
    return reply;
  }

  /** Maps a ring at its offset in the device's file, as the provider does. */
  map(key: number, lengthBytes: number, file = this.file): SharedMemory {
    const reply = this.execute(request(ShimOp.rings), file);
    let mapped: SharedMemory | undefined;
    reply.attach?.((descriptor) => {
      mapped = SharedMemory.mapPart(descriptor, key, lengthBytes);
    });
    if (mapped === undefined) throw new Error('no descriptor came');
    return mapped;
  }

  /** Registers memory of this process; handle and key. */
  register(bytes: Uint8Array, pd: number, access = 7): { mr: number; key: number } {
    const start = addressOf(bytes);
    const reply = this.must(commands.regMR({ start, length: bytes.length, pd, access }));
    return { mr: reply.getUint32(0, true), key: reply.getUint32(4, true) };
  }

  async close(): Promise<void> {
    this.file.close();
    this.server.memories.release(SELF, this.file);
    await this.host.close();
  }

  #attempt(asked: ShimRequest, file: UverbsFile): KernelReply {
    const caller = { credentials: SELF, ownPid: true, isOpener: true };
    const reply = executeOn(file, asked, caller, this.refusals);
    assertReplyReason(reply);
    return reply;
  }
}
