/** The parts of queue pairs that personas share: creation, doorbell and destruction. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import { isIdle, qpStateName } from '#contract/verbs/qp-state';
import type { QPInit } from '#daemon/rnic/queue-pair-init';
import { DONE, type KernelReply, refusal } from '../kernel-file.ts';
import { CountedDestroy, CreateQP, PostSend } from './layouts.ts';
import { UverbsQp } from './objects.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';
import { eventsReported } from './queues.ts';
import { SEND_WORDS_BYTES, SendWords } from './send-words.ts';

/** Why a forked child cannot post. */
export const OTHER_PROCESS =
  'the device was opened before fork by a parent process: open it in this process';

/** Offsets of the fields of a request to create a queue pair. */
export type CreateOffsets = {
  readonly [Field in Exclude<keyof typeof CreateQP.request, 'bytes'>]: number;
};

/** Registers a requested queue pair; `choose` gives what the provider decides, with an SRQ or without. */
export function addQP(
  { file, fields, bytes }: CommandCall,
  at: CreateOffsets,
  choose: (shared: boolean) => Pick<QPInit, 'capabilities' | 'type' | 'kind' | 'inlineAsked'>,
): UverbsQp {
  const handleAt = (offset: number) => fields.getUint32(offset, true);
  const pd = file.table.expect('pd', handleAt(at.pdHandle));
  const sendCQ = file.table.expect('cq', handleAt(at.sendCQ));
  const recvCQ = file.table.expect('cq', handleAt(at.recvCQ));
  const shared = fields.getUint8(at.isSrq) !== 0;
  const srq = shared ? file.table.expect('srq', handleAt(at.srqHandle)) : undefined;
  const chosen = choose(shared);
  const object = file.table.add('qp', (handle) =>
    file.rings.make((rings) => {
      const words = new SendWords();
      const qp = file.device.nic.createQP(pd.pd, {
        ...chosen,
        sendCQ: sendCQ.cq,
        recvCQ: recvCQ.cq,
        srq: srq?.srq,
        sqSigAll: fields.getUint8(at.sqSigAll) !== 0,
        ring: (ringBytes) => {
          const memory = rings.take(ringBytes, ringBytes + SEND_WORDS_BYTES);
          words.place(memory);
          return memory;
        },
        receiveRing: (ringBytes) => rings.take(ringBytes),
        progress: () => words.progress,
        onState: (state) => words.handleState(state),
        tag: undefined,
      });
      const userHandle = bytes.slice(at.userHandle, at.userHandle + 8);
      rings.charge(qp.sqCount + qp.rqCount, () => qp.close(file.services.host.now()));
      const [sendRing, receiveRing] = [rings.at(0), rings.second];
      return new UverbsQp(file, handle, { userHandle, qp, words, sendRing, receiveRing });
    }),
  );
  object.qp.tag = object;
  return object;
}

/** The sizes of the receive queue are the requested ones, even without such a queue. */
export function describeQP(
  { handle, qp }: UverbsQp,
  { fields }: CommandCall,
  asked: CreateOffsets,
  maxInlineData: number,
  reply: DataView,
): void {
  const { response } = CreateQP;
  const { capabilities } = qp;
  const words: readonly (readonly [number, number])[] = [
    [response.handle, handle],
    [response.qpn, qp.qpn],
    [response.maxSendWr, capabilities.maxSendWr],
    [response.maxRecvWr, fields.getUint32(asked.maxRecvWr, true)],
    [response.maxSendSge, capabilities.maxSendSge],
    [response.maxRecvSge, fields.getUint32(asked.maxRecvSge, true)],
    [response.maxInlineData, maxInlineData],
  ];
  for (const [offset, value] of words) reply.setUint32(offset, value, true);
}

/**
 * DESTROY_QP: implies the error state; drops the connection. EBUSY while the QP is attached to a
 * multicast group.
 */
export function destroyQPCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('qp', fields.getUint32(CountedDestroy.request.handle, true));
  if (file.services.host.multicastGroups.groupsOf(object.qp) > 0) {
    throw new VerbsError(
      'EBUSY',
      'the queue pair is attached to a multicast group: call ibv_detach_mcast first',
    );
  }
  return { ...eventsReported(object.asyncDelivered), purged: destroyQP(file, object) };
}

/**
 * POST_SEND: the doorbell; the work requests are in the ring. See `ringDoorbell`. EACCES in a forked
 * child: providers write(2) this command themselves, and the kernel accepts writes only from the opener.
 * Commands that libibverbs sends by ioctl work in a child, too.
 */
export function postSend({ file, fields, caller }: CommandCall): KernelReply {
  if (!caller.isOpener) return refusal('EACCES', OTHER_PROCESS);
  const { request, wqeMinBytes } = PostSend;
  const requests = fields.getUint32(request.wrCount, true);
  if (requests !== 0 || fields.getUint32(request.wqeBytes, true) < wqeMinBytes) {
    throw invalid('wr_count must be 0: the provider must put work requests into the ring');
  }
  const rung = ringDoorbell(file, fields.getUint32(request.handle, true));
  return rung.status < 0 ? rung : { ...rung, response: new Uint8Array(PostSend.response.bytes) };
}

/**
 * The send queue of a queue pair has new elements. ENOENT, EINVAL; below RTS, the persona's errno.
 */
export function ringDoorbell(file: OpenDevice, handle: number): KernelReply {
  const object = file.table.expect('qp', handle);
  const { state } = object.qp;
  if (isIdle(state)) {
    const text = `the queue pair is in ${qpStateName(state)}: it can send only in RTS`;
    return refusal(file.persona.idleDoorbell, text);
  }
  file.watch.ring(object);
  return DONE;
}

/** Destroys a queue pair and its undelivered events. Returns the same as `destroyCQ`. */
export function destroyQP(file: OpenDevice, object: UverbsQp): number[] {
  file.epoch.noteCommand();
  file.watch.forget(object);
  file.services.host.multicastGroups.forget(object.qp);
  object.qp.close(file.services.host.now());
  // Keep events that its destruction raised for other objects; remove its own undelivered ones.
  file.services.host.drain();
  file.table.remove(object);
  file.rings.release(object.sendRing, object.qp.sqCount);
  if (object.receiveRing !== undefined) file.rings.release(object.receiveRing, object.qp.rqCount);
  return file.purgeAsync(object);
}
