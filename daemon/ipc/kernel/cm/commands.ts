/** The commands of rdma_cm: their fields, what they do, and their answers. */
import type { CMParameters } from '../../../../verbs-api/contract/protocol/commands.ts';
import { VerbsError } from '../../../../verbs-api/contract/verbs/errors.ts';
import type { SocketAddress } from '../../../../verbs-api/contract/verbs/provider.ts';
import { PortSpace } from '../../../host/host-id.ts';
import { failFaultyVerb } from '../../objects/verb-faults.ts';
import { DONE, type KernelReply } from '../kernel-file.ts';
import { CM_VERBS } from '../kernel-verbs.ts';
import {
  CM_COMMANDS,
  CM_EVENT_MIN_BYTES,
  CmCommand,
  type CmConnParam,
  type CmRequest,
  expectBytes,
  expectRoom,
  fitted,
  parseConnParam,
  u32Response,
} from './abi.ts';
import { type CmContext, CmQpType } from './context.ts';
import type { OpenChannel } from './open-channel.ts';
import { initQpAttr } from './qp-attr.ts';
import { query, queryRoute } from './query.ts';
import { Family, type ParsedSockaddr, parseIbAddress, parseSockaddr } from './sockaddr.ts';

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
};

/** Executes a command. Throws `VerbsError` with the kernel's errno. */
export function executeCmCommand(file: OpenChannel, request: CmRequest): KernelReply {
  const entry = ENTRIES[request.command];
  if (entry === undefined) {
    throw new VerbsError(request.command < CM_COMMANDS ? 'ENOSYS' : 'EINVAL', 'no such command');
  }
  expectBytes(request, entry.bytes);
  const { verb, idAt } = CM_VERBS[request.command] ?? {};
  failFaultyVerb(file.host, verb, () => {
    const number = idAt === undefined ? undefined : request.fields.getUint32(idAt, true);
    return { device: file.deviceNameOf(number), pid: file.client.credentials.pid };
  });
  return entry.handle(file, request);
}

// Ids

function createId(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields } = request;
  expectRoom(request, 4);
  const portSpace = fields.getUint16(24, true);
  const qpType = qpTypeOf(portSpace, fields.getUint8(26));
  const { number } = file.create({ uid: fields.getBigUint64(8, true), portSpace, qpType });
  return { status: 0, response: u32Response(number) };
}

/** The QP type of a port space; only for InfiniBand's does the caller choose. */
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
      throw new VerbsError('EINVAL', `no port space ${portSpace}`);
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

// Addresses

function bindIp(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(44, true));
  return bindTo(file, context, expectInternet(parseSockaddr(bytes.subarray(16, 44))));
}

function bind(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const parsed = parseSockaddr(bytes.subarray(16, 144));
  const size = fields.getUint16(12, true);
  if (parsed === undefined || size === 0 || size !== parsed.bytes) {
    throw new VerbsError('EINVAL', 'address length does not match its family');
  }
  const context = file.expect(fields.getUint32(8, true));
  if (parsed.family !== Family.infiniband) return bindTo(file, context, expectInternet(parsed));
  bindInfiniband(context, bytes.subarray(16, 16 + size));
  return DONE;
}

function bindTo(file: OpenChannel, context: CmContext, parsed: InternetSockaddr): KernelReply {
  if (context.ibAddress !== undefined) throw new VerbsError('EINVAL', 'the id is bound');
  file.host.cm.bindAddr(context.id, parsed.address);
  context.family = parsed.family;
  return DONE;
}

/**
 * Ports of ids without a device: librdmacm binds one to detect support for InfiniBand addresses.
 */
const INFINIBAND_PORT_FIRST = 32_768;
const PORT_BITS = 0xffffn;

