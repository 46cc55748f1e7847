/** Both ends of NFS over RDMA: ours on the host, the kernel's in a guest. */
import { execFile, execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { CommandFolder, Finished, RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { PROGRAM_MS, patience, programSeconds } from '../support/patience.ts';
import { repositoryRoot } from '../support/prerequisites.ts';
import { HOST_ADDRESS } from './kernel-peer/kernel-peer.ts';

/** A server of ours that listens. */
export interface RunningServer {
  readonly command: RunningCommand;
  readonly directory: string;
  readonly port: number;
  readonly mountPort: number;
}

/** Starts our server on the host's 127.0.0.1, for an existing directory. */
export async function startServer(
  folder: CommandFolder,
  directory: string,
  words: readonly string[] = ['--embedded', '--no-crc', '--writable'],
): Promise<RunningServer> {
  const [port, mountPort] = [await freePort(), await freePort()];
  const ports = ['--port', String(port), '--mount-port', String(mountPort)];
  const place = ['--host', '127.0.0.1', ...ports, '--no-root-squash', '--verbose'];
  const command = folder.start(['nfs', 'serve', directory, ...place, ...words]);
  await command.until(/^ready: /m);
  return { command, directory, port, mountPort };
}

/** A shell command that mounts our server in the guest's kernel. */
export function mountCommand(
  { directory, port, mountPort }: Omit<RunningServer, 'command'>,
  where: string,
  { host = HOST_ADDRESS, options = '' } = {},
): string {
  const own = `rdma,port=${port},vers=3,nolock,mountport=${mountPort},mountproto=tcp${options}`;
  return `mkdir -p ${where} && timeout ${programSeconds()} mount -t nfs -o ${own} ${host}:${directory} ${where}`;
}

/** Runs one of our file commands to its end. */
export async function nfsCommand(
  folder: CommandFolder,
  words: readonly string[],
): Promise<Finished> {
  return await folder.start(['nfs', ...words]).end();
}

/** The standard output of one of our file commands, which must succeed. */
export async function nfsBytes(words: readonly string[]): Promise<Buffer> {
  const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
  const options = {
    encoding: 'buffer',
    maxBuffer: 256 << 20,
    timeout: patience(PROGRAM_MS),
  } as const;
  return (await promisify(execFile)(process.execPath, [main, 'nfs', ...words], options)).stdout;
}

/** The output of `diff -r` for two trees: empty if they are equal. */
export function differences(left: string, right: string): string {
  try {
    return execFileSync('diff', ['-r', '--no-dereference', left, right], { encoding: 'utf8' });
  } catch (error) {
    const { stdout } = error as { stdout?: string };
    return stdout ?? String(error);
  }
}
