/** The check for RoCE with other hosts: the UDP port and its receive buffer. */
import { existsSync } from 'node:fs';
import { failureCode, failureText } from '#daemon/console/failure';
import { hostAddresses, primaryAddress } from '#daemon/host/host-addresses';
import { type Finding, info, ok, warn } from './finding.ts';

const ROCE_PORT = 4791;
/** Receive buffer that the link of a RoCE device requests; the kernel doubles what it grants. */
const BUFFER_BYTES = 4_194_304;
const RXE_MODULE = '/sys/module/rdma_rxe';

/** Tries the port on the address that other hosts use. */
export async function examineRoceUdp(): Promise<Finding> {
  const { address } = primaryAddress({ addresses: [] }, hostAddresses());
  const { openUdp } = await import('#native-bridge/libc/udp-socket');
  const { closeDescriptor } = await import('#native-bridge/libc/descriptor');
  const place = { address, kernelRxe: existsSync(RXE_MODULE) };
  try {
    const { fd, receiveBufferBytes } = openUdp(address, ROCE_PORT, BUFFER_BYTES);
    closeDescriptor(fd);
    return judgeRoceUdp({ ...place, receiveBufferBytes });
  } catch (error) {
    return judgeRoceUdp({ ...place, refused: failureCode(error) ?? failureText(error) });
  }
}

interface UdpAttempt {
  readonly address: string;
  /** The kernel's own soft RoCE is loaded. */
  readonly kernelRxe: boolean;
  /** The reason if the port could not be opened, else the size of its receive buffer. */
  readonly refused?: string;
  readonly receiveBufferBytes?: number;
}

/** Judges an attempt to open RoCE's UDP port. */
export function judgeRoceUdp(attempt: UdpAttempt): Finding {
  const { address, kernelRxe, refused, receiveBufferBytes = 0 } = attempt;
  const where = `UDP port ${ROCE_PORT} of ${address}`;
  if (refused === 'EADDRINUSE') {
    return kernelRxe
      ? warn(
          `${where} is taken, probably by the kernel's rxe: RoCE devices here cannot reach other hosts over it`,
          'delete the rxe devices (rdma link delete NAME) and unload rdma_rxe, or use a network namespace',
        )
      : info(`${where} is in use: a daemon reaches other hosts over it`);
  }
  if (refused !== undefined) {
    return warn(
      `${where} cannot be opened (${refused}): RoCE devices here cannot reach other hosts over it`,
    );
  }
  const kibibytes = Math.floor(receiveBufferBytes / 1024);
  if (receiveBufferBytes >= BUFFER_BYTES) {
    return ok(`${where} is free; receive buffers of ${kibibytes} KiB`);
  }
  return info(
    `${where} is free; receive buffers of ${kibibytes} KiB hold three connections' packets`,
    `sysctl net.core.rmem_max=${BUFFER_BYTES}, if many connections lose packets (completer_retry_err)`,
  );
}