function bindInfiniband(context: CmContext, bytes: Uint8Array): void {
  const { id, portSpace, number } = context;
  if (portSpace !== PortSpace.ib || id.state !== 'idle' || context.ibAddress !== undefined) {
    throw new VerbsError('EINVAL', 'not an id for an InfiniBand address');
  }
  const wanted = parseIbAddress(bytes);
  const free = BigInt(INFINIBAND_PORT_FIRST + (number % INFINIBAND_PORT_FIRST));
  const anyPort = (wanted.serviceId & PORT_BITS) === 0n;
  context.family = Family.infiniband;
  context.ibAddress = {
    ...wanted,
    serviceId: anyPort ? wanted.serviceId | free : wanted.serviceId,
    serviceMask: wanted.serviceMask | PORT_BITS,
  };
}

function resolveIp(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const source = parseSockaddr(bytes.subarray(8, 36));
  if (source === undefined) throw new VerbsError('EINVAL', 'unknown address family');
  const destination = expectInternet(parseSockaddr(bytes.subarray(36, 64)));
  const context = file.expect(fields.getUint32(64, true));
  const given = source.family === Family.none ? undefined : expectInternet(source);
  return resolve(file, context, given, destination);
}

function resolveAddr(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const source = sizedSockaddr(bytes.subarray(24, 152), fields.getUint16(16, true));
  const destination = sizedSockaddr(bytes.subarray(152, 280), fields.getUint16(18, true));
  if (destination === undefined) throw new VerbsError('EINVAL', 'no destination');
  const context = file.expect(fields.getUint32(8, true));
  if (destination.family === Family.infiniband) {
    throw new VerbsError('ENODEV', 'no device has InfiniBand addresses');
  }
  const given = source === undefined ? undefined : expectInternet(source);
  return resolve(file, context, given, expectInternet(destination));
}

/** The outcome is an event. Misuse and a source address that cannot be bound fail at once. */
function resolve(
  file: OpenChannel,
  context: CmContext,
  source: InternetSockaddr | undefined,
  destination: InternetSockaddr,
): KernelReply {
  file.host.cm.resolveAddr(context.id, destination.address, source?.address);
  context.family = destination.family;
  return DONE;
}

function resolveRoute(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const timeoutMs = fields.getUint32(12, true);
  const context = file.expect(fields.getUint32(8, true));
  if (timeoutMs === 0) throw new VerbsError('EINVAL', 'timeout must be at least 1 ms');
  file.host.cm.resolveRoute(context.id);
  return DONE;
}

interface InternetSockaddr {
  readonly family: Family;
  readonly address: SocketAddress;
}

/** EINVAL for families other than IPv4 and IPv6. */
function expectInternet(parsed: ParsedSockaddr | undefined): InternetSockaddr {
  if (parsed?.address === undefined) throw new VerbsError('EINVAL', 'not an Internet address');
  return { family: parsed.family, address: parsed.address };
}

/** The address of `size` bytes, undefined if there are none. EINVAL for a wrong size. */
function sizedSockaddr(bytes: Uint8Array, size: number): ParsedSockaddr | undefined {
  if (size === 0) return undefined;
  const parsed = parseSockaddr(bytes);
  if (parsed?.bytes !== size)
    throw new VerbsError('EINVAL', 'address length does not match its family');
  return parsed;
}

// Connections

function listen(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(8, true));
  if (context.ibAddress !== undefined) throw new VerbsError('ENODEV', 'no InfiniBand device');
  file.host.cm.listen(context.id, fields.getInt32(12, true));
  if (context.family === Family.none) context.family = Family.ipv4;
  return DONE;
}

function connect(file: OpenChannel, request: CmRequest): KernelReply {
  const { context, device } = file.expectDevice(request.fields.getUint32(280, true));
  const parameters = expectValid(parseConnParam(request, 8));
  if (context.id.state !== 'routed') throw new VerbsError('EINVAL', 'no route is resolved');
  const qp = file.expectQP(device, parameters.qpn);
  file.host.cm.connect(context.id, qp, connectionParameters(parameters));
  return DONE;
}

