/**
 * Opcodes of the base transport header: 3 bits of service, 5 bits of operation (IBTA 9.2.1, table 38), for
 * the services RC, UC and UD. All others are rejected.
 *
 * One table defines which extended headers follow the base header, and whether a payload follows them:
 * `opcodeTraits`, `headerBytes`. `serviceOf` and `operationOf` split an opcode, `opcodeName` names it.
 */

/** Service of an opcode, in its upper three bits. */
export const Service = { rc: 0x00, uc: 0x20, ud: 0x60 } as const;
export type Service = (typeof Service)[keyof typeof Service];

const SERVICE_MASK = 0xe0;

/** Operations, without the service's bits. UC has those up to `writeOnlyImmediate`, UD the two "only" Sends. */
export const PacketOperation = {
  sendFirst: 0x00,
  sendMiddle: 0x01,
  sendLast: 0x02,
  sendLastImmediate: 0x03,
  sendOnly: 0x04,
  sendOnlyImmediate: 0x05,
  writeFirst: 0x06,
  writeMiddle: 0x07,
  writeLast: 0x08,
  writeLastImmediate: 0x09,
  writeOnly: 0x0a,
  writeOnlyImmediate: 0x0b,
  readRequest: 0x0c,
  readResponseFirst: 0x0d,
  readResponseMiddle: 0x0e,
  readResponseLast: 0x0f,
  readResponseOnly: 0x10,
  acknowledge: 0x11,
  atomicAcknowledge: 0x12,
  compareSwap: 0x13,
  fetchAdd: 0x14,
  sendLastInvalidate: 0x16,
  sendOnlyInvalidate: 0x17,
} as const;
export type PacketOperation = (typeof PacketOperation)[keyof typeof PacketOperation];

export const Trait = {
  /** The packet starts a message: "first" or "only". */
  starts: 1 << 0,
  /** The packet ends a message: "last" or "only". */
  ends: 1 << 1,
  /** A packet of a requester; all others are responses. */
  request: 1 << 2,
  /** May carry payload. */
  payload: 1 << 3,
  reth: 1 << 4,
  aeth: 1 << 5,
  atomicEth: 1 << 6,
  atomicAckEth: 1 << 7,
  immediate: 1 << 8,
  ieth: 1 << 9,
  deth: 1 << 10,
  /** Packets of a Send, of a Write, of a Read Response. */
  send: 1 << 11,
  write: 1 << 12,
  readResponse: 1 << 13,
} as const;

const ONLY = Trait.starts | Trait.ends;
const SEND = Trait.request | Trait.payload | Trait.send;
const WRITE = Trait.request | Trait.payload | Trait.write;
const RESPONSE = Trait.payload | Trait.readResponse;

/** Name of an operation on the wire, and its traits, without those of a service. */
const OPERATIONS: readonly (readonly [PacketOperation, string, number])[] = [
  [PacketOperation.sendFirst, 'SEND First', SEND | Trait.starts],
  [PacketOperation.sendMiddle, 'SEND Middle', SEND],
  [PacketOperation.sendLast, 'SEND Last', SEND | Trait.ends],
  [
    PacketOperation.sendLastImmediate,
    'SEND Last with Immediate',
    SEND | Trait.ends | Trait.immediate,
  ],
  [PacketOperation.sendOnly, 'SEND Only', SEND | ONLY],
  [PacketOperation.sendOnlyImmediate, 'SEND Only with Immediate', SEND | ONLY | Trait.immediate],
  [PacketOperation.writeFirst, 'RDMA WRITE First', WRITE | Trait.starts | Trait.reth],
  [PacketOperation.writeMiddle, 'RDMA WRITE Middle', WRITE],
  [PacketOperation.writeLast, 'RDMA WRITE Last', WRITE | Trait.ends],
  [
    PacketOperation.writeLastImmediate,
    'RDMA WRITE Last with Immediate',
    WRITE | Trait.ends | Trait.immediate,
  ],
  [PacketOperation.writeOnly, 'RDMA WRITE Only', WRITE | ONLY | Trait.reth],
  [
    PacketOperation.writeOnlyImmediate,
    'RDMA WRITE Only with Immediate',
    WRITE | ONLY | Trait.reth | Trait.immediate,
  ],
  [PacketOperation.readRequest, 'RDMA READ Request', ONLY | Trait.request | Trait.reth],
  [
    PacketOperation.readResponseFirst,
    'RDMA READ response First',
    RESPONSE | Trait.starts | Trait.aeth,
  ],
  [PacketOperation.readResponseMiddle, 'RDMA READ response Middle', RESPONSE],
  [PacketOperation.readResponseLast, 'RDMA READ response Last', RESPONSE | Trait.ends | Trait.aeth],
  [PacketOperation.readResponseOnly, 'RDMA READ response Only', RESPONSE | ONLY | Trait.aeth],
  [PacketOperation.acknowledge, 'Acknowledge', ONLY | Trait.aeth],
  [PacketOperation.atomicAcknowledge, 'ATOMIC Acknowledge', ONLY | Trait.aeth | Trait.atomicAckEth],
  [PacketOperation.compareSwap, 'CmpSwap', ONLY | Trait.request | Trait.atomicEth],
  [PacketOperation.fetchAdd, 'FetchAdd', ONLY | Trait.request | Trait.atomicEth],
  [PacketOperation.sendLastInvalidate, 'SEND Last with Invalidate', SEND | Trait.ends | Trait.ieth],
  [PacketOperation.sendOnlyInvalidate, 'SEND Only with Invalidate', SEND | ONLY | Trait.ieth],
];

