/** Asks a host's port mapper for the port of a program (RFC 1833 §3, version 2). */
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import { defineProcedure, defineProgram } from '#verbs-api/rpcrdma/core/program';
import { TcpRpcClient } from './tcp-rpc-client.ts';

interface Mapping {
  readonly program: number;
  readonly version: number;
}

const PORT_MAPPER_PORT = 111;
const IPPROTO_TCP = 6;
const NOBODY: Credential = { flavor: 'none' };

/** The port mapper program, limited to the procedures used here. */
export const PORT_MAPPER = defineProgram({
  name: 'PORTMAP',
  number: 100000,
  version: 2,
  procedures: {
    getport: defineProcedure<Mapping, number>({
      number: 3,
      args: {
        encode(writer, { program, version }) {
          for (const word of [program, version, IPPROTO_TCP, 0]) writer.uint32(word);
        },
        decode(reader) {
          const mapping = { program: reader.uint32(), version: reader.uint32() };
          reader.opaqueFixed(8);
          return mapping;
        },
      },
      result: {
        encode: (writer, port) => writer.uint32(port),
        decode: (reader) => reader.uint32(),
      },
      resultMaxBytes: () => 4,
      idempotent: true,
    }),
  },
});

/** The TCP port of a program on `host`; undefined if unknown. */
export async function findTcpPort(
  host: string,
  program: Mapping,
  mapperPort = PORT_MAPPER_PORT,
): Promise<number | undefined> {
  try {
    await using mapper = await TcpRpcClient.connect(host, mapperPort, NOBODY);
    const port = await mapper.call(PORT_MAPPER, 'getport', program);
    return port === 0 ? undefined : port;
  } catch {
    // Without a port mapper, use the usual port.
    return undefined;
  }
}
