/**
 * QEMU's live migration over RDMA, between machines that no program runs in: their memory holds random
 * bytes, which the destination must have in the end.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

const MEMORY_MIB = 64;
/** Where the machine's memory holds the random bytes, and how many. */
const CONTENT_AT = 16 << 20;
const CONTENT_BYTES = 24 << 20;
/** Slow enough to act in the middle of a migration. */
const SLOW_BYTES_PER_SECOND = 4 << 20;

const folder = new CommandFolder();
const machines: Machine[] = [];
let socket: string;
let content: Buffer;
let port: number;

beforeEach(async () => {
  socket = folder.file('d/s');
  content = randomBytes(CONTENT_BYTES);
  writeFileSync(folder.file('content'), content);
  port = await freePort();
  await folder.daemon(socket, ['--device', 'roce0=roce']);
});

afterEach(async () => {
  await Promise.all(machines.splice(0).map((machine) => machine.quit()));
  await folder.clean();
});

/** A machine and its monitor (QMP). */
class Machine {
  readonly #name: string;
  readonly #process: RunningCommand;
  readonly #monitor: Socket;
  readonly #answers: AsyncIterator<string>;

  private constructor(name: string, process: RunningCommand, monitor: Socket) {
    this.#name = name;
    this.#process = process;
    this.#monitor = monitor;
    this.#answers = createInterface({ input: monitor })[Symbol.asyncIterator]();
  }

  static async start(name: string, ...words: readonly string[]): Promise<Machine> {
    const place = folder.file(`${name}.qmp`);
    const machine = [
      ...['qemu-system-x86_64', '-accel', 'tcg', '-nodefaults', '-no-user-config', '-S'],
      ...['-display', 'none', '-m', String(MEMORY_MIB), '-qmp', `unix:${place},server=on,wait=off`],
      ...['-pidfile', folder.file(`${name}.pid`)],
    ];
    const process = folder.start(['run', '--socket', socket, '--', ...machine, ...words]);
    const monitor = await until(`the monitor of ${name}`, async () => {
      const opened = connect(place);
      return await new Promise<Socket | undefined>((resolve) => {
        opened.once('connect', () => resolve(opened));
        opened.once('error', () => resolve(undefined));
      });
    });
    monitor.on('error', () => undefined);
    const started = new Machine(name, process, monitor);
    machines.push(started);
    await started.ask('qmp_capabilities');
    return started;
  }

  /** The result of a command that must succeed. */
  async ask(execute: string, given: object = {}): Promise<Record<string, unknown>> {
    this.#monitor.write(`${JSON.stringify({ execute, arguments: given })}\n`);
    for (;;) {
      const { value, done } = await this.#answers.next();
      if (done === true) throw new Error(`${execute}: the machine has ended`);
      const answer = JSON.parse(value) as { return?: Record<string, unknown>; error?: object };
      if (answer.error !== undefined) throw new Error(`${execute}: ${value}`);
      if (answer.return !== undefined) return answer.return;
    }
  }

  /** The last status of its migration. */
  async migrated(): Promise<string> {
    return await until('the end of the migration', async () => {
      const { status } = await this.ask('query-migrate');
      return ['completed', 'failed'].includes(String(status)) ? String(status) : undefined;
    });
  }

  /** Quits, and resolves when the process has ended: a killed `run` leaves its program running. */
  async quit(): Promise<void> {
    this.#monitor.end(`${JSON.stringify({ execute: 'quit' })}\n`);
    await this.#process.end();
  }

  kill(): void {
    process.kill(Number(readFileSync(folder.file(`${this.#name}.pid`), 'utf8')), 'SIGKILL');
  }

  /** The bytes of its memory that hold the content. */
  async content(): Promise<Buffer> {
    const filename = folder.file('received');
    await this.ask('pmemsave', { val: CONTENT_AT, size: CONTENT_BYTES, filename });
    return readFileSync(filename);
  }
}

function startSource(): Promise<Machine> {
  const loader = `loader,file=${folder.file('content')},addr=${CONTENT_AT},force-raw=on`;
  return Machine.start('source', '-device', loader);
}

function startDestination(name = 'destination'): Promise<Machine> {
  return Machine.start(name, '-incoming', 'defer');
}

async function migrate(source: Machine, destination: Machine): Promise<void> {
  const uri = `rdma:127.0.0.1:${port}`;
  await destination.ask('migrate-incoming', { uri });
  await source.ask('migrate', { uri });
}

async function pin(machine: Machine): Promise<void> {
  const capabilities = [{ capability: 'rdma-pin-all', state: true }];
  await machine.ask('migrate-set-capabilities', { capabilities });
}

describeWith(['qemu', 'rdma-programs'], 'QEMU moves a machine', () => {
  it('whose memory arrives', async () => {
    const [source, destination] = await Promise.all([startSource(), startDestination()]);
    await migrate(source, destination);
    expect(await source.migrated()).toBe('completed');
    expect((await destination.content()).equals(content)).toBe(true);
  });

  it('whose memory is registered as a whole, though packets are lost', async () => {
    const loss = ['drop', '--device', 'roce0', '--probability', '0.002'];
    const { status, stderr } = await runCommand(['fault', 'add', ...loss, '--socket', socket]);
    expect(status, stderr).toBe(0);
    const [source, destination] = await Promise.all([startSource(), startDestination()]);
    for (const machine of [source, destination]) await pin(machine);
    await migrate(source, destination);
    expect(await source.migrated()).toBe('completed');
    expect((await destination.content()).equals(content)).toBe(true);
  });

  it('to another machine after the first one was killed', async () => {
    const [source, first] = await Promise.all([startSource(), startDestination('first')]);
    await source.ask('migrate-set-parameters', { 'max-bandwidth': SLOW_BYTES_PER_SECOND });
    await migrate(source, first);
    await until('the first bytes', async () => {
      const { ram } = await source.ask('query-migrate');
      return Number((ram as { transferred?: number } | undefined)?.transferred) > 0 || undefined;
    });
    first.kill();
    expect(await source.migrated()).toBe('failed');

    const second = await startDestination('second');
    await source.ask('migrate-set-parameters', { 'max-bandwidth': 1 << 30 });
    await migrate(source, second);
    expect(await source.migrated()).toBe('completed');
    expect((await second.content()).equals(content)).toBe(true);
  });
});
