/**
 * The attributes of a queue pair whose program connects it by `ibv_modify_qp`: those in a
 * modification, those that the queue pair stores, and the valid values. ib-transitions.ts lists
 * when each may be given.
 *
 * Attributes that no wire needs are stored for `ibv_query_qp`. Rounding and checks are those of Linux's
 * rxe, lax ones included: programs rely on both. Exception: rxe accepts a path MTU of 0; it is refused
 * here, as adapters do, since it means that the program sent a number of bytes.
 */
import type { QPState } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import {
  eachNumber,
  QP_ATTRIBUTES,
  QP_NUMBERS,
  QPAttribute,
  type QPNumber,
} from '#contract/verbs/qp-attributes';

/** Where packets go (`struct ibv_ah_attr`). */
export interface AddressVector {
  /** The peer's GID, 16 bytes: an IPv6 address, or an IPv4 one mapped into it. */
  readonly dgid: Uint8Array;
  /** Index of our GID. */
  readonly sgidIndex: number;
  readonly flowLabel: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  readonly dlid: number;
  readonly sl: number;
  readonly srcPathBits: number;
  readonly staticRate: number;
  readonly isGlobal: boolean;
  readonly portNum: number;
}

/** Attributes that a wire uses, and others that only queries return. */
export interface QPPath extends Readonly<Record<QPNumber | 'pathMigState', number>> {
  readonly ahAttr: AddressVector;
  /** The largest path MTU that the route carried when the address was set, as the same code. */
  readonly routeMtu: number;
}

/** A modification. Attributes not in `mask` are ignored. */
export interface QPModification extends Partial<Omit<QPPath, 'routeMtu'>> {
  /** Bits of `QPAttribute`. */
  readonly mask: number;
  readonly state?: QPState | undefined;
  readonly curState?: QPState | undefined;
  /** The route's MTU, if the caller has already resolved the address. */
  readonly resolvedMtu?: number;
}

/** The addresses of a port. Pure: the host answers from a table. */
export interface PortAddresses {
  /** Our own GID at `index`, 16 bytes; undefined for an empty entry. */
  gid(index: number): Uint8Array | undefined;
  /**
   * The code of the largest path MTU from our GID `sgid` to `dgid`; 0 if there is no route. Throws
   * `VerbsError` if the port cannot send.
   */
  routeMtu(dgid: Uint8Array, sgid: Uint8Array): number;
}

/** Devices have one port. */
const PORT = 1;
const TIMEOUT_MAX = QP_ATTRIBUTES.timeout.max;
const PATH_MTU_MAX = QP_ATTRIBUTES.pathMtu.max;
/** Reads and atomics in progress for each direction, as rxe reports it. */
const RD_ATOMIC_MAX = 128;
const PSN_MASK = QP_ATTRIBUTES.sqPsn.max;
const QPN_MASK = QP_ATTRIBUTES.destQpNum.max;
const GID_BYTES = 16;
/** The first byte of a multicast GID. */
const MULTICAST = 0xff;
/** An IPv4 address in a GID follows ten zero bytes and two of ones. */
const MAPPED_AT = 10;
const IPV4_AT = 12;

/** Returned by queries before an address is set. */
const NO_ADDRESS: AddressVector = {
  dgid: new Uint8Array(GID_BYTES),
  sgidIndex: 0,
  flowLabel: 0,
  hopLimit: 0,
  trafficClass: 0,
  dlid: 0,
  sl: 0,
  srcPathBits: 0,
  staticRate: 0,
  isGlobal: true,
  portNum: 0,
};

export const RESET_PATH: QPPath = {
  ...eachNumber(0),
  ahAttr: NO_ADDRESS,
  pathMtu: 1,
  routeMtu: PATH_MTU_MAX,
  pathMigState: 0,
};

/** Attributes that a queue pair stores. */
const CHANGEABLE = ([...QP_NUMBERS, 'ahAttr', 'pathMigState'] as const).map((name) => {
  return { name, bit: QPAttribute[name] };
});

/**
 * The attributes after `change`, whose mask has been checked. EINVAL for a value out of range;
 * ENODATA and ETIMEDOUT as for `checkAddressVector`.
 */
