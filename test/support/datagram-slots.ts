/** Datagrams of a batch as the kernel reads and fills them: struct mmsghdr of sendmmsg(2), recvmmsg(2). */
import { gidAddress } from '#daemon/host/host-addresses';
import type { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { addressOf } from '#native-bridge/libc/libc';

/** A datagram in flight. */
export interface Datagram {
  readonly from: string;
  readonly fromPort: number;
  readonly to: string;
  readonly bytes: Uint8Array;
  readonly trafficClass: number;
  readonly hopLimit: number;
}

const HEADER_BYTES = 64;
const At = {
  name: 0,
  vector: 16,
  vectors: 24,
  control: 32,
  controlBytes: 40,
  flags: 48,
  received: 56,
} as const;
const VECTOR_BYTES = 16;
const AF_INET = 2;
const MSG_TRUNC = 0x20;
const [SOL_IP, IP_TOS, IP_TTL] = [0, 1, 2];
const [SOL_IPV6, IPV6_HOPLIMIT, IPV6_TCLASS] = [41, 52, 67];
const [SOL_UDP, UDP_SEGMENT, UDP_GRO] = [17, 103, 104];
const [CONTROL_BYTES, CONTROL_USED_BYTES] = [24, 20];

/** Memory of a batch, with pointers as offsets. */
class BatchMemory {
  readonly bytes: Uint8Array;
  readonly fields: DataView;
  readonly #base: number;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.fields = new DataView(bytes.buffer, bytes.byteOffset);
    this.#base = Number(addressOf(bytes));
  }

  follow(at: number): number {
    const { fields } = this;
    return fields.getUint32(at + 4, true) * 2 ** 32 + fields.getUint32(at, true) - this.#base;
  }
}

const MEMORIES = new WeakMap<Uint8Array, BatchMemory>();

function memoryOf(bytes: Uint8Array): BatchMemory {
  let memory = MEMORIES.get(bytes);
  if (memory === undefined) {
    memory = new BatchMemory(bytes);
    MEMORIES.set(bytes, memory);
  }
  return memory;
}

/**
 * Copies of the datagrams from slot `first` on, by message, as sent from this address and port. Throws an Error
 * for a message that Linux would refuse.
 */
export function* sentMessages(
  batch: OutgoingBatch,
  first: number,
  from: string,
  fromPort: number,
): Generator<readonly Datagram[]> {
  const memory = memoryOf(batch.bytes);
  for (let header = 0, slot = 0; slot < batch.count; header += HEADER_BYTES) {
    const count = memory.fields.getUint32(header + At.vectors, true);
    if (slot >= first) yield messageAt(memory, header, from, fromPort);
    slot += count;
  }
}

function messageAt(
  memory: BatchMemory,
  header: number,
  from: string,
  fromPort: number,
): readonly Datagram[] {
  const { bytes, fields } = memory;
  const name = memory.follow(header + At.name);
  const to =
    bytes[name] === AF_INET
      ? bytes.subarray(name + 4, name + 8).join('.')
      : gidAddress(bytes.subarray(name + 8, name + 24));
  let [trafficClass, hopLimit, segmentBytes] = [0, 0, 0];
  const start = memory.follow(header + At.control);
  const end = start + fields.getUint32(header + At.controlBytes, true);
  for (let at = start; at < end; at += CONTROL_BYTES) {
    const level = fields.getUint32(at + 8, true);
    const type = fields.getUint32(at + 12, true);
    const value = fields.getUint16(at + 16, true);
    if (level === SOL_UDP && type === UDP_SEGMENT) segmentBytes = value;
    else if (type === IP_TOS || type === IPV6_TCLASS) trafficClass = value & 0xff;
    else hopLimit = value & 0xff;
  }
  const count = fields.getUint32(header + At.vectors, true);
  const vector = memory.follow(header + At.vector);
  return Array.from({ length: count }, (_, index) => {
    const at = memory.follow(vector + index * VECTOR_BYTES);
    const length = fields.getUint32(vector + index * VECTOR_BYTES + 8, true);
    const whole = length === segmentBytes || (index === count - 1 && length < segmentBytes);
    if (count > 1 && !whole) throw new Error(`segment of ${length} bytes, not ${segmentBytes}`);
    const copy = bytes.slice(at, at + length);
    return { from, fromPort, to, bytes: copy, trafficClass, hopLimit };
  });
}

const NAMES = new Map<string, Uint8Array>();

function nameOf({ from, fromPort }: Datagram): Uint8Array {
  const key = `${from} ${fromPort}`;
  let name = NAMES.get(key);
  if (name === undefined) {
    name = socketAddress(from, fromPort);
    NAMES.set(key, name);
  }
  return name;
}

/** Fills a slot with a message of one or more datagrams; all have the length of the first, but the last. */
export function fillSlot(
  batch: IncomingBatch,
  slot: number,
  datagrams: readonly [Datagram, ...Datagram[]],
): void {
  const memory = memoryOf(batch.bytes);
  const { bytes, fields } = memory;
  const header = slot * HEADER_BYTES;
  const [first] = datagrams;
  const name = nameOf(first);
  bytes.set(name, memory.follow(header + At.name));
  const vector = memory.follow(header + At.vector);
  const room = fields.getUint32(vector + 8, true);
  const message = datagrams.length === 1 ? first.bytes : joined(datagrams);
  const length = Math.min(room, message.length);
  bytes.set(message.subarray(0, length), memory.follow(vector));
  fields.setUint32(header + At.received, length, true);
  fields.setUint32(header + At.flags, length < message.length ? MSG_TRUNC : 0, true);
  const four = name[0] === AF_INET;
  const own = four ? SOL_IP : SOL_IPV6;
  const start = memory.follow(header + At.control);
  let at = start;
  const control = (level: number, type: number, value: number): void => {
    fields.setUint32(at, CONTROL_USED_BYTES, true);
    fields.setUint32(at + 4, 0, true);
    fields.setUint32(at + 8, level, true);
    fields.setUint32(at + 12, type, true);
    fields.setUint32(at + 16, value, true);
    at += CONTROL_BYTES;
  };
  if (datagrams.length > 1) control(SOL_UDP, UDP_GRO, first.bytes.length);
  control(own, four ? IP_TOS : IPV6_TCLASS, first.trafficClass);
  control(own, four ? IP_TTL : IPV6_HOPLIMIT, first.hopLimit);
  fields.setUint32(header + At.controlBytes, at - start, true);
}

function joined(datagrams: readonly Datagram[]): Uint8Array {
  const message = new Uint8Array(datagrams.reduce((sum, { bytes }) => sum + bytes.length, 0));
  let at = 0;
  for (const { bytes } of datagrams) {
    message.set(bytes, at);
    at += bytes.length;
  }
  return message;
}
