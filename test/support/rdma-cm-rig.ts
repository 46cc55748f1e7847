/**
 * Opens of rdma_cm without a socket: commands as the bytes that librdmacm writes, answered by the
 * daemon's own files over a real host, whose connections go over TCP on the loopback interface.
 */
import { CmFile } from '#daemon/kernel/cm/file';
import { executeOn } from '#daemon/kernel/command-boundary';
import type { KernelReply, KernelServices } from '#daemon/kernel/kernel-file';
import { cmNumbers } from '#daemon/kernel/kernel-files';
import { ShimOp } from '#daemon/kernel/shim-protocol';
import { bytesOf } from './hex.ts';
import { until } from './patience.ts';
import { assertReplyReason } from './reasons.ts';
import { le, RSP, request, UverbsRig, commands as uverbs } from './uverbs-rig.ts';

/** A `sockaddr_in`, as hexadecimal text of `size` bytes. */
function ipv4(address: string, port: number, size: number): string {
  const hostPort = port.toString(16).padStart(4, '0');
  const bytes = address.split('.').map((part) => le(Number(part), 1));
  return `0200 ${hostPort} ${bytes.join('')} 00*${size - 8}`;
}

/** A `rdma_ucm_conn_param`. */
export function connParam(given: {
  qpn: number;
  data?: readonly number[];
  ird?: number;
  ord?: number;
  retry?: number;
  rnr?: number;
  flow?: boolean;
  valid?: boolean;
}): string {
  const { qpn, data = [], ird = 1, ord = 1, retry = 7, rnr = 7, flow = false } = given;
  const bytes = data.map((byte) => le(byte, 1)).join('');
  const depths = `${le(ird, 1)} ${le(ord, 1)}`;
  const filler = data.length === 256 ? '' : `00*${256 - data.length}`;
  const retries = `${le(flow ? 1 : 0, 1)} ${le(retry, 1)} ${le(rnr, 1)}`;
  const tail = `${le(data.length, 1)} 00 ${depths} ${retries} ${le(given.valid === false ? 0 : 1, 1)}`;
  return `${le(qpn)} 00*4 ${bytes} ${filler} ${tail}`;
}

/** The write of a command: header, then `payload` (hexadecimal). */
export function cmWrite(command: number, outBytes: number, payload: string): Uint8Array {
  const body = bytesOf(payload);
  return Uint8Array.from([...bytesOf(le(command) + le(body.length, 2) + le(outBytes, 2)), ...body]);
}

/** The commands as librdmacm writes them. */
export const cmCommands = {
  createId: (uid: bigint, portSpace = 0x0106, qpType = 2) =>
    cmWrite(0, 4, `${le(uid, 8)} ${RSP} ${le(portSpace, 2)} ${le(qpType, 1)} 00*5`),
  destroyId: (id: number) => cmWrite(1, 4, `${RSP} ${le(id)} 00*4`),
  bindIp: (id: number, address: string, port: number) =>
    cmWrite(2, 0, `${RSP} ${ipv4(address, port, 28)} ${le(id)}`),
  resolveIp: (id: number, address: string, port: number) =>
    cmWrite(3, 0, `00*28 ${ipv4(address, port, 28)} ${le(id)} ${le(2000)}`),
  resolveRoute: (id: number, timeoutMs = 2000) => cmWrite(4, 0, le(id) + le(timeoutMs)),
  queryRoute: (id: number) => cmWrite(5, 208, `${RSP} ${le(id)} 00*4`),
  connect: (id: number, parameters: string) => cmWrite(6, 0, `${parameters} ${le(id)} 00*4 00*8`),
  listen: (id: number, backlog = 0) => cmWrite(7, 0, le(id) + le(backlog)),
  accept: (id: number, uid: bigint, parameters: string) =>
    cmWrite(8, 0, `${le(uid, 8)} ${parameters} ${le(id)} 00*4 00*8`),
  reject: (id: number, data: readonly number[], reason = 0) => {
    const bytes = data.map((byte) => le(byte, 1)).join('');
    return cmWrite(
      9,
      0,
      `${le(id)} ${le(data.length, 1)} ${le(reason, 1)} 00*2 ${bytes} 00*${256 - data.length}`,
    );
  },
  disconnect: (id: number) => cmWrite(10, 0, le(id)),
  initQpAttr: (id: number, state: number) => cmWrite(11, 144, `${RSP} ${le(id)} ${le(state)}`),
  getEvent: (outBytes = 336) => cmWrite(12, outBytes, RSP),
  setOption: (id: number, level: number, name: number, value: string) =>
    cmWrite(
      14,
      0,
      `${RSP} ${le(id)} ${le(level)} ${le(name)} ${le(bytesOf(value).length)} ${value}`,
    ),
  notify: (id: number, event = 4) => cmWrite(15, 0, le(id) + le(event)),
  leaveMulticast: (membership: number) => cmWrite(17, 4, `${RSP} ${le(membership)} 00*4`),
  joinMulticast: (id: number, uid: bigint, group: string, flags = 0) =>
    cmWrite(
      22,
      4,
      `${RSP} ${le(uid, 8)} ${le(id)} ${le(16, 2)} ${le(flags, 2)} ${ipv4(group, 0, 128)}`,
    ),
  migrateId: (id: number, file: number) => cmWrite(18, 4, `${RSP} ${le(id)} ${le(file)}`),
  query: (id: number, option: number, outBytes = 280) =>
    cmWrite(19, outBytes, `${RSP} ${le(id)} ${le(option)}`),
  bind: (id: number, address: string, port: number) =>
    cmWrite(20, 0, `${le(id)} ${le(16, 2)} 00*2 ${ipv4(address, port, 128)}`),
  /** To `::`, which librdmacm gives with all 28 bytes of a struct sockaddr_in6. */
  bindAnyV6: (id: number, port: number) =>
    cmWrite(20, 0, `${le(id)} ${le(28, 2)} 00*2 0a00 ${port.toString(16).padStart(4, '0')} 00*124`),
  resolveIbService: (id: number, name = 'service') => {
    const text = [...name].map((letter) => le(letter.charCodeAt(0), 1)).join('');
    return cmWrite(23, 0, `${le(id)} 00*4 00*8 ${text} 00*${64 - name.length} ${le(2)} 00*4`);
  },
  writeEvent: (id: number, event: number, argument = 0n, status = 0) =>
    cmWrite(24, 0, `${le(id)} 00*4 ${le(event)} ${le(status)} ${le(argument, 8)} 00*296`),
  resolveAddr: (id: number, address: string, port: number) =>
    cmWrite(
      21,
      0,
      `${le(id)} ${le(2000)} 00*2 ${le(16, 2)} 00*4 00*128 ${ipv4(address, port, 128)}`,
    ),
  /** From a given source address and port. */
  resolveAddrFrom: (id: number, source: readonly [string, number], address: string, port: number) =>
    cmWrite(
      21,
      0,
      `${le(id)} ${le(2000)} ${le(16, 2)} ${le(16, 2)} 00*4 ${ipv4(...source, 128)} ${ipv4(address, port, 128)}`,
    ),
  resolveIpFrom: (id: number, source: readonly [string, number], address: string, port: number) =>
    cmWrite(3, 0, `${ipv4(...source, 28)} ${ipv4(address, port, 28)} ${le(id)} ${le(2000)}`),
};

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
