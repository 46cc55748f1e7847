/** Internet addresses as canonical text: equal addresses are equal strings. */

/** The wildcard addresses in canonical form. */
export const IPV4_ANY = '0.0.0.0';
export const IPV6_ANY = '::';
/** Bytes of an IPv6 address that its owner does not choose: an owner has 2^64 addresses. */
const IPV6_PREFIX_BYTES = 8;

/** 4 or 6 for a canonical address. */
export function addressFamily(address: string): 4 | 6 {
  return address.includes(':') ? 6 : 4;
}

/** True for the two wildcard addresses, which mean all of the host's. */
export function isWildcard(address: string): boolean {
  return address === IPV4_ANY || address === IPV6_ANY;
}

/** True for 127.0.0.0/8 and ::1. */
export function isLoopback(address: string): boolean {
  return address === '::1' || (addressFamily(address) === 4 && address.startsWith('127.'));
}

/**
 * The canonical text of an IPv4 or IPv6 address: no leading zeros, lower case, the longest run of
 * zero groups as `::` (RFC 5952), an IPv4-mapped address as IPv4, a `%zone` kept. Undefined when
 * `text` is not an address.
 */
export function canonicalAddress(text: string): string | undefined {
  if (!text.includes(':')) return canonicalIPv4(text);
  const [address = '', zone] = text.split('%', 2);
  const groups = parseIPv6(address);
  if (groups === undefined) return undefined;
  const canonical = printGroups(groups);
  return zone === undefined || zone === '' || !canonical.includes(':')
    ? canonical
    : `${canonical}%${zone}`;
}

/** The canonical text of the 16 bytes of an address. */
export function addressText(bytes: Uint8Array): string {
  const groups: number[] = [];
  for (let at = 0; at < bytes.length; at += 2) {
    groups.push(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0));
  }
  return printGroups(groups);
}

/** The 4 or 16 bytes of a canonical address, a zone left out. */
export function addressBytes(address: string): Uint8Array {
  if (addressFamily(address) === 4) return Uint8Array.from(address.split('.'), Number);
  const [text = ''] = address.split('%', 1);
  const groups = parseIPv6(text) ?? [];
  return Uint8Array.from(groups.flatMap((group) => [group >>> 8, group & 0xff]));
}

/** The owner of a canonical address, for limits: an IPv4 address, or the /64 prefix of an IPv6 address. */
export function addressOwner(address: string): string {
  if (addressFamily(address) === 4) return address;
  return addressBytes(address).subarray(0, IPV6_PREFIX_BYTES).join('.');
}

/** As in TCP, a connection to the wildcard address goes to the host itself. */
export function wildcardAsLoopback(address: string): string {
  if (!isWildcard(address)) return address;
  return address === IPV4_ANY ? '127.0.0.1' : '::1';
}

/** Decimal bytes without leading zeros. */
const CANONICAL_IPV4 =
  /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$/;

function canonicalIPv4(text: string): string | undefined {
  if (CANONICAL_IPV4.test(text)) return text;
  const parts = text.split('.');
  if (parts.length !== 4) return undefined;
  const bytes = parts.map((part) => (/^\d{1,3}$/.test(part) ? Number(part) : 256));
  return bytes.every((byte) => byte <= 255) ? bytes.join('.') : undefined;
}

/** The eight groups, or undefined. A dotted tail counts as two groups. */
function parseIPv6(text: string): number[] | undefined {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const head = parseGroups(halves[0] ?? '', halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1] ?? '', true) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined;
  return [...head, ...new Array<number>(missing).fill(0), ...tail];
}

function parseGroups(text: string, mayEndDotted: boolean): number[] | undefined {
  if (text === '') return [];
  const groups: number[] = [];
  const parts = text.split(':');
  for (const [index, part] of parts.entries()) {
    if (part.includes('.')) {
      const dotted = canonicalIPv4(part);
      if (dotted === undefined || !mayEndDotted || index !== parts.length - 1) return undefined;
      const [a = 0, b = 0, c = 0, d = 0] = dotted.split('.').map(Number);
      groups.push(a * 256 + b, c * 256 + d);
    } else if (/^[\da-f]{1,4}$/i.test(part)) {
      groups.push(Number.parseInt(part, 16));
    } else {
      return undefined;
    }
  }
  return groups;
}

/** An IPv4-mapped address as IPv4. */
function printGroups(groups: readonly number[]): string {
  const [high = 0, low = 0] = [groups[6], groups[7]];
  for (let index = 0; index < 6; index += 1) {
    if (groups[index] !== (index < 5 ? 0 : 0xffff)) return printIPv6(groups);
  }
  return `${high >>> 8}.${high & 0xff}.${low >>> 8}.${low & 0xff}`;
}

function printIPv6(groups: readonly number[]): string {
  let bestStart = -1;
  let bestLength = 1;
  for (let start = 0; start < 8; start++) {
    let length = 0;
    while (start + length < 8 && groups[start + length] === 0) length++;
    if (length > bestLength) {
      bestStart = start;
      bestLength = length;
    }
  }
  const hex = groups.map((group) => group.toString(16));
  if (bestStart < 0) return hex.join(':');
  return `${hex.slice(0, bestStart).join(':')}::${hex.slice(bestStart + bestLength).join(':')}`;
}

/** An address and a port; IPv6 addresses are in brackets. */
export function endText(address: string, port: number): string {
  return `${address.includes(':') ? `[${address}]` : address}:${port}`;
}
