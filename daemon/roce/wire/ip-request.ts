/**
 * The header that rdma_cm puts before the program's private data in a REQ and a SIDR REQ: IP addresses and
 * the port of the active side (IBTA annex A11).
 *
 * ```
 *  0  version                     4  source, 16 bytes: an IPv6 address,
 *  1  IP version (4), reserved       or 12 zeros and an IPv4 one
 *  2  source port                20  destination, the same
 * ```
 */
import { readUint16, writeUint16 } from '#base/unchecked-bytes';

export const IP_REQUEST_BYTES = 36;

const ADDRESS_BYTES = 16;
const IPV4_BYTES = 4;
const SOURCE_AT = 4;
const DESTINATION_AT = 20;

/** Both addresses have 4, or both 16 bytes. */
interface IpRequest {
  readonly sourcePort: number;
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
}

/** Parses the header at the start of `bytes`; undefined if there is none, or its version is unknown. */
export function parseIpRequest(bytes: Uint8Array): IpRequest | undefined {
  const version = (bytes[1] ?? 0) >> 4;
  const length = version === 4 ? IPV4_BYTES : ADDRESS_BYTES;
  if (bytes.length < IP_REQUEST_BYTES || bytes[0] !== 0) return undefined;
  if (version !== 4 && version !== 6) return undefined;
  const addressAt = (at: number) => bytes.slice(at + ADDRESS_BYTES - length, at + ADDRESS_BYTES);
  return {
    sourcePort: readUint16(bytes, 2),
    source: addressAt(SOURCE_AT),
    destination: addressAt(DESTINATION_AT),
  };
}

/** Writes the header, followed by `privateData`. */
export function writeIpRequest(
  { sourcePort, source, destination }: IpRequest,
  privateData: Uint8Array,
): Uint8Array {
  const bytes = new Uint8Array(IP_REQUEST_BYTES + privateData.length);
  bytes[1] = (source.length === IPV4_BYTES ? 4 : 6) << 4;
  writeUint16(bytes, 2, sourcePort);
  bytes.set(source, SOURCE_AT + ADDRESS_BYTES - source.length);
  bytes.set(destination, DESTINATION_AT + ADDRESS_BYTES - destination.length);
  bytes.set(privateData, IP_REQUEST_BYTES);
  return bytes;
}
