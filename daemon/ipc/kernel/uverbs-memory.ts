/** Commands for protection domains and memory regions. */
import { Access } from '../../../verbs-api/contract/enums.ts';
import { ERRNO, isVerbsError, VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { DaemonMemory } from '../daemon-memory.ts';
import type { ProcessAllocation } from '../verbs/client-memory.ts';
import { DONE, type KernelReply } from './kernel-file.ts';
import { isMapped } from './process-map.ts';
import { ReplyFlag } from './shim-protocol.ts';
import { getUint64, newStruct } from './struct-fields.ts';
import type { CommandCall } from './uverbs-commands.ts';
import type { UverbsFile } from './uverbs-file.ts';
import { AllocPD, PlainDestroy, RegMR } from './uverbs-layouts.ts';
import { MrElement, PdElement } from './uverbs-objects.ts';

const PAGE_MASK = 4095;
/** Rights that the provider can use. */
const KEPT_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead;
/** All bits of `enum ibv_access_flags` that a registration may ask for: those kept, windows, zero
 * based, huge pages, and the optional ones (bits 20 to 29), which may be ignored. */
const KNOWN_ACCESS = 0x3f | 0x80 | 0x3ff0_0000;
const REMOTE_CHANGE = Access.remoteWrite | Access.remoteAtomic;
/** Rights for which the kernel asks for pages that can be written. */
const CHANGE = REMOTE_CHANGE | Access.localWrite | Access.mwBind;

/** ALLOC_PD. */
export function allocPD({ file }: CommandCall): KernelReply {
  const { handle } = file.add('pd', (next) => new PdElement(next, file.device.nic.allocPD()));
  const { octets, fields } = newStruct(AllocPD.response.bytes);
  fields.setUint32(AllocPD.response.handle, handle, true);
  return { status: 0, response: octets };
}

/** DEALLOC_PD: EBUSY while a region or queue refers to it. */
export function deallocPD({ file, fields }: CommandCall): KernelReply {
  destroyPD(file, file.expect('pd', fields.getUint32(PlainDestroy.request.handle, true)));
  return DONE;
}

/** REG_MR: the region belongs to the process that registers it, child or not. */
export function regMR(call: CommandCall): KernelReply {
  const { file, fields, caller } = call;
  const { request } = RegMR;
  const access = fields.getUint32(request.access, true);
  checkRange(fields);
  checkAccess(access);
  const pd = file.expect('pd', fields.getUint32(request.pdHandle, true));
  if (!caller.ownPid) {
    throw new VerbsError('EPERM', 'the connection belongs to another process than the caller');
  }
  const { services } = file;
  const memory = services.memories.find(caller.credentials, file);
  if (memory === undefined) throw new Error('a caller without a connection');
  const start = getUint64(fields, request.start);
  const length = getUint64(fields, request.length);
  const writable = (access & CHANGE) !== 0;
  if (!isMapped(caller.credentials.pid, start, length, writable)) {
    throw new VerbsError('EFAULT', 'the program has not mapped all of the region');
  }
  const region = openRegion(file, memory, start, length);
  if (region === undefined) {
    return { status: -ERRNO.EAGAIN.number, flags: ReplyFlag.startAgent };
  }
  const element = addRegion(file, region, length, (handle) => {
    const address = getUint64(fields, request.hcaVa);
    const mr = file.device.nic.regMR(pd.pd, {
      backing: region.backing,
      backingOffset: 0,
      lengthBytes: length,
      // The provider's SGEs and the peer alike count from the address that the caller chose.
      address,
      iova: address,
      access: access & KEPT_ACCESS,
      key: fields.getUint8(request.stagKey),
    });
    return new MrElement(handle, mr, region);
  });
  const { octets, fields: reply } = newStruct(RegMR.response.bytes);
  reply.setUint32(RegMR.response.handle, element.handle, true);
  reply.setUint32(RegMR.response.lkey, element.mr.lkey, true);
  reply.setUint32(RegMR.response.rkey, element.mr.rkey, true);
  reply.setUint32(RegMR.response.stag, element.mr.stag, true);
  return { status: 0, response: octets };
}

/** DEREG_MR. */
export function deregMR({ file, fields }: CommandCall): KernelReply {
  destroyMR(file, file.expect('mr', fields.getUint32(PlainDestroy.request.handle, true)));
  return DONE;
}

/** Deallocates a protection domain. EBUSY while anything belongs to it. */
export function destroyPD(file: UverbsFile, object: PdElement): void {
  object.pd.close();
  file.remove(object);
}

/** Deregisters: nothing is read or written through the region once this returns. */
export function destroyMR(file: UverbsFile, object: MrElement): void {
  object.mr.close();
  file.remove(object);
  giveRegion(file, object.holder, object.mr.lengthBytes);
  file.client.noteRegion(object.holder.backing.tier, object.holder.reason, -1);
}

/** EINVAL for a range that no page table could hold. */
function checkRange(fields: DataView): void {
  const { start, length, hcaVa } = RegMR.request;
  const misaligned =
    ((fields.getUint32(start, true) ^ fields.getUint32(hcaVa, true)) & PAGE_MASK) !== 0;
  if (misaligned) throw new VerbsError('EINVAL', 'start and hca_va differ within a page');
  if (getUint64(fields, length) === 0) throw new VerbsError('EINVAL', 'a region has an octet');
}

function checkAccess(access: number): void {
  if ((access & ~KNOWN_ACCESS) !== 0) throw new VerbsError('EINVAL', 'unsupported access flags');
  if ((access & REMOTE_CHANGE) !== 0 && (access & Access.localWrite) === 0) {
    throw new VerbsError('EINVAL', 'remote write and remote atomic need local write');
  }
}

/** The octets of the process, charged; undefined when its agent has to be started first. */
function openRegion(
  file: UverbsFile,
  memory: DaemonMemory,
  start: number,
  length: number,
): ProcessAllocation | undefined {
  const { ledger } = file.client;
  ledger.take('pinnedBytes', length);
  try {
    return memory.openProcess(BigInt(start), length);
  } catch (error) {
    ledger.give('pinnedBytes', length);
    const wantsAgent = isVerbsError(error) && error.code === 'EOPNOTSUPP';
    if (wantsAgent && file.services.memories.wantsAgent(memory)) return undefined;
    throw error;
  }
}

function addRegion(
  file: UverbsFile,
  region: ProcessAllocation,
  length: number,
  make: (handle: number) => MrElement,
): MrElement {
  try {
    const element = file.add('mr', make);
    file.client.noteRegion(region.backing.tier, region.reason, 1);
    return element;
  } catch (error) {
    giveRegion(file, region, length);
    throw error;
  }
}

function giveRegion(file: UverbsFile, region: ProcessAllocation, length: number): void {
  region.release();
  file.client.ledger.give('pinnedBytes', length);
}
