/** The options of `iwarpd nfs`. */
import type { Command, Option } from 'commander';
import type { Output } from '#daemon/console/output';
import { MOUNT_PORT } from '#verbs-api/nfs/nfs3/constants';
import { NFS_RDMA_PORT } from '#verbs-api/rpcrdma/core/nfs-port';
import { parseAnyPort, parsePort } from '../arguments.ts';
import type { NfsFileArguments } from './nfs-files.ts';
import type { NfsServeArguments } from './nfs-serve.ts';

/** Environment of the commands, and options shared with other commands. */
interface NfsCommandContext {
  readonly output: Output;
  readonly signal: AbortSignal;
  readonly socketOption: () => Option;
  readonly addWireOptions: (command: Command, whose: string) => void;
}

/** Adds `nfs serve`, `nfs ls`, `nfs cat` and `nfs put`. */
export function addNfs(program: Command, context: NfsCommandContext): void {
  const nfs = program
    .command('nfs')
    .description('serve a directory over NFS version 3 on RDMA, or access one on a server');
  addServe(nfs, context);
  addFileCommands(nfs, context);
}

function addServe(nfs: Command, context: NfsCommandContext): void {
  const serve = nfs
    .command('serve')
    .description('serve a directory until Ctrl-C; nothing outside of it can be reached')
    .argument('<DIR>', 'the directory')
    .option('--writable', 'let clients change files (default: every change is refused)')
    .option(
      '--no-root-squash',
      "treat clients' user 0 as the user who runs this (default: user nobody, uid 65534)",
    )
    .option(
      '--host <ADDRESS>',
      'address to listen on, 0.0.0.0 for every IPv4 address (default: 127.0.0.1)',
    )
    .option(
      '--port <PORT>',
      'port of NFS over RDMA; 0 means any free port',
      parseAnyPort,
      NFS_RDMA_PORT,
    )
    .option(
      '--mount-port <PORT>',
      'TCP port of MOUNT; 0 means any free port',
      parseAnyPort,
      MOUNT_PORT,
    )
    .option('--rpcbind', "register the ports of NFS and MOUNT with this host's rpcbind")
    .option('-v, --verbose', 'print when clients connect and disconnect')
    .option('--json', 'print JSON when ready');
  addProviderOptions(serve, context);
  serve.action(async (directory: string, given: NfsServeArguments) => {
    const { runNfsServe } = await import('./nfs-serve.ts');
    await runNfsServe(directory, given, context.output, context.signal);
  });
}

function addFileCommands(nfs: Command, context: NfsCommandContext): void {
  const { output, signal } = context;
  const list = nfs
    .command('ls')
    .description('list a directory of a server')
    .argument('<HOST:PATH>', 'the path, from the root of the server')
    .option(
      '-l, --long',
      'also print mode, links, owner, group, size in bytes and time of each file',
    )
    .option('-a, --all', 'include names that start with a dot')
    .option('--json', 'print JSON');
  list.action(async (path: string, given: NfsFileArguments) => {
    const { runNfsList } = await import('./nfs-files.ts');
    await runNfsList(path, given, output, signal);
  });
  const cat = nfs
    .command('cat')
    .description('write files of a server to standard output')
    .argument('<HOST:PATH...>', 'the paths, from the root of the server');
  cat.action(async (paths: string[], given: NfsFileArguments) => {
    const { runNfsCat } = await import('./nfs-files.ts');
    await runNfsCat(paths, given, output, signal);
  });
  const put = nfs
    .command('put')
    .description('copy a file to a server')
    .argument('<FILE>', 'the file, or - for standard input')
    .argument('<HOST:PATH>', 'the path, from the root of the server; may be a directory')
    .option('--json', 'print what was written as JSON');
  put.action(async (file: string, path: string, given: NfsFileArguments) => {
    const { runNfsPut } = await import('./nfs-files.ts');
    await runNfsPut(file, path, given, output, signal);
  });
  for (const command of [list, cat, put]) {
    command
      .option('--port <PORT>', 'port of NFS over RDMA', parsePort, NFS_RDMA_PORT)
      .option(
        '--mount-port <PORT>',
        `TCP port of MOUNT (default: the one that the host's rpcbind has, else ${MOUNT_PORT})`,
        parsePort,
      );
    addProviderOptions(command, context);
  }
}

function addProviderOptions(command: Command, context: NfsCommandContext): void {
  command
    .option('--embedded', 'use an RNIC in this process, even if a daemon runs')
    .option('--native', 'use a real device through rdma-core')
    .addOption(context.socketOption());
  context.addWireOptions(command, 'of the connection');
}
