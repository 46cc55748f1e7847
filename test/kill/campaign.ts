/**
 * Rounds that kill a client, a daemon or a peer at a random instant, and the checks after each.
 * Two daemons run at two addresses; the far one has a peer that survives many rounds.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DaemonProcess, type Footprint } from '../support/daemon-process.ts';
import { ownAddress } from '../support/own-address.ts';
import { repositoryRoot } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import {
  type Environment,
  listens,
  ShimProgram,
  shimEnvironment,
} from '../support/shim-programs.ts';
import { type Account, readAccount } from './ledger.ts';

/** A survivor must learn of the other end's death within this time. */
const FLUSH_MS = 1000;
/** Processes that may have to run first, each of which waits for a core as this one does. */
const TURNS = 10;
/** Programs also need time to write their report and free their resources. */
const PROGRAM_END_MS = 4000;
const START_MS = 30_000;
/** Longest delay of an early kill: about the time from a client's start to its first message. */
const EARLY_MS = 400;
/** Longest delay of a kill during the conversation. */
const LATE_MS = 100;

/** Addresses of this process only, since RoCE binds UDP port 4791 at each. */
const ADDRESSES = [ownAddress(2), ownAddress(3)] as const;
/** More than a program can send before it is killed. */
const PINGS = '1000000';

/** Wires between the devices. */
export const WIRES = ['tcp', 'sctp', 'roce'] as const;
type Wire = (typeof WIRES)[number];

const DEVICES = {
  tcp: {},
  sctp: { lowerLayer: 'sctp' },
  roce: { transport: 'roce' },
} as const satisfies Record<Wire, object>;

/**
 * A daemon that was killed closes no association: its peers find out when retransmissions or a
 * heartbeat get no answer.
 */
const SILENCE_MS: Readonly<Record<Wire, number>> = { tcp: 0, sctp: 120_000, roce: 0 };

/** Who dies. `none`: the client ends cleanly, and every message must be accounted for. */
type Victim = 'client' | 'near daemon' | 'far daemon' | 'peer' | 'none';
/** Programs at the two ends. */
export type Load = 'typescript' | 'rping' | 'ib_write_bw';

interface Round {
  readonly number: number;
  readonly load: Load;
  readonly victim: Victim;
  /** Kills without waiting for messages in both directions. */
  readonly early: boolean;
  readonly delayMs: number;
}

/** Totals over all rounds. */
interface Tally {
  rounds: number;
  kills: Record<string, number>;
  /** Successful Sends that were compared with received messages. */
  sends: number;
  /** Longest time that a survivor took to learn of a death, in milliseconds. */
  slowestMs: number;
}

/** A line that an endpoint prints. */
interface Line {
  readonly port?: number;
  readonly running?: boolean;
  readonly ended?: string;
  readonly failed?: string;
  readonly at?: number;
  readonly sent?: number;
  readonly received?: number;
}

/** Fails the campaign. */
function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

/** A client or an anchor as a process. */
class Endpoint {
  readonly #child: ChildProcess;
  readonly #lines: Line[] = [];
  readonly #accountPath: string;
  #rest = '';
  /** It has exited, and all its output has been read. */
  #closed = false;
  #wake = (): void => undefined;

