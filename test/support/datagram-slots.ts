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
const At = { name: 0, vector: 16, control: 32, controlBytes: 40, flags: 48, received: 56 } as const;
const AF_INET = 2;
const MSG_TRUNC = 0x20;
const [SOL_IP, IP_TOS, IP_TTL] = [0, 1, 2];
const [SOL_IPV6, IPV6_HOPLIMIT, IPV6_TCLASS] = [41, 52, 67];
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

/** A copy of the datagram in a slot, as sent from this address and port. */
export function sentDatagram(
  batch: OutgoingBatch,
  slot: number,
  from: string,
  fromPort: number,
): Datagram {
  const memory = memoryOf(batch.bytes);
  const { bytes, fields } = memory;
  const header = slot * HEADER_BYTES;
  const name = memory.follow(header + At.name);
  const to =
    bytes[name] === AF_INET
      ? bytes.subarray(name + 4, name + 8).join('.')
      : gidAddress(bytes.subarray(name + 8, name + 24));
  let trafficClass = 0;
  let hopLimit = 0;
  const start = memory.follow(header + At.control);
  const end = start + fields.getUint32(header + At.controlBytes, true);
  for (let at = start; at < end; at += CONTROL_BYTES) {
    const type = fields.getUint32(at + 12, true);
    const value = bytes[at + 16] ?? 0;
    if (type === IP_TOS || type === IPV6_TCLASS) trafficClass = value;
    else hopLimit = value;
  }
  const data = batch.slotAt(slot);
  const copy = bytes.slice(data, data + batch.lengthOf(slot));
  return { from, fromPort, to, bytes: copy, trafficClass, hopLimit };
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

/** Fills a slot with a datagram. */
export function fillSlot(batch: IncomingBatch, slot: number, datagram: Datagram): void {
  const memory = memoryOf(batch.bytes);
  const { bytes, fields } = memory;
  const header = slot * HEADER_BYTES;
  const name = nameOf(datagram);
  bytes.set(name, memory.follow(header + At.name));
  const vector = memory.follow(header + At.vector);
  const room = fields.getUint32(vector + 8, true);
  const length = Math.min(room, datagram.bytes.length);
  bytes.set(datagram.bytes.subarray(0, length), memory.follow(vector));
  fields.setUint32(header + At.received, length, true);
  fields.setUint32(header + At.flags, length < datagram.bytes.length ? MSG_TRUNC : 0, true);
  const four = name[0] === AF_INET;
  const level = four ? SOL_IP : SOL_IPV6;
  const at = memory.follow(header + At.control);
  const control = (start: number, type: number, value: number): void => {
    fields.setUint32(start, CONTROL_USED_BYTES, true);
    fields.setUint32(start + 4, 0, true);
    fields.setUint32(start + 8, level, true);
    fields.setUint32(start + 12, type, true);
    fields.setUint32(start + 16, value, true);
  };
  control(at, four ? IP_TOS : IPV6_TCLASS, datagram.trafficClass);
  control(at + CONTROL_BYTES, four ? IP_TTL : IPV6_HOPLIMIT, datagram.hopLimit);
  fields.setUint32(header + At.controlBytes, 2 * CONTROL_BYTES, true);
}
