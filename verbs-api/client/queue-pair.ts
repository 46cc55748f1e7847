/** Queue pairs: posting, modifying, querying. */
import type { QPAttributes, QPCapabilities } from '../contract/attributes.ts';
import type { CommandReply } from '../contract/commands.ts';
import { QPState } from '../contract/enums.ts';
import { type ErrnoCode, VerbsError } from '../contract/errors.ts';
import type { CQ, PD, QP, QPInit, SRQ } from '../contract/provider.ts';
import type { RecvWR, SendWR } from '../contract/work-request.ts';
import { ClientCQ } from './completion-queue.ts';
import { postAll } from './posting.ts';
import { ReceiveRing } from './receive-ring.ts';
import { SendRing } from './send-ring.ts';
import { ClientObject, type DeviceScope, TeardownRank } from './session.ts';
import { ClientSRQ } from './shared-receive-queue.ts';

/** `QP` over a link. */
export class ClientQP extends ClientObject implements QP {
  readonly pd: PD;
  readonly handle: number;
  readonly qpNum: number;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly capabilities: QPCapabilities;
  readonly scope: DeviceScope;
  readonly #send: SendRing;
  readonly #receive: ReceiveRing | undefined;
  readonly #postOneSend: (wr: SendWR) => ErrnoCode | undefined;
  readonly #postOneRecv: (wr: RecvWR) => ErrnoCode | undefined;
  /** The device flushes: it has to be told of new receives, which it otherwise finds by itself. */
  #flushing = false;

  private constructor(
    pd: PD,
    scope: DeviceScope,
    init: QPInit,
    reply: CommandReply<'createQP'>,
    mapping: Uint8Array,
  ) {
    super(scope.session, 'queue pair');
    this.pd = pd;
    this.scope = scope;
    this.handle = reply.qp;
    this.qpNum = reply.qpNum;
    this.sendCQ = init.sendCQ;
    this.recvCQ = init.recvCQ;
    this.capabilities = reply.capabilities;
    const { maxSendSge, maxRecvSge, maxInlineData } = reply.capabilities;
    const send = new SendRing(mapping, {
      count: reply.sqCount,
      maxSge: maxSendSge,
      maxInline: maxInlineData,
      sqSigAll: init.sqSigAll ?? false,
    });
    this.#send = send;
    const { unsupported } = scope;
    this.#postOneSend =
      unsupported.size === 0
        ? (wr) => send.post(wr)
        : (wr) => (unsupported.has(wr.opcode) ? 'EOPNOTSUPP' : send.post(wr));
    const receive =
      reply.rqCount > 0
        ? new ReceiveRing(mapping, reply.rqOffset, reply.rqCount, maxRecvSge)
        : undefined;
    this.#receive = receive;
    this.#postOneRecv = (wr) => (receive === undefined ? 'EINVAL' : receive.post(wr));
    scope.add(this, TeardownRank.queuePair);
    scope.queuePairs.set(this.qpNum, this);
  }

  /** Creates a queue pair, in INIT if it is `initialised`, in the protection domain `pdHandle`. */
  static async create(
    pd: PD,
    scope: DeviceScope,
    pdHandle: number,
    init: QPInit,
    initialised: boolean,
  ): Promise<ClientQP> {
    const { session } = scope;
    const reply = await session.request('createQP', {
      pd: pdHandle,
      sendCQ: handleOf(init.sendCQ, scope),
      recvCQ: handleOf(init.recvCQ, scope),
      srq: init.srq === undefined ? undefined : srqHandleOf(init.srq, scope),
      capabilities: {
        maxSendWr: init.maxSendWr,
        maxRecvWr: init.maxRecvWr,
        maxSendSge: init.maxSendSge ?? 1,
        maxRecvSge: init.maxRecvSge ?? 1,
        maxInlineData: init.maxInlineData ?? 0,
      },
      sqSigAll: init.sqSigAll ?? false,
      initialised,
    });
    try {
      const mapping = await session.link.map(reply.ring);
      return new ClientQP(pd, scope, init, reply, mapping);
    } catch (error) {
      await session.request('destroyQP', { qp: reply.qp });
      throw error;
    }
  }

  postSend(wr: SendWR | readonly SendWR[]): void {
    this.assertUsable();
    try {
      postAll(wr, this.#postOneSend, this.scope.deviceName);
    } finally {
      // Also after a refusal: the requests before the refused one are posted.
      if (this.#send.doorbellDue()) this.session.link.doorbell(this.handle);
    }
  }

  postRecv(wr: RecvWR | readonly RecvWR[]): void {
    this.assertUsable();
    const receive = this.#receive;
    if (receive === undefined) {
      throw new VerbsError('EINVAL', 'receives of this queue pair come from its SRQ', {
        badIndex: 0,
      });
    }
    try {
      postAll(wr, this.#postOneRecv, this.scope.deviceName);
    } finally {
      const due = this.scope.receivesNeedDoorbell ? receive.doorbellDue() : this.#flushing;
      if (due) this.session.link.doorbell(this.handle);
    }
  }

  async modify(attributes: { readonly state: QPState }): Promise<void> {
    this.assertUsable();
    await this.session.request('modifyQP', { qp: this.handle, state: attributes.state });
    this.#flushing = attributes.state === QPState.ERR;
  }

  async query(): Promise<QPAttributes> {
    this.assertUsable();
    return await this.session.request('queryQP', { qp: this.handle });
  }

  noteFlushing(): void {
    this.#flushing = true;
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroyQP', { qp: this.handle });
  }

  protected override release(): void {
    if (this.scope.queuePairs.get(this.qpNum) === this) this.scope.queuePairs.delete(this.qpNum);
    this.scope.remove(this);
  }
}

function handleOf(cq: CQ, scope: DeviceScope): number {
  if (!(cq instanceof ClientCQ) || cq.scope !== scope) {
    throw new VerbsError('EINVAL', 'the completion queue belongs to another context');
  }
  cq.assertUsable();
  return cq.handle;
}

function srqHandleOf(srq: SRQ, scope: DeviceScope): number {
  if (!(srq instanceof ClientSRQ) || srq.scope !== scope) {
    throw new VerbsError('EINVAL', 'the shared receive queue belongs to another context');
  }
  srq.assertUsable();
  return srq.handle;
}