  constructor(words: readonly string[], accountPath: string) {
    const program = join(repositoryRoot(), 'dist/test/kill/endpoint.js');
    this.#accountPath = accountPath;
    this.#child = spawn(process.execPath, [program, ...words], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stdout?.on('data', (bytes: Buffer) => this.#read(bytes.toString()));
    this.#child.on('close', () => {
      this.#closed = true;
      this.#wake();
    });
  }

  #read(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    this.#lines.push(...lines.map((line): Line => JSON.parse(line)));
    this.#wake();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Its actions, read from its account file. */
  account(): Account | undefined {
    return readAccount(this.#accountPath);
  }

  /** Waits for the first matching line; undefined if the process exits or the time is up. */
  async line(fits: (line: Line) => boolean, limitMs: number): Promise<Line | undefined> {
    const deadline = Date.now() + limitMs;
    for (;;) {
      const index = this.#lines.findIndex(fits);
      if (index >= 0) return this.#lines.splice(0, index + 1).at(-1);
      const leftMs = deadline - Date.now();
      if (leftMs <= 0 || this.#closed) return undefined;
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      await Promise.race([woken, sleep(Math.min(leftMs, 100))]);
    }
  }

  /** Drops lines of earlier rounds. */
  forget(): void {
    this.#lines.length = 0;
  }

  command(word: string): void {
    this.#child.stdin?.write(`${word}\n`);
  }

  async kill(): Promise<void> {
    const ended = this.running ? once(this.#child, 'exit') : undefined;
    this.#child.kill('SIGKILL');
    await ended;
  }
}

/** A daemon and its address. */
class Side {
  readonly address: string;
  readonly #index: number;
  readonly #wire: Wire;
  #daemon: DaemonProcess | undefined;
  #environment: Environment | undefined;
  /** The daemon's resources between two rounds. */
  baseline: Footprint | undefined;

  constructor(index: number, wire: Wire) {
    this.#index = index;
    this.#wire = wire;
    this.address = ADDRESSES[index] ?? '';
  }

  get daemon(): DaemonProcess {
    if (this.#daemon === undefined) throw new Error('the daemon is not running');
    return this.#daemon;
  }

  get environment(): Environment {
    return this.#environment ?? {};
  }

  /** Starts the daemon, or restarts it in the same directory after it was killed. */
  async start(): Promise<void> {
    const name = `kill${this.#index}`;
    const options = {
      devices: [{ name, addresses: [this.address], ...DEVICES[this.#wire] }],
      native: false as const,
      logLevel: 'error' as const,
    };
    this.#daemon =
      this.#daemon === undefined
        ? await DaemonProcess.start(options)
        : await DaemonProcess.startIn(this.#daemon.directory, options);
    this.#environment ??= await shimEnvironment(this.#daemon.socketPath);
  }

  async clean(): Promise<void> {
    await this.#daemon?.clean();
  }
}

/** Measures how late this process's timers fire, hence how busy the machine is. */
class Lateness {
  #worstMs = 0;
  #last = Date.now();
  readonly #timer = setInterval(() => {
    const now = Date.now();
    this.#worstMs = Math.max(this.#worstMs, now - this.#last - 20);
    this.#last = now;
  }, 20);

  /** Begins a round. */
  reset(): void {
    this.#worstMs = 0;
  }

  /** The worst delay since the round began. */
  get worstMs(): number {
    return Math.max(this.#worstMs, Date.now() - this.#last - 20);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

export class Campaign {
  readonly tally: Tally = { rounds: 0, kills: {}, sends: 0, slowestMs: 0 };
  readonly #prng: Prng;
  readonly #loads: readonly Load[];
  readonly #wire: Wire;
  readonly #near: Side;
  readonly #far: Side;
  readonly #lateness = new Lateness();
  readonly #accounts = mkdtempSync(join(tmpdir(), 'iwarpd-kill-'));
  #anchor: Endpoint | undefined;
  #anchorPort = 0;
  #anchorDescriptors = 0;
  /** Differs from that of other campaigns on this machine. */
  #nextPort = 22_000 + (process.pid % 50) * 200;

  /** Draws from `loads`: the first as often as all others together. */
  constructor(seed: number, loads: readonly Load[], wire: Wire = 'tcp') {
    this.#prng = new Prng(seed);
    // Over RoCE, a perftest server checks neither its connection nor its queue pair.
    this.#loads = wire === 'roce' ? loads.filter((load) => load !== 'ib_write_bw') : loads;
    this.#wire = wire;
    this.#near = new Side(0, wire);
    this.#far = new Side(1, wire);
  }

  /** Starts everything and records what daemons and peer hold between rounds. */
  async start(): Promise<void> {
    await this.#near.start();
    await this.#far.start();
    await this.#startAnchor();
    const plain = { number: 0, early: false, delayMs: 20 };
    await this.#converse({ ...plain, load: 'typescript', victim: 'none' });
    for (const load of this.#loads.filter((name) => name !== 'typescript')) {
      await this.#runPrograms({ ...plain, load, victim: 'client' });
    }
    await sleep(500);
    this.#near.baseline = await this.#near.daemon.footprint();
    this.#far.baseline = await this.#far.daemon.footprint();
    this.#anchorDescriptors = this.#countAnchorDescriptors();
  }

  /** Draws and plays a round. Throws if a check fails. */
  async round(): Promise<Round> {
    const round = this.#draw();
    this.#lateness.reset();
    try {
      await (round.load === 'typescript' ? this.#converse(round) : this.#runPrograms(round));
      await this.#settle();
    } catch (error) {
      throw new Error(`${describeRound(round)}: ${error instanceof Error ? error.message : error}`);
    }
    this.tally.rounds += 1;
    const key = `${round.load}, ${round.victim}`;
    this.tally.kills[key] = (this.tally.kills[key] ?? 0) + 1;
    return round;
  }

  async stop(): Promise<void> {
    this.#lateness.stop();
    await this.#anchor?.kill();
    await this.#near.clean();
    await this.#far.clean();
    rmSync(this.#accounts, { recursive: true, force: true });
  }

  #draw(): Round {
    const prng = this.#prng;
    const others = this.#loads.slice(1);
    const first = others.length === 0 || prng.oneIn(2);
    const load = (first ? this.#loads[0] : others[prng.below(others.length)]) ?? 'typescript';
    const processes: readonly Victim[] =
      load === 'typescript'
        ? ['client', 'client', 'client', 'none', 'peer']
        : ['client', 'client', 'peer', 'peer'];
    // Over RoCE, a receiver never learns that its sender's host is gone.
    const daemons: readonly Victim[] = this.#wire === 'roce' ? [] : ['near daemon', 'far daemon'];
    const victims = [...processes, ...daemons];
    const victim = victims[prng.below(victims.length)] ?? 'client';
    const early = victim === 'client' && prng.oneIn(3);
    const delayMs = prng.below(early ? EARLY_MS : LATE_MS);
    return { number: this.tally.rounds + 1, load, victim, early, delayMs };
  }

  async #startAnchor(): Promise<void> {
    const { daemon, address } = this.#far;
    const path = join(this.#accounts, 'anchor');
    const anchor = new Endpoint(['anchor', daemon.socketPath, path, address], path);
    const line = await anchor.line(({ port }) => port !== undefined, START_MS);
    check(line?.port !== undefined, 'the peer did not start');
    this.#anchor = anchor;
    this.#anchorPort = line.port;
  }

  #countAnchorDescriptors(): number {
    return readdirSync(`/proc/${this.#anchor?.pid}/fd`).length;
  }

  /** Checks that a survivor learned of the death in time, at `atMs`. */
  #inTime(who: string, killedMs: number, atMs: number | undefined, limitMs: number): void {
    check(atMs !== undefined, `${who} did not learn of the death`);
    const tookMs = atMs - killedMs;
    this.tally.slowestMs = Math.max(this.tally.slowestMs, tookMs);
    const limit = limitMs + TURNS * this.#lateness.worstMs;
    check(tookMs <= limit, `${who} learned of the death after ${tookMs} ms, limit ${limit} ms`);
  }

  /** A TypeScript client and the anchor. */
  async #converse(round: Round): Promise<void> {
    const anchor = this.#anchor;
    check(anchor !== undefined, 'the peer is not running');
    anchor.forget();
    const path = join(this.#accounts, 'client');
    // A client that dies early may not reach its own first line.
    rmSync(path, { force: true });
    const place = [this.#far.address, `${this.#anchorPort}`];
    const client = new Endpoint(['client', this.#near.daemon.socketPath, path, ...place], path);
    try {
      if (!round.early) {
        const line = await client.line(({ running }) => running === true, START_MS);
        check(line !== undefined, 'the client did not start');
      }
      await sleep(round.delayMs);
      const killedMs = Date.now();
      if (round.victim === 'none') await this.#farewell(client, anchor);
      else await this.#killEnd(round, client, anchor, killedMs);
    } finally {
      await client.kill();
    }
  }

  /** Ends both cleanly and checks that every message arrived. */
  async #farewell(client: Endpoint, anchor: Endpoint): Promise<void> {
    client.command('end');
    const here = await client.line(({ ended }) => ended !== undefined, START_MS);
    const there = await anchor.line(({ ended }) => ended !== undefined, START_MS);
    const sums = `${JSON.stringify(here)}, ${JSON.stringify(there)}`;
    check(here?.ended === 'farewell' && there?.ended === 'farewell', `no farewell: ${sums}`);
    check(here.sent === there.received && there.sent === here.received, `not equal: ${sums}`);
    this.tally.sends += (here.sent ?? 0) + (there.sent ?? 0);
  }

  async #killEnd(
    round: Round,
    client: Endpoint,
    anchor: Endpoint,
    killedMs: number,
  ): Promise<void> {
    switch (round.victim) {
      case 'client':
        await client.kill();
        await this.#survives('the peer', anchor, killedMs, client, round.early);
        break;
      case 'peer':
        await anchor.kill();
        await this.#survives('the client', client, killedMs, anchor, false);
        await this.#startAnchor();
        break;
      case 'near daemon':
        await this.#near.daemon.end('SIGKILL');
        await this.#survives('the peer', anchor, killedMs, undefined, false, this.#silenceMs);
        await this.#survives('the client', client, killedMs, undefined, false);
        await this.#restart(this.#near);
        break;
      default:
        await this.#far.daemon.end('SIGKILL');
        await this.#survives('the client', client, killedMs, undefined, false, this.#silenceMs);
        await this.#survives('the peer', anchor, killedMs, undefined, false);
        await this.#restart(this.#far);
    }
  }

  /** How long peers on another daemon may fail to notice that this one was killed. */
  get #silenceMs(): number {
    return SILENCE_MS[this.#wire];
  }

  /** Checks that a survivor learned of the death and received every completed Send of the dead end. */
  async #survives(
    who: string,
    survivor: Endpoint,
    killedMs: number,
    dead: Endpoint | undefined,
    early: boolean,
    silenceMs = 0,
  ): Promise<void> {
    const account = dead?.account();
    const line = await survivor.line(
      ({ ended, failed }) => ended !== undefined || failed !== undefined,
      early ? FLUSH_MS : START_MS + silenceMs,
    );
    // A process that died early may never have connected.
    if (line === undefined && early) {
      check((account?.sent ?? 0) === 0, `${who} saw no connection`);
      return;
    }
    this.#inTime(who, killedMs, line?.at, FLUSH_MS + silenceMs);
    check(line?.ended !== 'farewell', `${who} saw a farewell instead of a failure`);
    check(!/payload|message/.test(line?.ended ?? ''), `${who}: ${line?.ended}`);
    if (account === undefined || line?.received === undefined) return;
    const lost = `the dead end completed ${account.sent} Sends, ${who} received ${line.received}`;
    check(account.sent <= line.received, lost);
    this.tally.sends += account.sent;
  }

  /** Restarts a killed daemon in its directory. The peer exits when its daemon dies. */
  async #restart(side: Side): Promise<void> {
    if (side === this.#far) {
      const anchor = this.#anchor;
      const deadline = Date.now() + START_MS;
      while (anchor?.running === true && Date.now() < deadline) await sleep(10);
      check(anchor?.running === false, 'the peer still runs without its daemon');
    }
    await side.start();
    if (side === this.#far) await this.#startAnchor();
  }

  /** Two unmodified programs. */
  async #runPrograms(round: Round): Promise<void> {
    const port = `${this.#nextPort++}`;
    const words =
      round.load === 'rping'
        ? { server: ['rping', '-s', '-a', this.#far.address, '-p', port, '-C', PINGS], client: [] }
        : { server: this.#perftest('kill1', port), client: this.#perftest('kill0', port) };
    const server = new ShimProgram(words.server, this.#far.environment);
    const clientWords =
      round.load === 'rping'
        ? ['rping', '-c', '-a', this.#far.address, '-p', port, '-C', PINGS]
        : [...words.client, this.#far.address];
    if (this.#wire === 'tcp') await listens(Number(port), server);
    else await this.#serves(server);
    const client = new ShimProgram(clientWords, this.#near.environment);
    try {
      if (!round.early) await this.#transfers();
      await sleep(round.delayMs);
      await this.#killProgram(round, client, server);
    } finally {
      await Promise.all([client.kill(), server.kill()]);
    }
  }

  /** Waits until a server has a connection id: it listens soon, and requests wait meanwhile. */
  async #serves(server: ShimProgram): Promise<void> {
    for (;;) {
      check(server.running, `ended instead of listening: ${server.output}`);
      const { clients } = await this.#far.daemon.status();
      const found = clients.find(({ pid }) => pid === server.pid);
      if ((found?.usage.objects['id'] ?? 0) > 0) return;
      await sleep(10);
    }
  }

  #perftest(device: string, port: string): string[] {
    return ['ib_write_bw', '-R', '-F', '-d', device, '-p', port, '-D', '25', '-s', '16384'];
  }

  /** Waits until the far daemon receives data. */
  async #transfers(): Promise<void> {
    const placed = async () =>
      (await this.#far.daemon.status()).devices[0]?.counters['placed_bytes'] ?? 0;
    const before = await placed();
    const deadline = Date.now() + START_MS;
    while ((await placed()) - before < 10_000) {
      check(Date.now() < deadline, 'the programs transfer nothing');
      await sleep(10);
    }
  }

  async #killProgram(round: Round, client: ShimProgram, server: ShimProgram): Promise<void> {
    const killedMs = Date.now();
    const survivors: ShimProgram[] = [];
    const daemon =
      round.victim === 'near daemon'
        ? this.#near
        : round.victim === 'far daemon'
          ? this.#far
          : undefined;
    if (daemon !== undefined) {
      await daemon.daemon.end('SIGKILL');
      survivors.push(client, server);
    } else {
      const [victim, survivor] = round.victim === 'client' ? [client, server] : [server, client];
      await victim.kill();
      // A server without a connection keeps waiting.
      if (!round.early) survivors.push(survivor);
    }
    for (const survivor of survivors) {
      const { late, status, output } = await survivor.end();
      const who = survivor === client ? 'the client' : 'the server';
      check(!late, `${who} hangs: ${output.slice(-200)}`);
      const silenceMs = daemon === undefined ? 0 : this.#silenceMs;
      this.#inTime(who, killedMs, Date.now(), PROGRAM_END_MS + silenceMs);
      const known = survivor === server || status !== 0 || /DISCONNECT|error/i.test(output);
      check(known, `${who} reports success: ${output.slice(-200)}`);
    }
    if (daemon !== undefined) {
      if (daemon === this.#far) await this.#anchorEnds(killedMs);
      await this.#restart(daemon);
    }
  }

  async #anchorEnds(killedMs: number): Promise<void> {
    const line = await this.#anchor?.line(({ failed }) => failed !== undefined, START_MS);
    this.#inTime('the peer', killedMs, line?.at, FLUSH_MS);
  }

  /** Checks that survivors hold nothing left over from the round. */
  async #settle(): Promise<void> {
    for (const side of [this.#near, this.#far]) {
      const { baseline } = side;
      if (baseline === undefined) continue;
      const deadline = Date.now() + FLUSH_MS + START_MS / 10;
      let now = await side.daemon.footprint();
      while (!isClean(now, baseline) && Date.now() < deadline) {
        await sleep(20);
        now = await side.daemon.footprint();
      }
      const sums = `${JSON.stringify(now)} instead of ${JSON.stringify(baseline)}`;
      check(isClean(now, baseline), `the daemon at ${side.address} holds ${sums}`);
    }
    if (this.#anchorDescriptors === 0) return;
    const deadline = Date.now() + FLUSH_MS;
    while (this.#countAnchorDescriptors() > this.#anchorDescriptors && Date.now() < deadline) {
      await sleep(20);
    }
    const count = this.#countAnchorDescriptors();
    const sums = `${count} descriptors instead of ${this.#anchorDescriptors}`;
    check(count <= this.#anchorDescriptors, `the peer holds ${sums}`);
  }
}

/** True if a daemon holds no more than its baseline; a restarted one may hold less. */
function isClean(now: Footprint, baseline: Footprint): boolean {
  return (
    now.clients === baseline.clients &&
    now.descriptors <= baseline.descriptors &&
    now.sharedMappings <= baseline.sharedMappings &&
    now.files.join() === baseline.files.join()
  );
}

export function describeRound({ number, load, victim, early, delayMs }: Round): string {
  const instant = `${delayMs} ms after ${early ? 'the start' : 'the first transfers'}`;
  return `round ${number} (${load}, ${victim === 'none' ? 'no kill' : `kill of the ${victim}`}, ${instant})`;
}
