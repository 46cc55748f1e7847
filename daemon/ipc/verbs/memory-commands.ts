/** Commands for shared buffers, memory regions and memory windows. */
import type { CommandReply, CommandRequest } from '../../../verbs-api/contract/commands.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { DeviceBackend } from '../../adapter/device-backend.ts';
import { type MemoryBacking, ViewBacking } from '../../rnic/memory-backing.ts';
import type { ProcessAllocation, SharedAllocation } from './client-memory.ts';
import { BufferObject, MrObject, MwObject, type PdObject } from './client-objects.ts';
import type { ClientState, CommandHandlers } from './client-state.ts';

/** Local addresses of shared buffers start here, where no process has memory of its own. */
const BUFFER_ADDRESS_BASE = 2 ** 48;
const PAGE_BYTES = 4096;

/** Takes shared memory against the client's quota. ENOMEM. */
export function takeShared(state: ClientState, lengthBytes: number): SharedAllocation {
  state.ledger.take('sharedBytes', lengthBytes);
  try {
    return state.memory.createShared(lengthBytes);
  } catch (error) {
    state.ledger.give('sharedBytes', lengthBytes);
    throw error;
  }
}

/** Gives shared memory back. */
export function giveShared(state: ClientState, memory: SharedAllocation): void {
  memory.release();
  state.ledger.give('sharedBytes', memory.mapping.lengthBytes);
}

/** Deregisters and lets go of the octets. EBUSY while windows are bound. */
export function destroyMR(state: ClientState, object: MrObject): void {
  object.mr.close();
  state.remove(object);
  if (object.source instanceof BufferObject) object.source.users -= 1;
  else givePinned(state, object.source, object.mr.lengthBytes);
}

/** Frees a shared buffer. EBUSY while regions use it. */
export function destroyBuffer(state: ClientState, object: BufferObject): void {
  state.assertUnused(object);
  state.remove(object);
  giveShared(state, object.memory);
}

/** Deallocates a window. */
export function destroyMW(state: ClientState, object: MwObject): void {
  object.mw.close();
  state.remove(object);
}

/** See the module's comment. */
export function memoryCommands(
  state: ClientState,
): CommandHandlers<'allocBuffer' | 'freeBuffer' | 'regMR' | 'deregMR' | 'allocMW' | 'deallocMW'> {
  const { table } = state;
  let nextAddress = BUFFER_ADDRESS_BASE;
  return {
    allocBuffer({ lengthBytes }) {
      if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
        throw new VerbsError('EINVAL', 'a buffer has at least one octet');
      }
      const object = state.add('buffer', (handle) => {
        const memory = takeShared(state, lengthBytes);
        const address = nextAddress;
        nextAddress += Math.ceil(lengthBytes / PAGE_BYTES) * PAGE_BYTES;
        return new BufferObject(state.client, handle, memory, address);
      });
      return { buffer: object.handle, mapping: object.memory.mapping };
    },
    freeBuffer({ buffer }) {
      destroyBuffer(state, table.expect('buffer', buffer));
      return {};
    },
    regMR: (request) => registerMR(state, request),
    deregMR({ mr }) {
      destroyMR(state, table.expect('mr', mr));
      return {};
    },
    allocMW({ pd, type }) {
      const owner = table.expect('pd', pd);
      const object = state.add('mw', (handle) => {
        return new MwObject(
          state.client,
          handle,
          owner,
          owner.context.device.nic.allocMW(owner.pd, type),
        );
      });
      return { mw: object.handle, rkey: object.mw.rkey };
    },
    deallocMW({ mw }) {
      destroyMW(state, table.expect('mw', mw));
      return {};
    },
  };
}

/** Where the octets of a region are. */
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
  state.ledger.assertRoom('mr');
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
    if (!(source.holder instanceof BufferObject)) {
      givePinned(state, source.holder, request.lengthBytes);
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
  const address =
    request.address === undefined ? source.defaultAddress : exactNumber(request.address);
  const object = state.add('mr', (handle) => {
    const mr = pd.context.device.nic.regMR(pd.pd, {
      backing: source.backing,
      backingOffset: source.backingOffset,
      lengthBytes: request.lengthBytes,
      address,
      iova: request.iova === undefined ? address : exactNumber(request.iova),
      access: request.access,
      key: request.key,
    });
    const { holder, reason } = source;
    return new MrObject(state.client, handle, { pd, mr, source: holder, reason });
  });
  if (source.holder instanceof BufferObject) source.holder.users += 1;
  return {
    mr: object.handle,
    lkey: object.mr.lkey,
    rkey: object.mr.rkey,
    address: BigInt(object.mr.address),
    tier: source.backing.tier,
    tierReason: source.reason,
  };
}

function bufferSource(
  state: ClientState,
  device: DeviceBackend,
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
  if (!inside) throw new VerbsError('EINVAL', 'the region leaves its buffer');
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
  const address = exactNumber(start);
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
    throw new VerbsError('EINVAL', 'a region has at least one octet');
  }
  state.ledger.take('pinnedBytes', lengthBytes);
  try {
    const holder = state.memory.openProcess(start, lengthBytes);
    const { backing, reason } = holder;
    return { backing, backingOffset: 0, defaultAddress: address, holder, reason };
  } catch (error) {
    state.ledger.give('pinnedBytes', lengthBytes);
    throw error;
  }
}

function givePinned(state: ClientState, holder: ProcessAllocation, lengthBytes: number): void {
  holder.release();
  state.ledger.give('pinnedBytes', lengthBytes);
}

/** A 64-bit address as a number. EINVAL beyond the 53 bits that are exact. */
function exactNumber(address: bigint): number {
  if (address < 0n || address > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new VerbsError('EINVAL', `the address ${address} leaves the 53 bits that are supported`);
  }
  return Number(address);
}
