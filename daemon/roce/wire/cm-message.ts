/**
 * Messages of connection management, each in one MAD of class 7 (IBTA 12.6, 12.11).
 *
 * `parseCmMessage` reads one, or returns why the MAD is not one; `writeCmMessage` writes one. The fields are
 * those of `CM_LAYOUTS`. The communication manager checks their values.
 */
import { CM_LAYOUTS, type CmLayout } from './cm-layouts.ts';
import { MAD_BYTES, MAD_HEADER_BYTES, parseMadHeader, writeMadHeader } from './mad.ts';

export type CmMessageName = keyof typeof CM_LAYOUTS;

/** Fields of a message. Bytes have the full length of their field. */
export type CmFields<N extends CmMessageName> = {
  readonly [F in keyof (typeof CM_LAYOUTS)[N]['numbers']]: number;
} & { readonly [F in keyof (typeof CM_LAYOUTS)[N]['bytes']]: Uint8Array };

/** Ties replies to requests; 64 bits in halves. */
export interface Transaction {
  readonly hi: number;
  readonly lo: number;
}

export type CmMessage = {
  readonly [N in CmMessageName]: {
    readonly name: N;
    readonly transaction: Transaction;
    readonly fields: CmFields<N>;
  };
}[CmMessageName];

/** Why a MAD is not a message of connection management. */
type CmRefusal =
  /** Not 256 bytes, or not of base version 1. */
  | 'malformed'
  /** Another class, or another version of this one. */
  | 'class'
  /** Not a message that this class sends, such as a query about the class itself. */
  | 'message';

/** Reasons of a REJ (IBTA 12.6.7.2). */
export const RejectReason = {
  noResources: 3,
  timeout: 4,
  invalidCommId: 6,
  invalidServiceId: 8,
  invalidServiceType: 9,
  staleConnection: 10,
  primaryGid: 12,
  invalidMtu: 26,
  consumerDefined: 28,
  duplicateCommId: 30,
} as const;

/** Which message a REJ or an MRA answers. */
export const CmAnswered = { req: 0, rep: 1 } as const;

/** Status of a SIDR REP (IBTA 12.11.1.2). */
export const SidrStatus = { valid: 0, noService: 1, rejected: 2 } as const;

const CLASS = 7;
const CLASS_VERSION = 2;
/** ComMgtSend, the only method of these messages. */
const METHOD_SEND = 3;

const NAMES = new Map<number, CmMessageName>(
  Object.entries(CM_LAYOUTS).map(
    ([name, { attributeId }]) => [attributeId, name as CmMessageName] as const,
  ),
);

/** Parses a MAD, or returns why it is not a message. */
export function parseCmMessage(mad: Uint8Array): CmMessage | CmRefusal {
  const header = parseMadHeader(mad);
  if (header === undefined) return 'malformed';
  const { managementClass, classVersion, method, attributeId } = header;
  if (managementClass !== CLASS || classVersion !== CLASS_VERSION) return 'class';
  const name = NAMES.get(attributeId);
  if (name === undefined || method !== METHOD_SEND) return 'message';
  const data = mad.subarray(MAD_HEADER_BYTES);
  const layout: CmLayout = CM_LAYOUTS[name];
  const fields: Record<string, number | Uint8Array> = {};
  for (const [field, [firstBit, bits]] of Object.entries(layout.numbers)) {
    fields[field] = readBits(data, firstBit, bits);
  }
  for (const [field, [at, length]] of Object.entries(layout.bytes)) {
    fields[field] = data.slice(at, at + length);
  }
  const transaction = { hi: header.transactionHi, lo: header.transactionLo };
  // The layout of this name is the type of these fields.
  return { name, transaction, fields } as unknown as CmMessage;
}

/**
 * Writes a MAD with this message. Missing and reserved fields are zero; short bytes are padded with zeros.
 * Throws `RangeError` for long ones.
 */
export function writeCmMessage<N extends CmMessageName>(
  name: N,
  transaction: Transaction,
  given: Partial<CmFields<N>>,
): Uint8Array {
  const layout: CmLayout = CM_LAYOUTS[name];
  const mad = new Uint8Array(MAD_BYTES);
  writeMadHeader(mad, {
    managementClass: CLASS,
    classVersion: CLASS_VERSION,
    method: METHOD_SEND,
    status: 0,
    transactionHi: transaction.hi,
    transactionLo: transaction.lo,
    attributeId: layout.attributeId,
    attributeModifier: 0,
  });
  const data = mad.subarray(MAD_HEADER_BYTES);
  const fields: Readonly<Record<string, number | Uint8Array | undefined>> = given;
  for (const [field, [firstBit, bits]] of Object.entries(layout.numbers)) {
    const value = fields[field];
    if (typeof value === 'number') writeBits(data, firstBit, bits, value);
  }
  for (const [field, [at, length]] of Object.entries(layout.bytes)) {
    const value = fields[field];
    if (!(value instanceof Uint8Array)) continue;
    if (value.length > length) throw new RangeError(`${name}: ${field} has ${length} bytes`);
    data.set(value, at);
  }
  return mad;
}

/** Reads an unsigned number of at most 32 bits, highest bit first. */
function readBits(bytes: Uint8Array, firstBit: number, bits: number): number {
  let value = 0;
  let at = firstBit;
  let left = bits;
  while (left > 0) {
    const offset = at & 7;
    const taken = Math.min(8 - offset, left);
    const part = ((bytes[at >> 3] as number) >> (8 - offset - taken)) & ((1 << taken) - 1);
    value = value * (1 << taken) + part;
    at += taken;
    left -= taken;
  }
  return value;
}

/** Writes the low `bits` of `value`. The bits there must be zero. */
function writeBits(bytes: Uint8Array, firstBit: number, bits: number, value: number): void {
  let at = firstBit;
  let left = bits;
  while (left > 0) {
    const offset = at & 7;
    const taken = Math.min(8 - offset, left);
    const part = Math.floor(value / 2 ** (left - taken)) & ((1 << taken) - 1);
    bytes[at >> 3] = (bytes[at >> 3] as number) | (part << (8 - offset - taken));
    at += taken;
    left -= taken;
  }
}
