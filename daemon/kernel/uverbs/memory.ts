/** Commands for protection domains and memory regions. */
import type { Micros } from '#base/time';
import { Access } from '#contract/verbs/enums';
import { ERRNO, invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import { giveProcess, takeProcess } from '#daemon/clients/objects/charged-memory';
import type { ProcessAllocation } from '#daemon/clients/objects/client-memory';
import type { DaemonMemory } from '#daemon/clients/objects/daemon-memory';
import { LENT_BYTES_MIN } from '#daemon/rnic/memory/lent-payload';
import { yieldCore } from '#native-bridge/libc/scheduling';
import { DONE, type KernelCaller, type KernelReply, refusal } from '../kernel-file.ts';
import { isMapped } from '../process-map.ts';
import { ReplyFlag } from '../shim-protocol.ts';
import { getUint64, newStruct } from '../struct-fields.ts';
import { AllocPD, UverbsCommandNumber as N, PlainDestroy, RegMR } from './layouts.ts';
import type { UverbsMr, UverbsMw, UverbsPd } from './objects.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';

const PAGE_MASK = 4095;
/** All bits of `enum ibv_access_flags` that a registration may contain: supported ones, windows,
 * zero based, huge pages, and the optional ones (bits 20 to 29), which may be ignored. */
const KNOWN_ACCESS = 0x3f | 0x80 | 0x3ff0_0000;
const REMOTE_CHANGE = Access.remoteWrite | Access.remoteAtomic;
/** Rights for which the kernel requires writable pages. */
const CHANGE = REMOTE_CHANGE | Access.localWrite | Access.mwBind;

export function allocPD({ file }: CommandCall): KernelReply {
  const make = (next: number) =>
    ({ kind: 'pd', handle: next, pd: file.device.nic.allocPD() }) as const;
  const { handle } = file.table.add('pd', make);
  const { bytes, fields } = newStruct(AllocPD.response.bytes);
  fields.setUint32(AllocPD.response.handle, handle, true);
  return { status: 0, response: bytes };
}

/** DEALLOC_PD: EBUSY while a region or queue refers to it. */
export function deallocPD({ file, fields }: CommandCall): KernelReply {
  destroyPD(file, file.table.expect('pd', fields.getUint32(PlainDestroy.request.handle, true)));
  return DONE;
}

/** REG_MR: the region belongs to the calling process, parent or child. */
export function regMR(call: CommandCall): KernelReply {
  const { file, fields, caller } = call;
  const { request } = RegMR;
  const access = fields.getUint32(request.access, true);
  checkRange(fields);
  checkAccess(access);
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  if (!caller.ownPid) {
    throw new VerbsError(
      'EPERM',
      'the caller is not the process that connected: it was forked without libc',
    );
  }
  const { services } = file;
  const memory = services.memories.find(caller.credentials, file);
  if (memory === undefined) throw new Error('the caller has no connection');
  const start = getUint64(fields, request.start);
  const length = getUint64(fields, request.length);
  const writable = (access & CHANGE) !== 0;
  if (!isMapped(caller.credentials.pid, start, length, writable)) {
    throw new VerbsError(
      'EFAULT',
      `the program has not mapped all of ${length} bytes at addr 0x${start.toString(16)}${writable ? ' for writing' : ''}`,
    );
  }
  const region = openRegion(file, memory, start, length);
  if (region === undefined) {
    return { status: -ERRNO.EAGAIN.number, flags: ReplyFlag.startAgent };
  }
  const object = addRegion(file, region, length, (handle) => {
    const address = fields.getBigUint64(request.hcaVa, true);
    const own = new DataView(fields.buffer, fields.byteOffset + request.bytes);
    const mr = file.device.nic.regMR(pd.pd, {
      backing: region.backing,
      backingOffset: 0,
      lengthBytes: length,
      // The provider's SGEs and the peer both use the address that the caller chose.
      address,
      iova: address,
      access: access & file.persona.keptAccess,
      key: file.persona.regionKey(own),
    });
    return { kind: 'mr', handle, mr, holder: region };
  });
  const { bytes, fields: reply, own } = file.newReply(N.regMR, RegMR.response.bytes);
  reply.setUint32(RegMR.response.handle, object.handle, true);
  reply.setUint32(RegMR.response.lkey, object.mr.lkey, true);
  reply.setUint32(RegMR.response.rkey, file.persona.remoteKey(object.mr), true);
  file.persona.putRegion(own, object.mr.stag);
  // Over SCTP, payload is always copied into messages.
  const lends = (file.device.info.lowerLayer ?? 'tcp') === 'tcp';
  const offers = length >= LENT_BYTES_MIN && lends && memory.takeOffer();
  return { status: 0, response: bytes, flags: offers ? ReplyFlag.offerAgent : 0 };
}

/** DEREG_MR: the persona's errno while windows are bound. */
export function deregMR({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('mr', fields.getUint32(PlainDestroy.request.handle, true));
  const { windows } = object.mr.entry;
  if (windows > 0) {
    const text = `memory windows are bound to the region (${windows}): invalidate or deallocate them first`;
    return refusal(file.persona.boundRegion, text);
  }
  destroyMR(file, object);
  return DONE;
}

/**
 * The process moved the memory of a region (mremap). A kernel has pinned its pages, so devices keep
 * using them; peers and work requests still use the addresses of the registration.
 */
export function moveMR(file: OpenDevice, handle: number, payload: Uint8Array): KernelReply {
  if (payload.length !== 8)
    throw invalid(`the new address must have 8 bytes, not ${payload.length}`);
  const address = getUint64(new DataView(payload.buffer, payload.byteOffset, 8), 0);
  file.table.expect('mr', handle).holder.move?.(address);
  return DONE;
}

/** Sends the ring of orders for the agent of the calling process. */
export function sendCopies(file: OpenDevice, caller: KernelCaller): KernelReply {
  const { host, memories } = file.services;
  const loop = {
    soon: (run: () => void) => host.soon(run),
    after: (delay: Micros, run: () => void) => host.clock.after(delay, run),
    drain: () => host.drain(),
    yieldCore,
    readClock: () => void host.now(),
  };
  const memory = memories.find(caller.credentials, file);
  const ring = memory?.openCopies(loop, file.client.ledger.share);
  const descriptor = ring?.descriptor;
  if (ring === undefined || descriptor === undefined)
    return refusal('EOPNOTSUPP', 'no agent of the process can copy');
  const attach = (send: (descriptor: number) => void): void => {
    try {
      send(descriptor);
    } finally {
      ring.closeDescriptor();
    }
  };
  return { status: 0, attach };
}

/** Deallocates a protection domain. EBUSY while anything belongs to it. */
export function destroyPD(file: OpenDevice, object: UverbsPd): void {
  object.pd.close();
  file.table.remove(object);
}

/** Deregisters a region: no access succeeds after this returns. */
export function destroyMR(file: OpenDevice, object: UverbsMr): void {
  object.mr.close();
  file.table.remove(object);
  giveProcess(file.client.ledger, object.holder, object.mr.lengthBytes);
  file.client.ledger.noteRegion(object.holder.backing.tier, object.holder.reason, -1);
}

/** Frees a memory window, bound or not. */
export function destroyMW(file: OpenDevice, object: UverbsMw): void {
  object.mw.close();
  file.table.remove(object);
}

/** EINVAL for a range outside the address space. */
function checkRange(fields: DataView): void {
  const { start, length, hcaVa } = RegMR.request;
  const misaligned =
    ((fields.getUint32(start, true) ^ fields.getUint32(hcaVa, true)) & PAGE_MASK) !== 0;
  if (misaligned) throw invalid('addr and hca_va must have the same offset within a page');
  if (getUint64(fields, length) === 0) throw invalid('length must be at least 1');
}

function checkAccess(access: number): void {
  if ((access & ~KNOWN_ACCESS) !== 0) {
    const unknown = (access & ~KNOWN_ACCESS) >>> 0;
    throw invalid(`access has bits 0x${unknown.toString(16)} that the device does not support`);
  }
  if ((access & REMOTE_CHANGE) !== 0 && (access & Access.localWrite) === 0) {
    throw invalid(
      'IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE, too',
    );
  }
}

/**
 * The memory of the process, charged to its quotas; undefined if the preload library must first start
 * its agent.
 */
function openRegion(
  file: OpenDevice,
  memory: DaemonMemory,
  start: number,
  length: number,
): ProcessAllocation | undefined {
  try {
    return takeProcess(file.client.ledger, memory, BigInt(start), length);
  } catch (error) {
    const wantsAgent = isVerbsError(error) && error.code === 'EOPNOTSUPP';
    if (wantsAgent && file.services.memories.wantsAgent(memory)) return undefined;
    throw error;
  }
}

function addRegion(
  file: OpenDevice,
  region: ProcessAllocation,
  length: number,
  make: (handle: number) => UverbsMr,
): UverbsMr {
  try {
    const object = file.table.add('mr', make);
    file.client.ledger.noteRegion(region.backing.tier, region.reason, 1);
    return object;
  } catch (error) {
    giveProcess(file.client.ledger, region, length);
    throw error;
  }
}
