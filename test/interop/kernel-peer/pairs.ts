/** A server and a client, one in a guest and one at its neighbour. */
import { quiet } from '#test/support/patience';
import { type GuestProcess, shellWord } from './kernel-peer.ts';

/** A shell command, and the guest or the neighbour to run it. */
export interface End {
  readonly place: { run(script: string): GuestProcess };
  readonly command: string;
}

export interface EndedPair {
  /** The client's or, where that is 0, the server's. */
  readonly status: number;
  /** Lines are marked `server: ` and `client: `. */
  readonly output: string;
}

/** How often a client of rdma_cm is started while its server refuses it, and the pause before each. */
const ATTEMPTS = 6;
const PAUSE_MS = 1500;

const limited = (command: string): string =>
  `timeout -k 1 "$PROGRAM_SECONDS" bash -c ${shellWord(command)}`;

const marked = (mark: string, { output }: GuestProcess): string =>
  output.replace(/^(?=.)/gm, `${mark}: `);

async function ended(server: GuestProcess, client: GuestProcess): Promise<EndedPair> {
  const [clients, servers] = await Promise.all([client.exit, server.exit]);
  return {
    status: clients || servers,
    output: `${marked('server', server)}${marked('client', client)}client ended ${clients}\nserver ended ${servers}\n`,
  };
}

/** Starts the client once the server listens on this TCP port. */
export async function runPair(port: number, server: End, client: End): Promise<EndedPair> {
  const serving = server.place.run(`serve ${port} ${limited(server.command)}`);
  await serving.waitFor(/^READY/m);
  return await ended(serving, client.place.run(limited(client.command)));
}

/** As `runPair`, for programs that connect by rdma_cm on RoCE: their listeners are invisible. */
export async function runCmPair(server: End, client: End): Promise<EndedPair> {
  const serving = server.place.run(limited(server.command));
  let serves = true;
  const over = (): void => {
    serves = false;
  };
  serving.exit.then(over, over);
  for (let attempt = 1; ; attempt++) {
    await quiet(PAUSE_MS);
    const asking = client.place.run(limited(client.command));
    if ((await asking.exit) === 0 || !serves || attempt === ATTEMPTS)
      return await ended(serving, asking);
  }
}