function accept(file: OpenChannel, request: CmRequest): KernelReply {
  const { context, device } = file.expectDevice(request.fields.getUint32(288, true));
  const parameters = expectValid(parseConnParam(request, 16));
  const qp = file.expectQP(device, parameters.qpn);
  const { uid } = context;
  // The connection may be established before `accept` returns, and its event needs the program's
  // identifier.
  context.uid = request.fields.getBigUint64(8, true);
  try {
    file.host.cm.accept(context.id, qp, connectionParameters(parameters));
  } catch (error) {
    context.uid = uid;
    throw error;
  }
  return DONE;
}

/** Reasons that a program may give; an MPA Reply has no field for them. */
const REJECT_REASONS: readonly number[] = [0, 28, 35];

function reject(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const privateData = bytes.slice(16, 16 + fields.getUint8(12));
  if (!REJECT_REASONS.includes(fields.getUint8(13))) {
    throw new VerbsError('EINVAL', 'not a reason for a rejection');
  }
  const { context } = file.expectDevice(fields.getUint32(8, true));
  file.host.cm.reject(context.id, privateData);
  return DONE;
}

function disconnect(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const { context } = file.expectDevice(fields.getUint32(8, true));
  file.host.cm.disconnect(context.id);
  return DONE;
}

function expectValid(parameters: CmConnParam): CmConnParam {
  if (!parameters.valid) throw new VerbsError('EINVAL', 'iWARP needs connection parameters');
  return parameters;
}

function connectionParameters(given: CmConnParam): CMParameters {
  const { privateData, initiatorDepth, responderResources } = given;
  return { privateData, initiatorDepth, responderResources, wire: undefined };
}

// The rest

/**
 * Options of level `RDMA_OPTION_ID`, with the size of their values in bytes; only one has an
 * effect.
 */
const ID_OPTION_BYTES: Readonly<Partial<Record<number, number>>> = { 0: 1, 1: 4, 2: 4, 3: 1 };
const OPTION_AF_ONLY = 2;
const OPTION_VALUE_AT = 32;

function setOption(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(16, true));
  const level = fields.getUint32(20, true);
  const name = fields.getUint32(24, true);
  const length = fields.getUint32(28, true);
  const expected = level === 0 ? ID_OPTION_BYTES[name] : undefined;
  if (expected === undefined) throw new VerbsError('ENOSYS', 'no such option');
  if (length !== expected || bytes.length < OPTION_VALUE_AT + length) {
    throw new VerbsError('EINVAL', 'the value has another size');
  }
  if (name === OPTION_AF_ONLY) {
    file.host.cm.setAfOnly(context.id, fields.getInt32(OPTION_VALUE_AT, true) !== 0);
  }
  return DONE;
}

function notify(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const { context } = file.expectDevice(fields.getUint32(8, true));
  const { state } = context.id;
  if (state !== 'connection' && state !== 'closed') throw new VerbsError('EINVAL', 'not connected');
  return DONE;
}

function joinIpMulticast(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields, bytes } = request;
  expectRoom(request, 4);
  expectInternet(parseSockaddr(bytes.subarray(24, 52)));
  return refuseMulticast(file, fields.getUint32(52, true));
}

function joinMulticast(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields, bytes } = request;
  expectRoom(request, 4);
  const size = fields.getUint16(28, true);
  if (sizedSockaddr(bytes.subarray(32, 160), size) === undefined) {
    throw new VerbsError('EINVAL', 'no address');
  }
  return refuseMulticast(file, fields.getUint32(24, true));
}

function refuseMulticast(file: OpenChannel, number: number): never {
  const { context } = file.expectDevice(number);
  const { state } = context.id;
  if (context.qpType !== CmQpType.ud || (state !== 'bound' && state !== 'resolved')) {
    throw new VerbsError('EINVAL', 'multicast is for unconnected datagrams');
  }
  throw new VerbsError('ENOSYS', 'iWARP has no multicast');
}

function leaveMulticast(_file: OpenChannel, request: CmRequest): never {
  expectRoom(request, 4);
  throw new VerbsError('ENOENT', 'no such group');
}
