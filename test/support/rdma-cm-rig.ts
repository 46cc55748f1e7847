/**
 * Opens of rdma_cm without a socket: commands as the bytes that librdmacm writes, answered by the
 * daemon's own files over a real host, whose connections go over TCP on the loopback interface.
 */
import { CmFile } from '#daemon/kernel/cm/file';
import { executeOn } from '#daemon/kernel/command-boundary';
import type { KernelReply, KernelServices } from '#daemon/kernel/kernel-file';
import { cmNumbers } from '#daemon/kernel/kernel-files';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import { cmCommands, commands as uverbs } from './kernel-commands.ts';
import { until } from './patience.ts';
import { assertReplyReason } from './reasons.ts';
import { request, UverbsRig } from './uverbs-rig.ts';

interface ReadEvent {
  readonly uid: bigint;
  readonly id: number;
  readonly type: number;
  readonly status: number;
  readonly data: readonly number[];
  readonly responderResources: number;
  readonly initiatorDepth: number;
  /** The whole record. */
  readonly record: DataView;
}

export class RdmaCmRig {
  readonly verbs: UverbsRig;
  readonly file: CmFile;
  readonly #files = new Map<number, CmFile>();
  readonly #numbers = cmNumbers();
  readonly #address: string;

  /** `address` is one of the device's. */
  constructor(
    verbs = new UverbsRig({ devices: [{ name: 'rnic0', addresses: ['127.0.0.1'] }] }),
    address = '127.0.0.1',
  ) {
    this.verbs = verbs;
    this.#address = address;
    this.file = this.openFile(100);
  }

  openFile(number: number, client = this.verbs.client): CmFile {
    const { server, host } = this.verbs;
    const services: KernelServices = {
      host,
      events: server.events,
      memories: server.memories,
      linger: server.linger,
      createQueue: (of) => server.createQueue(of),
      findFile: (wanted) => this.#files.get(wanted),
      findQP: (device, qpn, of) => server.findQP(device, qpn, of),
      resources: (device) => server.resources(device),
      ids: server.ids,
    };
    const token = new Uint8Array(16);
    const file = new CmFile({ token, number, client, services, deviceIndex: 0 }, this.#numbers);
    this.#files.set(number, file);
    return file;
  }

  /** Writes a command. */
  reply(payload: Uint8Array, file = this.file, isOpener = true): KernelReply {
    const caller = { credentials: file.client.credentials, ownPid: true, isOpener };
    const asked = request(ShimOp.write, { payload });
    const reply = executeOn(file, asked, caller, this.verbs.refusals);
    assertReplyReason(reply);
    return reply;
  }

  /** Writes a command; its status. */
  write(payload: Uint8Array, file = this.file): number {
    return this.reply(payload, file).status;
  }

  /** Writes a command that succeeds; its response. */
  must(payload: Uint8Array, file = this.file): DataView {
    const { status, response = new Uint8Array(0) } = this.reply(payload, file);
    if (status < 0) throw new Error(`refused with ${status}`);
    return new DataView(response.buffer, response.byteOffset, response.length);
  }

  /** A new id. */
  create(uid: bigint, file = this.file, portSpace = 0x0106): number {
    return this.must(cmCommands.createId(uid, portSpace), file).getUint32(0, true);
  }

  /** The next event, if one is queued. */
  poll(file = this.file): ReadEvent | undefined {
    const { status, response } = this.reply(cmCommands.getEvent(), file);
    if (status < 0 || response === undefined) return undefined;
    const fields = new DataView(response.buffer, response.byteOffset, response.length);
    return {
      uid: fields.getBigUint64(0, true),
      id: fields.getUint32(8, true),
      type: fields.getUint32(12, true),
      status: fields.getInt32(16, true),
      data: [...response.subarray(28, 28 + fields.getUint8(284))],
      responderResources: fields.getUint8(286),
      initiatorDepth: fields.getUint8(287),
      record: fields,
    };
  }

  /** The next event; waits for it. */
  async event(file = this.file): Promise<ReadEvent> {
    return await until('an event', () => this.poll(file));
  }

  /** A queue pair of the uverbs half, with its number and its handle. */
  createQP(): { readonly handle: number; readonly qpn: number } {
    const { verbs } = this;
    if (verbs.file.client.openFiles === 0) verbs.reply(uverbs.getContext());
    const pd = verbs.create(uverbs.allocPD());
    const cq = verbs.create(uverbs.createCQ(1n, 16));
    const reply = verbs.must(uverbs.createQP({ pd, sendCQ: cq, recvCQ: cq }));
    return { handle: reply.getUint32(0, true), qpn: reply.getUint32(4, true) };
  }

  /** An id that listens at a free port of the device's address, and the port. */
  listener(
    uid: bigint,
    backlog = 0,
    file = this.file,
    portSpace = 0x0106,
  ): { readonly id: number; readonly port: number } {
    const id = this.create(uid, file, portSpace);
    this.must(cmCommands.bind(id, this.#address, 0), file);
    this.must(cmCommands.listen(id, backlog), file);
    return { id, port: this.must(cmCommands.query(id, 0), file).getUint16(18) };
  }

  /** A port of the device's address without a listener now or recently. */
  freePort(): number {
    const id = this.create(1n);
    this.must(cmCommands.bind(id, this.#address, 0));
    const port = this.must(cmCommands.query(id, 0)).getUint16(18);
    this.must(cmCommands.destroyId(id));
    return port;
  }

  /** An id that listens at a port of the device's address, or the errno of the step that failed. */
  listenAt(uid: bigint, port: number, file = this.file): number {
    const id = this.create(uid, file);
    const bound = this.write(cmCommands.bind(id, this.#address, port), file);
    const listening = bound < 0 ? bound : this.write(cmCommands.listen(id, 0), file);
    return listening < 0 ? listening : id;
  }

  /** An id that is ready to connect to the port. */
  routed(uid: bigint, port: number, file = this.file, portSpace = 0x0106): number {
    const id = this.create(uid, file, portSpace);
    this.must(cmCommands.resolveAddr(id, this.#address, port), file);
    this.must(cmCommands.resolveRoute(id), file);
    this.poll(file);
    this.poll(file);
    return id;
  }

  async close(): Promise<void> {
    for (const file of this.#files.values()) file.close();
    await this.verbs.close();
  }
}
