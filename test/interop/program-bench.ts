/** A daemon, and unmodified programs that talk over it in pairs, each under `iwarpd run`. */
import { readFileSync } from 'node:fs';
import { CommandFolder, type RunningCommand } from '../support/cli-process.ts';
import { PROGRAM_MS, patience, until } from '../support/patience.ts';

/** Where servers listen. */
export const ADDRESS = '127.0.0.1';

/** The outcome of a program: its exit status, and both its streams as one text. */
export interface EndedProgram {
  readonly status: number | undefined;
  readonly output: string;
}

/** Both ends of a transfer. */
export interface EndedPair {
  readonly server: EndedProgram;
  readonly client: EndedProgram;
}

/** A private daemon for the programs of a suite. */
export class ProgramBench {
  readonly folder = new CommandFolder();
  readonly socketPath = this.folder.file('d/s');

  /** Starts the daemon with additional options. */
  async start(options: readonly string[] = []): Promise<void> {
    await this.folder.daemon(this.socketPath, options);
  }

  /**
   * Starts a program under `timeout`, which passes on signals and status. The limit is
   * `idleSeconds`, and more on a busy machine.
   */
  program(words: readonly string[], idleSeconds = PROGRAM_MS / 1000): RunningCommand {
    const limit = ['timeout', '--kill-after=1', `${patience(idleSeconds * 1000) / 1000}`];
    return this.folder.start(['run', '--socket', this.socketPath, '--', ...limit, ...words]);
  }

  async run(words: readonly string[], idleSeconds?: number): Promise<EndedProgram> {
    return await endOf(this.program(words, idleSeconds));
  }

  /** Starts a server and waits until something listens on `port`. */
  async server(
    port: number,
    words: readonly string[],
    idleSeconds?: number,
  ): Promise<RunningCommand> {
    const server = this.program(words, idleSeconds);
    const what = (): string => `${words.join(' ')} to listen: ${server.stdout}${server.stderr}`;
    await until(what, () => isListening(port));
    return server;
  }

  /** Runs a server and then its client; returns the outcomes of both. */
  async pair(
    port: number,
    server: readonly string[],
    client: readonly string[],
  ): Promise<EndedPair> {
    const serving = await this.server(port, server);
    const clientEnd = await this.run(client);
    return { client: clientEnd, server: await endOf(serving) };
  }

  /** Runs `fault`, which must succeed. */
  async fault(...words: readonly string[]): Promise<void> {
    const done = await endOf(this.folder.start(['fault', ...words, '--socket', this.socketPath]));
    if (done.status !== 0) throw new Error(done.output);
  }

  /** Ends the daemon and whatever still runs. */
  async stop(): Promise<void> {
    await this.folder.clean();
  }
}

/** Waits for the end of a program of a bench. */
export async function endOf(program: RunningCommand): Promise<EndedProgram> {
  const { status, stdout, stderr } = await program.end();
  return { status, output: stdout + stderr };
}

/** Checks without connecting, since a server may serve only its first connection. */
export function isListening(port: number): boolean {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0');
  const listening = new RegExp(`^ *\\d+: [0-9A-F]+:${wanted} [0-9A-F]+:0000 0A `, 'm');
  return ['/proc/net/tcp', '/proc/net/tcp6'].some((path) =>
    listening.test(readFileSync(path, 'utf8')),
  );
}
