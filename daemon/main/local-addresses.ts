/** Checks that the addresses of the configured devices belong to this host. */
import { createServer } from 'node:net';
import type { NetworkReach } from '#contract/protocol/ipc-admin';
import { VerbsError } from '#contract/verbs/errors';
import type { DeviceConfig } from '../host/device-config.ts';

interface Addressed {
  readonly devices: readonly DeviceConfig[];
  /** On an isolated network, devices may have any address. */
  readonly network: NetworkReach;
}

/**
 * Rejects with `VerbsError` EADDRNOTAVAIL if a device has an address that no interface of this host
 * has, or that is ambiguous without an interface.
 */
export async function assertLocalAddresses({ devices, network }: Addressed): Promise<void> {
  for (const { name, addresses } of devices) {
    for (const address of addresses) {
      if (/^fe80:[^%]*$/.test(address)) {
        throw new VerbsError(
          'EADDRNOTAVAIL',
          `device ${name}: ${address} is link-local: add its interface, for example ${address}%eth0`,
        );
      }
      if (network === 'isolated' || (await isLocal(address))) continue;
      throw new VerbsError(
        'EADDRNOTAVAIL',
        `device ${name}: ${address} is not an address of this host; \`ip -brief address\` lists them`,
      );
    }
  }
}

/** False if the kernel cannot bind the address. The listener reports any other error. */
function isLocal(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      resolve(error.code !== 'EADDRNOTAVAIL');
    });
    server.listen({ host: address, port: 0 }, () => server.close(() => resolve(true)));
  });
}
