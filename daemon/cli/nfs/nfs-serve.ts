/** `iwarpd nfs serve`: serves a directory until it is stopped. */
import { once } from 'node:events';
import {
  CommandFailure,
  failureCode,
  failureText,
  fileFailureText,
  usageFailure,
} from '#daemon/console/failure';
import { type Output, printJson } from '#daemon/console/output';
import { NfsServer } from '#verbs-api/nfs/server/nfs-server';
import { RPCBIND_SOCKET } from '#verbs-api/nfs/tcp/rpcbind';
import { wireOptions } from '../arguments.ts';
import { type NfsProviderArguments, openNfsProvider } from './nfs-provider.ts';

export interface NfsServeArguments extends NfsProviderArguments {
  readonly host?: string;
  readonly port: number;
  readonly mountPort: number;
  readonly writable?: boolean;
  readonly rootSquash: boolean;
  readonly rpcbind?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/** Serves `directory` until `signal` fires. CommandFailure, or VerbsError. */
export async function runNfsServe(
  directory: string,
  given: NfsServeArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const provider = await openNfsProvider(given, output);
  try {
    if (provider.kind === 'daemon' && wireOptions(given) !== undefined) {
      throw usageFailure(
        'the wire options of a server belong to its device: give them to `iwarpd start`, or use --embedded',
      );
    }
    await using server = await listen(provider, directory, given, output);
    announce(server, provider.kind, given, output);
    if (!signal.aborted) await once(signal, 'abort');
  } finally {
    await provider.close();
  }
}

async function listen(
  provider: Parameters<typeof NfsServer.listen>[0],
  directory: string,
  given: NfsServeArguments,
  output: Output,
): Promise<NfsServer> {
  const { host, port, mountPort, rootSquash: squashRoot } = given;
  try {
    return await NfsServer.listen(provider, directory, {
      port,
      mountPort,
      readOnly: given.writable !== true,
      squashRoot,
      ...(host === undefined ? {} : { host }),
      ...(given.rpcbind === true ? { rpcbind: RPCBIND_SOCKET } : {}),
      observer: {
        handlerFailed: (_program, procedure, error) =>
          output.note(`procedure ${procedure} failed: ${failureText(error)}`),
      },
      onConnection: (address, state, text) => {
        if (given.verbose !== true) return;
        output.note(`${address} ${state}${text === '' ? '' : `: ${text}`}`);
      },
    });
  } catch (error) {
    throw new CommandFailure(
      `cannot serve ${directory}: ${fileFailureText(error)}${fixOf(error)}`,
      {
        cause: error,
      },
    );
  }
}

function fixOf(error: unknown): string {
  switch (failureCode(error)) {
    case 'EADDRINUSE':
      return '; choose other ports (--port, --mount-port) or stop what listens there';
    case 'EADDRNOTAVAIL':
      return '; `iwarpd devices` shows which addresses the devices have';
    case 'ENOTDIR':
      return '; name a directory';
    default:
      return '';
  }
}

function announce(server: NfsServer, kind: string, given: NfsServeArguments, output: Output): void {
  const { address, mountPort } = server;
  const { path } = server.served.tree;
  const readOnly = given.writable !== true;
  if (given.json === true) {
    const { address: host, port } = address;
    printJson(output, { directory: path, host, port, mountPort, readOnly, provider: kind });
    return;
  }
  output.line(
    `ready: ${path}${readOnly ? ', read-only,' : ''} on ${address.address} port ${address.port} (RDMA), MOUNT on TCP port ${mountPort}`,
  );
  output.note(
    `mount it with: mount -t nfs -o rdma,port=${address.port},vers=3,nolock,mountport=${mountPort},mountproto=tcp HOST:${path} DIRECTORY`,
  );
  output.note(
    'not supported: MKNOD, locks, ACLs, Kerberos, NFS version 4; all files are accessed as the user who runs this',
  );
}
