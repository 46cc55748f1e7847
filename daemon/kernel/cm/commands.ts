/** The commands of rdma_cm: the size and the handler of each, and those of ids and events. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import { failFaultyVerb } from '#daemon/clients/objects/verb-faults';
import { PortSpace } from '#daemon/host/host-id';
import { DONE, type KernelReply } from '../kernel-file.ts';
import { CM_VERBS } from '../kernel-verbs.ts';
import {
  CM_COMMANDS,
  CmCommand,
  type CmRequest,
  expectBytes,
  expectRoom,
  fitted,
  u32Response,
} from './abi.ts';
import {
  bind,
  bindIp,
  listen,
  resolveAddr,
  resolveIbService,
  resolveIp,
  resolveRoute,
  setOption,
} from './address-commands.ts';
import { accept, connect, disconnect, initQpAttr, notify, reject } from './connection-commands.ts';
import { CmQpType } from './context.ts';
import { CM_EVENT_MIN_BYTES, WrittenEvent } from './event-record.ts';
import { joinIpMulticast, joinMulticast, leaveMulticast } from './multicast-commands.ts';
import type { OpenChannel } from './open-channel.ts';
import { query, queryRoute } from './query.ts';

type Handler = (file: OpenChannel, request: CmRequest) => KernelReply;

/** A command's handler and its size in bytes, header included. */
interface Entry {
  readonly bytes: number;
  readonly handle: Handler;
}

const ENTRIES: Readonly<Partial<Record<number, Entry>>> = {
  [CmCommand.createId]: { bytes: 32, handle: createId },
  [CmCommand.destroyId]: { bytes: 24, handle: destroyId },
  [CmCommand.bindIp]: { bytes: 48, handle: bindIp },
  [CmCommand.resolveIp]: { bytes: 72, handle: resolveIp },
  [CmCommand.resolveRoute]: { bytes: 16, handle: resolveRoute },
  [CmCommand.queryRoute]: { bytes: 24, handle: queryRoute },
  [CmCommand.connect]: { bytes: 288, handle: connect },
  [CmCommand.listen]: { bytes: 16, handle: listen },
  [CmCommand.accept]: { bytes: 296, handle: accept },
  [CmCommand.reject]: { bytes: 272, handle: reject },
  [CmCommand.disconnect]: { bytes: 12, handle: disconnect },
  [CmCommand.initQpAttr]: { bytes: 24, handle: initQpAttr },
  [CmCommand.getEvent]: { bytes: 16, handle: getEvent },
  [CmCommand.setOption]: { bytes: 32, handle: setOption },
  [CmCommand.notify]: { bytes: 16, handle: notify },
  [CmCommand.joinIpMulticast]: { bytes: 56, handle: joinIpMulticast },
  [CmCommand.leaveMulticast]: { bytes: 24, handle: leaveMulticast },
  [CmCommand.migrateId]: { bytes: 24, handle: migrateId },
  [CmCommand.query]: { bytes: 24, handle: query },
  [CmCommand.bind]: { bytes: 144, handle: bind },
  [CmCommand.resolveAddr]: { bytes: 280, handle: resolveAddr },
  [CmCommand.joinMulticast]: { bytes: 160, handle: joinMulticast },
  [CmCommand.resolveIbService]: { bytes: 96, handle: resolveIbService },
  [CmCommand.writeEvent]: { bytes: 328, handle: writeEvent },
};

/** Executes a command. Throws `VerbsError` with the kernel's errno. */
export function executeCmCommand(file: OpenChannel, request: CmRequest): KernelReply {
  const entry = ENTRIES[request.command];
  if (entry === undefined) {
    const code = request.command < CM_COMMANDS ? 'ENOSYS' : 'EINVAL';
    throw new VerbsError(code, `rdma_cm has no command ${request.command}`);
  }
  expectBytes(request, entry.bytes);
  const { verb, idAt } = CM_VERBS[request.command] ?? {};
  failFaultyVerb(file.host, verb, () => {
    const number = idAt === undefined ? undefined : request.fields.getUint32(idAt, true);
    return { device: file.deviceNameOf(number), pid: file.client.credentials.pid };
  });
  return entry.handle(file, request);
}

function createId(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields } = request;
  expectRoom(request, 4);
  const portSpace = fields.getUint16(24, true);
  const qpType = qpTypeOf(portSpace, fields.getUint8(26));
  const { number } = file.create({ uid: fields.getBigUint64(8, true), portSpace, qpType });
  return { status: 0, response: u32Response(number) };
}

/** The QP type of a port space. Only RDMA_PS_IB leaves the choice to the caller. */
function qpTypeOf(portSpace: number, wanted: number): number {
  switch (portSpace) {
    case PortSpace.tcp:
      return CmQpType.rc;
    case PortSpace.udp:
    case PortSpace.ipoib:
      return CmQpType.ud;
    case PortSpace.ib:
      return wanted;
    default:
      throw invalid(
        `no such port space 0x${portSpace.toString(16)}: use RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IPOIB or RDMA_PS_IB`,
      );
  }
}

function destroyId(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, 4);
  const context = file.expect(request.fields.getUint32(16, true));
  const reply = file.destroy(context);
  return { ...reply, response: u32Response(context.eventsReported) };
}

function migrateId(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, 4);
  const number = request.fields.getUint32(16, true);
  const { context, reply } = file.migrate(number, request.fields.getUint32(20, true));
  return { ...reply, response: u32Response(context.eventsReported) };
}

function getEvent(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, CM_EVENT_MIN_BYTES);
  const { bytes, flags } = file.nextEvent();
  return { status: 0, flags, response: fitted(request, bytes) };
}

/** WRITE_CM_EVENT: appends the event. EINVAL for a type that programs cannot write. */
function writeEvent(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const wanted = fields.getUint32(16, true);
  const type = Object.values(WrittenEvent).find((known) => known === wanted);
  if (type === undefined) throw invalid(`programs cannot write event ${wanted}`);
  const context = file.expect(fields.getUint32(8, true));
  file.write(context, {
    type,
    status: fields.getInt32(20, true),
    parameters: { kind: 'written', argument: fields.getBigUint64(24, true) },
  });
  return DONE;
}
