/** Commands for shared buffers, memory regions and memory windows. */
import type { CommandReply, CommandRequest } from '#contract/protocol/commands';
import { invalid, VerbsError } from '#contract/verbs/errors';
import {
  giveProcess,
  giveShared,
  takeProcess,
  takeShared,
} from '#daemon/clients/objects/charged-memory';
import type { ProcessAllocation } from '#daemon/clients/objects/client-memory';
import type { ServedDevice } from '#daemon/host/served-device';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { BufferObject, MrObject, MwObject, PdObject } from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';

/** Local addresses of shared buffers start here, where no process has its own memory. */
const BUFFER_ADDRESS_BASE = 2 ** 48;
const PAGE_BYTES = 4096;

/** Deregisters a region and releases its bytes. EBUSY while windows are bound. */
export function destroyMR(state: ClientState, object: MrObject): void {
  object.mr.close();
  state.table.remove(object);
  state.ledger.noteRegion(object.mr.backing.tier, object.reason, -1);
  if ('kind' in object.source) object.source.users -= 1;
  else giveProcess(state.ledger, object.source, object.mr.lengthBytes);
}

/** Frees a shared buffer. EBUSY while regions use it. */
export function destroyBuffer(state: ClientState, object: BufferObject): void {
  state.assertUnused(object);
  state.table.remove(object);
  giveShared(state.ledger, object.memory);
}

export function destroyMW(state: ClientState, object: MwObject): void {
  object.mw.close();
  state.table.remove(object);
}

export function memoryCommands(
  state: ClientState,
): CommandHandlers<'allocBuffer' | 'freeBuffer' | 'regMR' | 'deregMR' | 'allocMW' | 'deallocMW'> {
  const { table } = state;
  let nextAddress = BUFFER_ADDRESS_BASE;
  return {
    allocBuffer({ lengthBytes }) {
      if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
        throw invalid('buffer length must be at least 1 byte');
      }
      const object = state.add('buffer', () => {
        const create = () => state.memory.createShared(lengthBytes);
        const memory = takeShared(state.ledger, create, lengthBytes);
        const address = nextAddress;
        nextAddress += Math.ceil(lengthBytes / PAGE_BYTES) * PAGE_BYTES;
        return { memory, address };
      });
      return { buffer: object.handle, mapping: object.memory.mapping };
    },
    freeBuffer: ({ buffer }) => destroyBuffer(state, table.expect('buffer', buffer)),
    regMR: (request) => registerMR(state, request),
    deregMR: ({ mr }) => destroyMR(state, table.expect('mr', mr)),
    allocMW({ pd, type }) {
      const owner = table.expect('pd', pd);
      const { nic, name } = owner.context.device;
      const object = state.add('mw', () => ({ pd: owner, mw: nic.allocMW(owner.pd, type) }), name);
      return { mw: object.handle, rkey: object.mw.rkey };
    },
    deallocMW: ({ mw }) => destroyMW(state, table.expect('mw', mw)),
  };
}

interface Source {
  readonly backing: MemoryBacking;
  readonly backingOffset: number;
  readonly defaultAddress: number;
  readonly holder: BufferObject | ProcessAllocation;
  readonly reason: string;
}

function registerMR(state: ClientState, request: CommandRequest<'regMR'>): CommandReply<'regMR'> {
  const pd = state.table.expect('pd', request.pd);
  const { device } = pd.context;
  state.ledger.assertRoom('mr', device.name);
  if (request.source.kind === 'process' && device.processObstacle !== undefined) {
    throw new VerbsError('EOPNOTSUPP', device.processObstacle);
  }
  const source =
    request.source.kind === 'buffer'
      ? bufferSource(state, device, request.source, request.lengthBytes)
      : processSource(state, request.source.address, request.lengthBytes);
  try {
    return addMR(state, pd, source, request);
  } catch (error) {
    if (!('kind' in source.holder)) {
      giveProcess(state.ledger, source.holder, request.lengthBytes);
    }
    throw error;
  }
}

function addMR(
  state: ClientState,
  pd: PdObject,
  source: Source,
  request: CommandRequest<'regMR'>,
): CommandReply<'regMR'> {
  const address = request.address ?? source.defaultAddress;
  const object = state.table.add(
    'mr',
    (handle) => {
      const mr = pd.context.device.nic.regMR(pd.pd, {
        backing: source.backing,
        backingOffset: source.backingOffset,
        lengthBytes: request.lengthBytes,
        address,
        iova: request.iova ?? address,
        access: request.access,
        key: request.key,
      });
      const { holder, reason } = source;
      return { kind: 'mr', handle, users: 0, pd, mr, source: holder, reason };
    },
    pd.context.device.name,
  );
  state.ledger.noteRegion(source.backing.tier, source.reason, 1);
  if ('kind' in source.holder) source.holder.users += 1;
  return {
    mr: object.handle,
    lkey: object.mr.lkey,
    rkey: object.mr.rkey,
    address: object.mr.address,
    tier: source.backing.tier,
    tierReason: source.reason,
  };
}

function bufferSource(
  state: ClientState,
  device: ServedDevice,
  source: { readonly buffer: number; readonly offset: number },
  lengthBytes: number,
): Source {
  const holder = state.table.expect('buffer', source.buffer);
  const { offset } = source;
  const inside =
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(lengthBytes) &&
    offset >= 0 &&
    lengthBytes >= 1 &&
    offset + lengthBytes <= holder.memory.view.length;
  if (!inside) throw invalid('region extends past the end of its buffer');
  const { tier, reason } = state.memory.sharedTier;
  return {
    backing: new ViewBacking(holder.memory.view, tier),
    backingOffset: offset,
    defaultAddress: device.bufferAddress(holder.memory.view, holder.address) + offset,
    holder,
    reason,
  };
}

function processSource(state: ClientState, start: bigint, lengthBytes: number): Source {
  const address = memoryAddress(start);
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
    throw invalid('lengthBytes must be at least 1');
  }
  const holder = takeProcess(state.ledger, state.memory, start, lengthBytes);
  const { backing, reason } = holder;
  return { backing, backingOffset: 0, defaultAddress: address, holder, reason };
}

/** An address of a program's memory as a number. EINVAL for addresses that no process can have. */
function memoryAddress(address: bigint): number {
  if (address < 0n || address > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw invalid(`no program has memory at ${address}`);
  }
  return Number(address);
}
