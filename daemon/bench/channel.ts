/**
 * Calls between the bench and its worker processes, over Node's channel to a forked child. The bench
 * ends a worker by its pid; a worker exits on its own when the bench does.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { failureText } from '../console/failure.ts';

/** The methods of a worker by name, with plain values as arguments and results. */
export type WorkerMethods = Readonly<Record<string, (argument: never) => unknown>>;

type Method<M extends WorkerMethods, N extends keyof M> = (
  argument: Parameters<M[N]>[0],
) => Promise<Awaited<ReturnType<M[N]>>>;

interface Call {
  readonly call: number;
  readonly method: string;
  readonly argument: unknown;
}

interface Reply {
  readonly call: number;
  readonly result?: unknown;
  readonly error?: string;
}

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

function isReply(message: unknown): message is Reply {
  return typeof message === 'object' && message !== null && 'call' in message;
}

function isCall(message: unknown): message is Call {
  return isReply(message) && 'method' in message && typeof message.method === 'string';
}

/** The bench's side of a worker process. */
export class BenchWorker<M extends WorkerMethods> {
  readonly #child: ChildProcess;
  readonly #label: string;
  readonly #waiting = new Map<number, Waiting>();
  #calls = 0;
  #failure: Error | undefined;

  /**
   * Starts the module `url` as a separate process, with these environment variables added.
   * `label` names it in errors.
   */
  constructor(url: URL, label: string, variables: Readonly<Record<string, string>> = {}) {
    this.#label = label;
    this.#child = fork(fileURLToPath(url), {
      env: { ...process.env, ...variables },
      serialization: 'advanced',
      execArgv: process.execArgv.filter((argument) => !argument.startsWith('--cpu-prof')),
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#child.on('message', (message) => this.#handleMessage(message));
    this.#child.on('error', (error) => this.#fail(error));
    this.#child.on('exit', (code, signal) => {
      this.#fail(new Error(`${label} exited early (${signal ?? `status ${code}`})`));
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Calls a method of the worker. Rejects if it throws, or if the worker ends. */
  call<N extends keyof M & string>(
    method: N,
    argument: Parameters<M[N]>[0],
  ): ReturnType<Method<M, N>> {
    const call = this.#calls++;
    const result = new Promise<unknown>((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      this.#waiting.set(call, { resolve, reject });
      this.#child.send({ call, method, argument } satisfies Call, (error) => {
        if (error !== null) this.#fail(error);
      });
    });
    // The worker replies with the result of the method of this name.
    return result as ReturnType<Method<M, N>>;
  }

  /** Ends the process and waits until it has exited. */
  async close(): Promise<void> {
    this.#child.removeAllListeners('exit');
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    await new Promise<void>((resolve) => {
      this.#child.once('exit', () => resolve());
      this.#child.kill('SIGKILL');
    });
  }

  #handleMessage(message: unknown): void {
    if (!isReply(message)) return;
    const waiting = this.#waiting.get(message.call);
    this.#waiting.delete(message.call);
    if (message.error === undefined) waiting?.resolve(message.result);
    else waiting?.reject(new Error(`${this.#label}: ${message.error}`));
  }

  #fail(error: Error): void {
    this.#failure = error;
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
  }
}

/** Answers the bench's calls in a worker process, until the bench exits. */
export function serveCalls(methods: WorkerMethods): void {
  process.on('disconnect', () => process.exit(0));
  process.on('message', (message) => {
    if (!isCall(message)) return;
    void answer(methods, message);
  });
}

async function answer(methods: WorkerMethods, call: Call): Promise<void> {
  let reply: Reply;
  try {
    const method = Object.hasOwn(methods, call.method) ? methods[call.method] : undefined;
    if (method === undefined) throw new Error(`unknown method ${call.method}`);
    reply = { call: call.call, result: await method(call.argument as never) };
  } catch (error) {
    reply = { call: call.call, error: failureText(error) };
  }
  process.send?.(reply);
}
