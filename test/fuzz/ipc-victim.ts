/** Neighbours of a hostile client: guarded memory, and a well-behaved client. */
import type { CommandName, CommandReply, CommandRequest } from '#contract/protocol/commands';
import { VerbsError } from '#contract/verbs/errors';
import type { ClientMemory } from '#daemon/clients/objects/client-memory';
import type { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { queueSizes } from '../support/queue-sizes.ts';
import { claim } from './target.ts';

/** Bytes that a client may register at `OWN_ADDRESS`. */
export const OWN_BYTES = 16_384;
/** See `OWN_BYTES`. */
export const OWN_ADDRESS = 0x40_0000n;

/** Memory of this process; guards surround the client's part. */
export class GuardedMemory implements ClientMemory {
  readonly sharedTier = { tier: 'shared', reason: 'fuzz' } as const;
  readonly views = new Map<string, Uint8Array>();
  readonly #own = new Uint8Array(3 * OWN_BYTES).fill(0x5a);
  #next = 0;

  createShared(lengthBytes: number) {
    const token = `shared ${this.#next++}`;
    const view = new Uint8Array(new ArrayBuffer(Math.ceil(lengthBytes / 8) * 8), 0, lengthBytes);
    this.views.set(token, view);
    const release = (): void => void this.views.delete(token);
    return { mapping: { token, lengthBytes }, view, release };
  }

  createRing(lengthBytes: number) {
    return this.createShared(lengthBytes);
  }

  openProcess(address: bigint, lengthBytes: number) {
    const offset = address - OWN_ADDRESS;
    if (offset < 0n || offset + BigInt(lengthBytes) > BigInt(OWN_BYTES)) {
      throw new VerbsError('EFAULT', "outside the client's memory");
    }
    const start = OWN_BYTES + Number(offset);
    const backing = new ViewBacking(this.#own.subarray(start, start + lengthBytes), 'process_vm');
    return { backing, reason: 'fuzz', release: () => undefined };
  }

  check(): void {
    const { length } = this.#own;
    const intact = (from: number, to: number): boolean => {
      for (let at = from; at < to; at++) if (this.#own[at] !== 0x5a) return false;
      return true;
    };
    claim(intact(0, OWN_BYTES) && intact(length - OWN_BYTES, length), 'memory around changed');
    claim(this.views.size === 0, `${this.views.size} shared pieces are left`);
  }
}

/** A well-behaved client, with a summary of its state. */
export class Victim {
  readonly context: ClientContext;
  readonly #memory = new GuardedMemory();
  readonly #qp: number;
  readonly #mr: { readonly view: Uint8Array };
  readonly #before: string;

  constructor(directory: DeviceDirectory) {
    this.context = new ClientContext({
      directory,
      memory: this.#memory,
      sendEvent: (event) => void this.#events.push(event.type),
      sendCompletion: () => void this.#events.push('completion'),
      label: 'victim',
    });
    const run = <N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> => {
      const reply = this.context.execute(name, request);
      if (reply instanceof Promise) throw new Error(`${name} did not finish at once`);
      return reply;
    };
    const { context } = run('openDevice', { name: undefined });
    const { pd } = run('allocPD', { context });
    const { cq } = run('createCQ', { context, cqe: 8, channel: undefined });
    const capabilities = queueSizes(4);
    const queues = { pd, sendCQ: cq, recvCQ: cq, srq: undefined };
    this.#qp = run('createQP', { ...queues, capabilities, sqSigAll: true }).qp;
    const { buffer, mapping } = run('allocBuffer', { lengthBytes: 4096 });
    const view = this.#memory.views.get(mapping.token);
    if (view === undefined) throw new Error('the buffer is missing');
    view.fill(0x77);
    this.#mr = { view };
    run('regMR', {
      pd,
      source: { kind: 'buffer', buffer, offset: 0 },
      lengthBytes: 4096,
      address: undefined,
      iova: undefined,
      access: 15,
      key: undefined,
    });
    const { id } = run('cmCreateId', {});
    run('cmBindAddr', { id, address: { address: '127.0.0.1', port: 0 } });
    this.#before = this.#sum();
  }

  readonly #events: string[] = [];

  /** Throws if another client changed its state. */
  check(): void {
    const now = this.#sum();
    claim(now === this.#before, `the victim's state changed from ${this.#before} to ${now}`);
    claim(
      this.#mr.view.every((byte) => byte === 0x77),
      "the victim's memory changed",
    );
  }

  close(): void {
    this.check();
    this.context.close();
    this.#memory.check();
  }

  #sum(): string {
    const state = this.context.execute('queryQP', { qp: this.#qp });
    const { objects, sharedBytes, pinnedBytes } = this.context.usage();
    const known = { state, objects, sharedBytes, pinnedBytes, events: this.#events };
    return JSON.stringify(known);
  }
}
