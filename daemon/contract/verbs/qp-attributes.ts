/**
 * Attributes of queue pairs (`struct ibv_qp_attr`), and the table that everything about them derives
 * from: checks of arguments, the command's schema, ranges, the kernel's structs, names in messages.
 */
import type { AHAttributes, QPCapabilities } from './attributes.ts';
import { ACCESS_MASK, type Access, type MTU, type QPState, type QPType } from './enums.ts';

/**
 * The attributes with which a program connects a queue pair of a RoCE device (`struct ibv_qp_attr`
 * without sizes). `QP.modify` lists those that each transition needs.
 */
export interface QPPathAttributes {
  /** Bits of `Access`: what the peer may do through this queue pair. */
  readonly accessFlags: Access;
  /** Index of the partition key; the device has one, at 0. */
  readonly pkeyIndex: number;
  /** Port; 1. */
  readonly portNum: number;
  /** Key of a queue pair of type UD: it drops datagrams with another one. */
  readonly qkey: number;
  /** Where the peer is. */
  readonly ahAttr: AHAttributes;
  /** Payload of a packet. Both sides have the same. */
  readonly pathMtu: MTU;
  /** Number of the peer's queue pair. */
  readonly destQpNum: number;
  /** The first packet number of the peer's requests: its `sqPsn`. 24 bits. */
  readonly rqPsn: number;
  /** The first packet number of own requests. 24 bits. */
  readonly sqPsn: number;
  /** Waits 4.096 µs · 2^timeout for an acknowledgement; 0 waits forever. */
  readonly timeout: number;
  /** Repetitions without an answer until `retryExcErr`; at most 7. */
  readonly retryCnt: number;
  /** Repetitions to a peer without a receive until `rnrRetryExcErr`; 7 repeats forever. */
  readonly rnrRetry: number;
  /** Code of the delay that a peer waits when no receive is posted here; 12 is 0.64 ms. */
  readonly minRnrTimer: number;
  /** Reads and atomics that this side has outstanding at once. */
  readonly maxRdAtomic: number;
  /** Reads and atomics of the peer that this side serves at once. */
  readonly maxDestRdAtomic: number;
}

/** Path attributes, each optional. */
export type SomePathAttributes = {
  readonly [Name in keyof QPPathAttributes]?: QPPathAttributes[Name] | undefined;
};

/** The changes that `QP.modify` makes (`struct ibv_qp_attr`). */
export interface QPModification extends SomePathAttributes {
  /** The state to enter. Default: the current one. */
  readonly state?: QPState | undefined;
  /** The state that the program believes to be the current one: EINVAL if it is not. */
  readonly curState?: QPState | undefined;
}

/**
 * Result of `QP.query` (`struct ibv_qp_attr` and `struct ibv_qp_init_attr`). Queue pairs of iWARP
 * have no path: its attributes are undefined.
 */
export interface QPAttributes
  extends Omit<SomePathAttributes, 'accessFlags' | 'maxRdAtomic' | 'maxDestRdAtomic'> {
  /** Number of the queue pair; undefined from an older daemon. */
  readonly qpNum?: number | undefined;
  /** Type of the queue pair; undefined from an older daemon. */
  readonly type?: QPType | undefined;
  /** On RoCE, in SQD: messages are still pending. */
  readonly sqDraining?: boolean | undefined;
  /** State of the queue pair. */
  readonly state: QPState;
  /** Sizes of the queues. */
  readonly capabilities: QPCapabilities;
  /** Bits of `Access`: what the peer may do through this queue pair. */
  readonly accessFlags: number;
  /** Outbound reads and atomics (ORD); on iWARP negotiated, 0 until connected. */
  readonly maxRdAtomic: number;
  /** Inbound reads and atomics (IRD); on iWARP negotiated, 0 until connected. */
  readonly maxDestRdAtomic: number;
  /** Every send work request completes, flagged or not. */
  readonly sqSigAll: boolean;
}

/** A number in a struct of the kernel: offset and width. */
interface Place {
  readonly at: number;
  readonly bytes: 1 | 2 | 4;
}

/** Facts about an attribute. */
interface Row {
  /** Its bit in a mask (`enum ibv_qp_attr_mask`). */
  readonly bit: number;
  /** The range in the verbs; a device may have a smaller one. Without: only for C programs. */
  readonly min?: number;
  readonly max?: number;
  /** In MODIFY_QP and QUERY_QP, from their `qkey` on. */
  readonly uverbs?: Place;
  /** In rdma_cm's INIT_QP_ATTR. */
  readonly cm?: Place;
}

