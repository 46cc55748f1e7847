/** Queue pairs: posting, modifying, querying. */
import type { CommandReply } from '#contract/protocol/commands';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { QPState, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { CQ, PD, QP, QPInit, SRQ } from '#contract/verbs/provider';
import type { QPAttributes, QPModification } from '#contract/verbs/qp-attributes';
import { checkCall } from '#contract/verbs/signatures';
import type { RecvWR, SendFields, SendWR } from '#contract/verbs/work-request';
import { ClientCQ } from './completion-queue.ts';
import { TeardownRank } from './lifetime.ts';
import { type PostQueue, postAll } from './posting.ts';
import { ReceiveRing } from './receive-ring.ts';
import { SendRing } from './send-ring.ts';
import { type DeviceScope, type Domain, ScopedObject } from './session.ts';
import { ClientSRQ } from './shared-receive-queue.ts';
import { WorkFailures } from './work-failures.ts';

export class ClientQP extends ScopedObject implements QP {
  readonly pd: PD;
  readonly type: QPType;
  readonly handle: number;
  readonly qpNum: number;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly capabilities: QPCapabilities;
  readonly failures = new WorkFailures();
  readonly #send: SendRing;
  readonly #receive: ReceiveRing | undefined;
  /** The send ring, with a check for unsupported operations if the device has any. */
  readonly #sendQueue: PostQueue<SendFields>;
  /**
   * The device flushes: it needs a doorbell for new receives, which it otherwise finds on its own.
   */
  #flushing = false;

  private constructor(
    pd: Domain,
    init: QPInit,
    reply: CommandReply<'createQP'>,
    mapping: Uint8Array,
  ) {
    const { scope } = pd;
    super(scope, 'queue pair');
    this.pd = pd;
    this.type = init.type ?? QPType.rc;
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
      roce: scope.roce,
      datagramsOf: this.type === QPType.ud ? pd : undefined,
    });
    this.#send = send;
    const { unsupported } = scope;
    this.#sendQueue =
      unsupported.size === 0
        ? send
        : {
            post: (wr) => (unsupported.has(wr.opcode) ? 'EOPNOTSUPP' : send.post(wr)),
            explain: (wr, code) =>
              code === 'EOPNOTSUPP'
                ? `not supported by device ${scope.deviceName}`
                : send.explain(wr, code),
          };
    const receive =
      reply.rqCount > 0
        ? new ReceiveRing(mapping, reply.rqOffset, reply.rqCount, maxRecvSge)
        : undefined;
    this.#receive = receive;
    scope.add(this, TeardownRank.queuePair);
    scope.queuePairs.set(this.qpNum, this);
  }

  /** Creates a queue pair, in INIT if it is `initialised`. */
  static async create(pd: Domain, init: QPInit, initialised: boolean): Promise<ClientQP> {
    const { scope, handle } = pd;
    const { session } = scope;
    const reply = await session.request('createQP', {
      pd: handle,
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
      // A daemon that does not know types refuses the field.
      ...(init.type === undefined ? {} : { type: init.type }),
    });
    try {
      const mapping = await session.commandChannel.map(reply.ring);
      return new ClientQP(pd, init, reply, mapping);
    } catch (error) {
      await session.request('destroyQP', { qp: reply.qp });
      throw error;
    }
  }

  postSend(wr: SendWR | readonly SendWR[]): void {
    this.assertUsable();
    try {
      postAll<SendFields>(wr, this.#sendQueue);
    } finally {
      // Also after a refusal: the requests before the refused one were posted.
      if (this.#send.doorbellDue()) this.session.commandChannel.doorbell(this.handle);
    }
  }

  postRecv(wr: RecvWR | readonly RecvWR[]): void {
    this.assertUsable();
    const receive = this.#receive;
    if (receive === undefined) {
      throw new VerbsError(
        'EINVAL',
        'this queue pair takes receives from its SRQ; post them there',
        {
          badIndex: 0,
        },
      );
    }
    try {
      postAll(wr, receive);
    } finally {
      const due = this.scope.receivesNeedDoorbell ? receive.doorbellDue() : this.#flushing;
      if (due) this.session.commandChannel.doorbell(this.handle);
    }
  }

  async modify(attributes: QPModification): Promise<void> {
    checkCall.modifyQP(attributes);
    this.assertUsable();
    const { state, ...rest } = attributes;
    const more = Object.values(rest).some((value) => value !== undefined);
    await this.session.request('modifyQP', {
      qp: this.handle,
      state,
      ...(more ? { attributes: rest } : {}),
    });
    if (state !== undefined) this.#flushing = state === QPState.ERR;
    if (state === QPState.RESET) this.failures.clear();
  }

  async query(): Promise<QPAttributes> {
    this.assertUsable();
    return await this.session.request('queryQP', { qp: this.handle });
  }

  async attachMcast(gid: string): Promise<void> {
    checkCall.attachMcast(gid);
    this.assertUsable();
    await this.session.request('attachMcast', { qp: this.handle, gid });
  }

  async detachMcast(gid: string): Promise<void> {
    checkCall.detachMcast(gid);
    this.assertUsable();
    await this.session.request('detachMcast', { qp: this.handle, gid });
  }

  noteFlushing(): void {
    this.#flushing = true;
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroyQP', { qp: this.handle });
  }

  protected override release(): void {
    if (this.scope.queuePairs.get(this.qpNum) === this) this.scope.queuePairs.delete(this.qpNum);
    super.release();
  }
}

function handleOf(cq: CQ, scope: DeviceScope): number {
  if (!(cq instanceof ClientCQ) || cq.scope !== scope) {
    throw invalid('the completion queue belongs to another context');
  }
  cq.assertUsable();
  return cq.handle;
}

function srqHandleOf(srq: SRQ, scope: DeviceScope): number {
  if (!(srq instanceof ClientSRQ) || srq.scope !== scope) {
    throw invalid('the shared receive queue belongs to another context');
  }
  srq.assertUsable();
  return srq.handle;
}
