/**
 * A guest's neighbour: a network namespace of the host, on an Ethernet segment with the guest. What
 * need not run beside the guest's kernel runs there, ten times faster.
 *
 * Root makes the namespace, and so does any user who may make user namespaces.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { networkNamespace } from '#test/support/network-namespace';
import { programSeconds } from '#test/support/patience';
import { guestTools } from './kernel-image.ts';
import { GuestProcess, type Wire } from './kernel-peer.ts';

const TAP = 'wire0';
const MAKE_TAP = ['ip', 'tuntap', 'add', 'dev', TAP, 'mode', 'tap'];

/**
 * Keeps the namespace until its input ends. Its queue is long, since the guest is slow to take
 * frames, and address resolution would count against the timeouts of programs.
 */
const HOLD = `
  set -e
  ip link set lo up
  ${MAKE_TAP.join(' ')}
  ip link set ${TAP} address 02:00:00:00:00:02 mtu 4300 txqueuelen 10000 up
  ip addr add 10.1.0.2/24 dev ${TAP}
  ip -6 addr add fd00::2/64 dev ${TAP} nodad
  ip neigh replace 10.1.0.1 dev ${TAP} lladdr 02:00:00:00:00:01 nud permanent
  ip -6 neigh replace fd00::1 dev ${TAP} lladdr 02:00:00:00:00:01 nud permanent
  echo ready
  read -r
`;

/** Has the addresses 10.1.0.2 and fd00::2; `close` it after the guest. */
export class Neighbour implements Wire {
  readonly tap = TAP;
  readonly within: readonly string[];
  readonly #holder: ChildProcessByStdio<Writable, Readable, null>;

  private constructor(holder: ChildProcessByStdio<Writable, Readable, null>, within: string[]) {
    this.#holder = holder;
    this.within = within;
  }

  /** Throws where the user may not make one. */
  static async open(): Promise<Neighbour> {
    const apart = networkNamespace(...MAKE_TAP);
    if (apart === undefined) throw new Error('no network namespace with a TAP device is permitted');
    const [command = '', ...rest] = [...apart, 'bash', '-c', HOLD];
    const holder = spawn(command, rest, { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(holder.stdout, 'readable');
    if (holder.stdout.read() === null) throw new Error('the network namespace cannot be set up');
    const asUser = apart.includes('--map-root-user') ? ['--user', '--preserve-credentials'] : [];
    return new Neighbour(holder, ['nsenter', '--target', `${holder.pid}`, '--net', ...asUser]);
  }

  /** Starts a bash script there, as `Guest.run` does in the guest. */
  run(script: string): GuestProcess {
    const [command = '', ...rest] = [...this.within, 'bash', '-c', script];
    const child = spawn(command, rest, {
      env: {
        ...process.env,
        PATH: `${guestTools()}:${process.env['PATH']}`,
        PROGRAM_SECONDS: `${programSeconds()}`,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A process group of its own, so that `kill` ends all of it.
      detached: true,
    });
    const started = new GuestProcess(script, () => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid);
    });
    for (const stream of [child.stdout, child.stderr])
      createInterface(stream).on('line', (line) => started.handleLine(line));
    child.on('error', (error) => started.handleLoss(String(error)));
    child.on('close', (status) => started.handleExit(status ?? 1));
    return started;
  }

  async close(): Promise<void> {
    this.#holder.stdin.end();
    if (this.#holder.exitCode === null) await once(this.#holder, 'close');
  }
}