const u8 = (at: number): Place => ({ at, bytes: 1 });
const u16 = (at: number): Place => ({ at, bytes: 2 });
const u32 = (at: number): Place => ({ at, bytes: 4 });
const UINT8_MAX = 0xff;
const UINT24_MAX = 0xff_ffff;
const UINT32_MAX = 0xffff_ffff;

/** Every attribute, in the order of the bits. */
export const QP_ATTRIBUTES = {
  state: { bit: 1 << 0, uverbs: u8(24), cm: u32(4) },
  curState: { bit: 1 << 1, uverbs: u8(25), cm: u32(8) },
  enSqdAsyncNotify: { bit: 1 << 2 },
  accessFlags: { bit: 1 << 3, min: 0, max: ACCESS_MASK, uverbs: u32(16), cm: u32(36) },
  // The device has a single partition key.
  pkeyIndex: { bit: 1 << 4, min: 0, max: 0, uverbs: u16(20), cm: u16(124) },
  portNum: { bit: 1 << 5, min: 1, max: 1, uverbs: u8(32), cm: u8(133) },
  qkey: { bit: 1 << 6, min: 0, max: UINT32_MAX, uverbs: u32(0), cm: u32(20) },
  ahAttr: { bit: 1 << 7 },
  pathMtu: { bit: 1 << 8, min: 1, max: 5, uverbs: u8(26), cm: u32(12) },
  timeout: { bit: 1 << 9, min: 0, max: 31, uverbs: u8(33), cm: u8(134) },
  retryCnt: { bit: 1 << 10, min: 0, max: 7, uverbs: u8(34), cm: u8(135) },
  rnrRetry: { bit: 1 << 11, min: 0, max: 7, uverbs: u8(35), cm: u8(136) },
  rqPsn: { bit: 1 << 12, min: 0, max: UINT24_MAX, uverbs: u32(4), cm: u32(24) },
  maxRdAtomic: { bit: 1 << 13, min: 0, max: UINT8_MAX, uverbs: u8(29), cm: u8(130) },
  alternatePath: { bit: 1 << 14 },
  minRnrTimer: { bit: 1 << 15, min: 0, max: 31, uverbs: u8(31), cm: u8(132) },
  sqPsn: { bit: 1 << 16, min: 0, max: UINT24_MAX, uverbs: u32(8), cm: u32(28) },
  maxDestRdAtomic: { bit: 1 << 17, min: 0, max: UINT8_MAX, uverbs: u8(30), cm: u8(131) },
  pathMigState: { bit: 1 << 18, uverbs: u8(27), cm: u32(16) },
  capabilities: { bit: 1 << 19 },
  destQpNum: { bit: 1 << 20, min: 0, max: UINT24_MAX, uverbs: u32(12), cm: u32(32) },
} as const satisfies Readonly<Record<string, Row>> & Readonly<Record<keyof QPPathAttributes, Row>>;

type Rows = typeof QP_ATTRIBUTES;
/** The attributes whose rows have this column. */
type With<Column extends keyof Row> = {
  [Name in keyof Rows]: Rows[Name] extends Required<Pick<Row, Column>> ? Name : never;
}[keyof Rows];
/** Attributes that are numbers in the verbs. */
export type QPNumber = With<'min'>;
/** Attributes that are numbers in structs of the kernel. */
export type QPField = With<'uverbs' | 'cm'>;

const ROWS = Object.entries<Row>(QP_ATTRIBUTES);

/** Bits of attributes in a mask. */
export const QPAttribute = Object.fromEntries(ROWS.map(([name, { bit }]) => [name, bit])) as {
  readonly [Name in keyof Rows]: number;
};
export const ALL_QP_ATTRIBUTES = ROWS.reduce((bits, [, { bit }]) => bits | bit, 0);

/** The attributes that are numbers in the verbs. */
export const QP_NUMBERS = namesWith('min');
/** The attributes that are numbers in structs of the kernel. */
export const QP_FIELDS = namesWith('uverbs');

/** `value` for each attribute that is a number in the verbs. */
export function eachNumber<T>(value: T): Readonly<Record<QPNumber, T>> {
  return Object.fromEntries(QP_NUMBERS.map((name) => [name, value])) as Record<QPNumber, T>;
}

function namesWith<Column extends keyof Row>(column: Column): readonly With<Column>[] {
  return ROWS.filter(([, row]) => column in row).map(([name]) => name as With<Column>);
}
