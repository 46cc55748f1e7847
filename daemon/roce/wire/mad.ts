/**
 * Management datagrams (MADs): 256 bytes, of which the first 24 are the same for every class (IBTA 13.4). A
 * port's general service interface receives them at QP 1.
 */
import { readUint16, readUint32, writeUint16, writeUint32 } from '#base/unchecked-bytes';

export const MAD_BYTES = 256;
/** Where the class-specific part begins. */
export const MAD_HEADER_BYTES = 24;
/** The queue pair of the general service interface, and its key (IBTA 3.9.5.3, 10.2.5). */
export const GSI_QPN = 1;
export const GSI_QKEY = 0x8001_0000;

const BASE_VERSION = 1;

interface MadHeader {
  readonly managementClass: number;
  readonly classVersion: number;
  /** The highest bit marks a response. */
  readonly method: number;
  readonly status: number;
  /** 64 bits in halves: a response has the id of its request. */
  readonly transactionHi: number;
  readonly transactionLo: number;
  readonly attributeId: number;
  readonly attributeModifier: number;
}

/** Parses the header of a MAD; undefined for another length or version. */
export function parseMadHeader(mad: Uint8Array): MadHeader | undefined {
  if (mad.length !== MAD_BYTES || mad[0] !== BASE_VERSION) return undefined;
  return {
    managementClass: mad[1] as number,
    classVersion: mad[2] as number,
    method: mad[3] as number,
    status: readUint16(mad, 4),
    transactionHi: readUint32(mad, 8),
    transactionLo: readUint32(mad, 12),
    attributeId: readUint16(mad, 16),
    attributeModifier: readUint32(mad, 20),
  };
}

/** Writes the header to the start of `mad`; zeroes reserved and class-specific bytes. */
export function writeMadHeader(mad: Uint8Array, header: MadHeader): void {
  mad.fill(0, 0, MAD_HEADER_BYTES);
  mad[0] = BASE_VERSION;
  mad[1] = header.managementClass;
  mad[2] = header.classVersion;
  mad[3] = header.method;
  writeUint16(mad, 4, header.status);
  writeUint32(mad, 8, header.transactionHi);
  writeUint32(mad, 12, header.transactionLo);
  writeUint16(mad, 16, header.attributeId);
  writeUint32(mad, 20, header.attributeModifier);
}
