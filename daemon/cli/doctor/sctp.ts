/** The check for SCTP: libusrsctp and its UDP port, and the kernel's own SCTP. */
import { failureCode, failureText } from '#daemon/console/failure';
import { hostAddresses, primaryAddress } from '#daemon/host/host-addresses';
import { type Finding, info } from './finding.ts';

const SCTP_UDP_PORT = 9899;
const BUFFER_BYTES = 65_536;

/** Loads the library, and tries the port on the address that other hosts use. */
export async function examineSctp(): Promise<Finding> {
  const { address } = primaryAddress({ addresses: [] }, hostAddresses());
  const attempt = { address, kernelSctp: await kernelHasSctp(address) };
  const { loadUsrsctp } = await import('#native-bridge/usrsctp/library');
  try {
    loadUsrsctp();
  } catch (error) {
    return judgeSctp({ ...attempt, missing: failureText(error) });
  }
  const { openUdp } = await import('#native-bridge/libc/udp-socket');
  const { closeDescriptor } = await import('#native-bridge/libc/descriptor');
  try {
    closeDescriptor(openUdp(address, SCTP_UDP_PORT, BUFFER_BYTES).fd);
    return judgeSctp(attempt);
  } catch (error) {
    return judgeSctp({ ...attempt, refused: failureCode(error) ?? failureText(error) });
  }
}

/** Opens a socket, since only that loads the kernel's module. */
async function kernelHasSctp(address: string): Promise<boolean> {
  const { probeSctp } = await import('#native-bridge/libc/sctp-socket');
  try {
    probeSctp(address);
    return true;
  } catch {
    return false;
  }
}

interface SctpAttempt {
  readonly address: string;
  /** The kernel supports SCTP sockets. */
  readonly kernelSctp: boolean;
  /** Why the library does not load. */
  readonly missing?: string;
  /** Why the port could not be opened. */
  readonly refused?: string;
}

/** Judges an attempt to use SCTP. It is optional, so the finding is never a warning. */
export function judgeSctp({ address, kernelSctp, missing, refused }: SctpAttempt): Finding {
  const kernel = kernelSctp
    ? 'the kernel has SCTP sockets'
    : 'the kernel has no SCTP sockets (sctp module)';
  if (missing !== undefined) return info(`${missing}; ${kernel}`);
  const where = `UDP port ${SCTP_UDP_PORT} of ${address}`;
  const port =
    refused === undefined ? `${where} is free` : `${where} cannot be opened (${refused})`;
  const state = refused === undefined ? 'ok' : 'info';
  return { state, text: `libusrsctp loads; ${port}; ${kernel}` };
}