export function changedPath(path: QPPath, change: QPModification, port: PortAddresses): QPPath {
  const { mask } = change;
  const next = { ...path };
  for (const { name, bit } of CHANGEABLE) {
    if ((mask & bit) === 0) continue;
    const value = change[name];
    if (value === undefined) refuse(`the mask names ${name}, but the modification lacks it`);
    (next as Record<string, unknown>)[name] = value;
  }
  if ((mask & QPAttribute.portNum) !== 0) checkPort(next.portNum, 'portNum');
  if ((mask & QPAttribute.ahAttr) !== 0) {
    next.routeMtu = checkAddressVector(next.ahAttr, port, change.resolvedMtu);
  }
  // The command has 8 bits, so multiples of 256 arrive as 0.
  if (next.pathMtu === 0)
    refuse(
      'pathMtu is 0; it is a code, IBV_MTU_256 (1) to IBV_MTU_4096 (5), not a number of bytes (1024 arrives as 0)',
    );
  if (next.pathMtu > PATH_MTU_MAX)
    refuse(
      `pathMtu must be 1 (256 bytes) to ${PATH_MTU_MAX} (4096 bytes), not ${next.pathMtu}: it is a code, not a number of bytes`,
    );
  if (next.timeout > TIMEOUT_MAX)
    refuse(
      `timeout must be 0 to ${TIMEOUT_MAX}, not ${next.timeout}: it is an exponent (4.096 µs times 2^timeout)`,
    );
  if (next.maxRdAtomic > RD_ATOMIC_MAX) {
    refuse(`maxRdAtomic must be 0 to ${RD_ATOMIC_MAX}, not ${next.maxRdAtomic}`);
  }
  // Do not round the requester's depth: a peer may serve exactly what it promised.
  // rxe accepts more, but never serves more at once.
  next.maxDestRdAtomic = Math.min(roundedDepth(next.maxDestRdAtomic), RD_ATOMIC_MAX);
  next.rqPsn &= PSN_MASK;
  next.sqPsn &= PSN_MASK;
  next.destQpNum &= QPN_MASK;
  return next;
}

/**
 * The code of the path MTU to the address, or `resolvedMtu` if the caller knows it. EINVAL for an
 * address that is not global, not for this port, or of another address family than our
 * GID; ENODATA for an empty entry of the GID table; ETIMEDOUT for an unreachable GID.
 */
export function checkAddressVector(
  vector: AddressVector,
  port: PortAddresses,
  resolvedMtu?: number,
): number {
  const { dgid, isGlobal, sgidIndex } = vector;
  // Programs without a GID index send this.
  if (!isGlobal) refuse('RoCE needs a GID: ah_attr.is_global = 1 and a sgid_index; is_global is 0');
  checkPort(vector.portNum, 'ah_attr.port_num');
  const sgid = port.gid(sgidIndex);
  if (sgid === undefined) {
    throw new VerbsError('ENODATA', `sgidIndex ${sgidIndex} is an empty entry of the GID table`);
  }
  if (dgid.length !== GID_BYTES) refuse(`a GID has ${GID_BYTES} bytes, not ${dgid.length}`);
  if (dgid.every((byte) => byte === 0))
    refuse('dgid is zero: exchange GIDs with the peer and set the GID of its port');
  if (isMappedIPv4(sgid) !== isMappedIPv4(dgid)) {
    refuse(
      `sgidIndex ${sgidIndex} is ${isMappedIPv4(sgid) ? 'an IPv4' : 'an IPv6'} GID and dgid is not: choose another sgidIndex`,
    );
  }
  if (isMulticast(dgid)) return PATH_MTU_MAX;
  const routeMtu = resolvedMtu ?? port.routeMtu(dgid, sgid);
  if (routeMtu > 0) return routeMtu;
  throw new VerbsError(
    'ETIMEDOUT',
    'no route to dgid, or no answer from its host: no device has this GID, or its host cannot be reached',
  );
}

/** True for a GID that holds an IPv4 address. */
function isMappedIPv4(gid: Uint8Array): boolean {
  for (let at = 0; at < MAPPED_AT; at += 1) if (gid[at] !== 0) return false;
  return gid[MAPPED_AT] === 0xff && gid[MAPPED_AT + 1] === 0xff;
}

/** True for a GID of a multicast group. */
function isMulticast(gid: Uint8Array): boolean {
  return isMappedIPv4(gid) ? ((gid[IPV4_AT] ?? 0) & 0xf0) === 0xe0 : gid[0] === MULTICAST;
}

function checkPort(port: number, name: 'portNum' | 'ah_attr.port_num'): void {
  if (port !== PORT) refuse(`${name} must be ${PORT}, not ${port}: ports count from 1`);
}

/** A depth as rxe stores and reports it: the next power of two. */
export function roundedDepth(depth: number): number {
  let rounded = depth === 0 ? 0 : 1;
  while (rounded < depth) rounded *= 2;
  return rounded;
}

function refuse(text: string): never {
  throw invalid(text);
}
