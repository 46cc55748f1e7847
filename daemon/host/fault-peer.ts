/** Parses the peer address of a fault. */
import { canonicalAddress } from '#base/address';
import type { FaultPeer } from '../faults/fault.ts';

/**
 * Parses `ADDRESS`, `ADDRESS:PORT` or `[IPv6]:PORT`; without a port it matches all ports, written as port 0.
 * For any other text, returns what is wrong with it.
 */
export function parseFaultPeer(text: string): FaultPeer | string {
  const parts = /^(?:\[(?<bracketed>[^\]]+)\]|(?<plain>[^:[\]]+))(?::(?<port>[0-9]{1,5}))?$/.exec(
    text,
  );
  const { bracketed, plain, port = '0' } = parts?.groups ?? {};
  // An IPv6 address without a port needs no brackets.
  const address = canonicalAddress(bracketed ?? plain ?? text);
  if (address === undefined || Number(port) > 65_535) {
    return `'${text}' is not ADDRESS, ADDRESS:PORT or [IPv6]:PORT`;
  }
  return { address, port: Number(port) };
}
