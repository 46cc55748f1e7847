/** The other end of a connection, as somebody writes it who asks for a fault. */
import { canonicalAddress } from '../cm/address.ts';
import type { FaultPeer } from '../faults/fault.ts';

/**
 * Reads `ADDRESS`, `ADDRESS:PORT` or `[IPv6]:PORT`; without a port it is all of them, which port 0
 * stands for. A text that is none of these gives what is wrong with it.
 */
export function parseFaultPeer(text: string): FaultPeer | string {
  const parts = /^(?:\[(?<bracketed>[^\]]+)\]|(?<plain>[^:[\]]+))(?::(?<port>[0-9]{1,5}))?$/.exec(
    text,
  );
  const { bracketed, plain, port = '0' } = parts?.groups ?? {};
  // An IPv6 address needs no brackets where it has no port.
  const address = canonicalAddress(bracketed ?? plain ?? text);
  if (address === undefined || Number(port) > 65_535) {
    return `'${text}' is not ADDRESS, ADDRESS:PORT or [IPv6]:PORT`;
  }
  return { address, port: Number(port) };
}
