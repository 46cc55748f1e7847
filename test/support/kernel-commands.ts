/**
 * Commands of the emulated kernel as the bytes that rdma-core writes: uverbs as its siw provider does, and
 * rdma_cm as librdmacm does.
 */
import { bytesOf } from './hex.ts';

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
