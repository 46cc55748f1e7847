/**
 * Registers the server with the host's rpcbind (RFC 1833 §2.1, version 4) through its local socket:
 * rpcbind does not accept registrations over a network.
 */
import { isIPv6 } from 'node:net';
import { bool, struct, uint32 } from '#verbs-api/rpcrdma/core/codecs';
import { defineProcedure, defineProgram, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { ownCredential } from '../client/nfs-client.ts';
import { TcpRpcClient } from './tcp-rpc-client.ts';

/** A program of this host and its address. */
interface Registration {
  readonly program: number;
  readonly version: number;
  readonly transport: 'tcp' | 'rdma';
  readonly address: string;
  readonly port: number;
}

/** rpcb: an entry of rpcbind. */
interface Binding {
  readonly program: number;
  readonly version: number;
  readonly netid: string;
  readonly address: string;
  readonly owner: string;
}

/** The socket rpcbind listens on for local programs. */
export const RPCBIND_SOCKET = '/run/rpcbind.sock';

const TEXT_MAX_BYTES = 256;
const text: XdrCodec<string> = {
  encode: (writer, value) => writer.string(value),
  decode: (reader) => reader.string(TEXT_MAX_BYTES),
};
const binding = struct<Binding>({
  program: uint32,
  version: uint32,
  netid: text,
  address: text,
  owner: text,
});

/** The rpcbind program, limited to registration. */
const RPCBIND = defineProgram({
  name: 'RPCBIND',
  number: 100000,
  version: 4,
  procedures: {
    set: defineProcedure<Binding, boolean>({
      number: 1,
      args: binding,
      result: bool,
      resultMaxBytes: () => 4,
    }),
    unset: defineProcedure<Binding, boolean>({
      number: 2,
      args: binding,
      result: bool,
      resultMaxBytes: () => 4,
    }),
  },
});

/**
 * Registers programs. Returns a function that removes them again and never rejects. Rejects with
 * ECONNREFUSED if rpcbind is not running, with EADDRINUSE if it has one of the programs at another
 * address; then none is registered.
 */
export async function register(
  registrations: readonly Registration[],
  socketPath: string = RPCBIND_SOCKET,
): Promise<() => Promise<void>> {
  const entered: Binding[] = [];
  const leave = async (): Promise<void> => {
    try {
      await using rpcbind = await connect(socketPath);
      for (const each of entered.splice(0)) await rpcbind.call(RPCBIND, 'unset', each);
    } catch {
      // rpcbind has exited, and its registrations with it.
    }
  };
  try {
    await using rpcbind = await connect(socketPath);
    for (const each of registrations.map(bindingOf)) {
      if (!(await rpcbind.call(RPCBIND, 'set', each))) {
        const { program, version, netid } = each;
        const taken = new Error(`rpcbind has program ${program} version ${version} on ${netid}`);
        throw Object.assign(taken, { code: 'EADDRINUSE' });
      }
      entered.push(each);
    }
  } catch (error) {
    await leave();
    throw error;
  }
  return leave;
}

async function connect(socketPath: string): Promise<TcpRpcClient> {
  try {
    return await TcpRpcClient.connectLocal(socketPath, ownCredential());
  } catch (error) {
    const absent = new Error(`no rpcbind listens at ${socketPath}`, { cause: error });
    throw Object.assign(absent, { code: 'ECONNREFUSED' });
  }
}

// RPCR-10-02, RPCR-12-01, RPCR-12-03
function bindingOf({ program, version, transport, address, port }: Registration): Binding {
  return {
    program,
    version,
    netid: isIPv6(address) ? `${transport}6` : transport,
    address: `${address}.${port >> 8}.${port & 0xff}`,
    owner: String(process.geteuid?.() ?? 0),
  };
}
