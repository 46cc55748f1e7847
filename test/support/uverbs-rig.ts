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
import { bytesOf, hexOf } from './hex.ts';
import { SELF } from './own-process.ts';
import { assertReplyReason } from './reasons.ts';

/** `value` as little-endian hexadecimal text of `bytes` bytes. */
export function le(value: number | bigint, bytes = 4): string {
  let rest = BigInt.asUintN(64, BigInt(value));
  let text = '';
  for (let i = 0; i < bytes; i++) {
    text += (rest & 0xffn).toString(16).padStart(2, '0');
    rest >>= 8n;
  }
  return text;
}

/** Where the rings of a file begin, and how far apart small ones are. */
export const RINGS = { first: 0xa_0000, step: SYSTEM_PAGE_BYTES } as const;

/** A response pointer, whose value the daemon ignores. */
export const RSP = 'f0debc9a78563412';

/** The write of a plain command: header, then `payload` (hexadecimal). */
export function plain(command: number, outBytes: number, payload: string): Uint8Array {
  const body = bytesOf(payload);
  const head = bytesOf(le(command) + le((8 + body.length) / 4, 2) + le(outBytes / 4, 2));
  return Uint8Array.from([...head, ...body]);
}

/** The commands as the provider writes them; arguments in the order of the structs. */
export const commands = {
  getContext: () => plain(0, 16, RSP),
  queryDevice: () => plain(1, 176, RSP),
  queryPort: (port = 1) => plain(2, 40, `${RSP} ${le(port, 1)} 00*7`),
  allocPD: () => plain(3, 4, RSP),
  deallocPD: (pd: number) => plain(4, 0, le(pd)),
  regMR: (mr: {
    start: bigint;
    length: number | bigint;
    hcaVa?: bigint;
    pd: number;
    access: number;
    key?: number;
  }) => {
    const { start, length, hcaVa = start, pd, access, key = 0 } = mr;
    const range = le(start, 8) + le(length, 8) + le(hcaVa, 8);
    return plain(9, 20, `${RSP} ${range} ${le(pd)} ${le(access)} ${le(key, 1)} 00*7`);
  },
  deregMR: (mr: number) => plain(13, 0, le(mr)),
  createCompChannel: () => plain(17, 4, RSP),
  createCQ: (user: bigint, cqe: number, channel = -1, vector = 0) =>
    plain(18, 24, `${RSP} ${le(user, 8)} ${le(cqe)} ${le(vector)} ${le(channel)} 00*4`),
  destroyCQ: (cq: number) => plain(20, 8, `${RSP} ${le(cq)} 00*4`),
  createQP: (qp: {
    user?: bigint;
    pd: number;
    sendCQ: number;
    recvCQ: number;
    srq?: number;
    sendWr?: number;
    recvWr?: number;
    sendSge?: number;
    recvSge?: number;
    inline?: number;
    sigAll?: boolean;
    type?: number;
  }) => {
    const { user = 0n, pd, sendCQ, recvCQ, srq, sendWr = 4, recvWr = 4 } = qp;
    const { sendSge = 1, recvSge = 1, inline = 0, sigAll = false, type = 2 } = qp;
    const queues = le(pd) + le(sendCQ) + le(recvCQ) + le(srq ?? 0);
    const sizes = [sendWr, recvWr, sendSge, recvSge, inline].map((size) => le(size)).join('');
    const bytes = le(sigAll ? 1 : 0, 1) + le(type, 1) + le(srq === undefined ? 0 : 1, 1);
    return plain(24, 64, `${RSP} ${le(user, 8)} ${queues} ${sizes} ${bytes} 00`);
  },
  queryQP: (qp: number) => plain(25, 128, `${RSP} ${le(qp)} ${le(1)}`),
  modifyQP: (
    qp: number,
    mask: number,
    to: { state?: number; access?: number; port?: number; cur?: number; destPort?: number } = {},
  ) => {
    const { state = 0, access = 0, port = 0, cur = 0, destPort = 0 } = to;
    const dest = `00*31 ${le(destPort, 1)} 00*32`;
    const numbers = `${le(qp)} ${le(mask)} 00*16 ${le(access)} 00*4`;
    const small = `${le(state, 1)} ${le(cur, 1)} 00*6 ${le(port, 1)} 00*7`;
    return plain(26, 0, `${dest} ${numbers} ${small}`);
  },
  destroyQP: (qp: number) => plain(27, 4, `${RSP} ${le(qp)} 00*4`),
  postSend: (qp: number, wrCount = 0, wqeBytes = 128) =>
    plain(28, 4, `${RSP} ${le(qp)} ${le(wrCount)} ${le(0)} ${le(wqeBytes)}`),
  createSRQ: (user: bigint, pd: number, maxWr: number, maxSge = 1, limit = 0) =>
    plain(32, 32, `${RSP} ${le(user, 8)} ${le(pd)} ${le(maxWr)} ${le(maxSge)} ${le(limit)}`),
  modifySRQ: (srq: number, mask: number, limit: number, maxWr = 0) =>
    plain(33, 0, le(srq) + le(mask) + le(maxWr) + le(limit)),
  destroySRQ: (srq: number) => plain(35, 4, `${RSP} ${le(srq)} 00*4`),
  extendedQueryDevice: (outBytes = 304) =>
    bytesOf(`01000080 ${le(1, 2)} ${le(outBytes / 8, 2)} ${RSP} ${le(0, 2)} ${le(0, 2)} 00*4 00*8`),
};

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
