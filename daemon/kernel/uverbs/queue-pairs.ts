/** The parts of queue pairs that personas share: the doorbell and the destruction. */
import { VerbsError } from '#contract/verbs/errors';
import { isIdle, qpStateName } from '#contract/verbs/qp-state';
import { DONE, type KernelReply, refusal } from '../kernel-file.ts';
import { CountedDestroy, PostSend } from './layouts.ts';
import type { UverbsQp } from './objects.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';
import { eventsReported } from './queues.ts';

/** Why a forked child cannot post. */
export const OTHER_PROCESS =
  'the device was opened before fork by a parent process: open it in this process';

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
    throw new VerbsError(
      'EINVAL',
      'wr_count must be 0: the provider must put work requests into the ring',
    );
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