const DATAGRAM_OPERATIONS: readonly PacketOperation[] = [
  PacketOperation.sendOnly,
  PacketOperation.sendOnlyImmediate,
];

/** Traits by opcode; 0 if the opcode is not defined here. */
const TRAITS = new Uint16Array(256);
/** Bytes of base and extended headers by opcode. */
const HEADER_BYTES = new Uint8Array(256);
const NAMES: (string | undefined)[] = new Array(256).fill(undefined);

/** Bytes of the base transport header. */
export const BTH_BYTES = 12;
/** Bytes of each extended header (IBTA 9.3). */
export const HeaderBytes = {
  reth: 16,
  aeth: 4,
  atomicEth: 28,
  atomicAckEth: 8,
  immediate: 4,
  ieth: 4,
  deth: 8,
} as const;

function sizeOf(traits: number): number {
  let bytes = BTH_BYTES;
  if ((traits & Trait.reth) !== 0) bytes += HeaderBytes.reth;
  if ((traits & Trait.aeth) !== 0) bytes += HeaderBytes.aeth;
  if ((traits & Trait.atomicEth) !== 0) bytes += HeaderBytes.atomicEth;
  if ((traits & Trait.atomicAckEth) !== 0) bytes += HeaderBytes.atomicAckEth;
  if ((traits & Trait.immediate) !== 0) bytes += HeaderBytes.immediate;
  if ((traits & Trait.ieth) !== 0) bytes += HeaderBytes.ieth;
  if ((traits & Trait.deth) !== 0) bytes += HeaderBytes.deth;
  return bytes;
}

function define(service: string, opcode: number, name: string, traits: number): void {
  TRAITS[opcode] = traits;
  HEADER_BYTES[opcode] = sizeOf(traits);
  NAMES[opcode] = `${service} ${name}`;
}

for (const [operation, name, traits] of OPERATIONS) {
  define('RC', Service.rc | operation, name, traits);
  if (operation <= PacketOperation.writeOnlyImmediate) {
    define('UC', Service.uc | operation, name, traits);
  }
  if (DATAGRAM_OPERATIONS.includes(operation)) {
    define('UD', Service.ud | operation, name, traits | Trait.deth);
  }
}

/** `Trait` bits of an opcode; 0 for an undefined opcode. */
export function opcodeTraits(opcode: number): number {
  return TRAITS[opcode] ?? 0;
}

/** Bytes of base and extended headers of an opcode; 0 for an undefined opcode. */
export function headerBytes(opcode: number): number {
  return HEADER_BYTES[opcode] ?? 0;
}

export function serviceOf(opcode: number): number {
  return opcode & SERVICE_MASK;
}

export function operationOf(opcode: number): number {
  return opcode & ~SERVICE_MASK;
}

/** Name for people, such as `RC SEND Only`; the hexadecimal number of an unknown opcode. */
export function opcodeName(opcode: number): string {
  return NAMES[opcode] ?? `opcode 0x${opcode.toString(16).padStart(2, '0')}`;
}
