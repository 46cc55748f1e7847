/** Commands that give an id its addresses: bind, resolve, listen, and options. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { assertMayBind } from '#daemon/clients/objects/user-rights';
import { PortSpace } from '#daemon/host/host-id';
import { DONE, type KernelReply } from '../kernel-file.ts';
import type { CmRequest } from './abi.ts';
import { type CmContext, CmQpType } from './context.ts';
import type { OpenChannel } from './open-channel.ts';
import { Family, type ParsedSockaddr, parseIbAddress, parseSockaddr } from './sockaddr.ts';

/** BIND_IP: binds to an Internet address. */
export function bindIp(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(44, true));
  return bindTo(file, context, expectInternet(parseSockaddr(bytes.subarray(16, 44))));
}

/** BIND: binds to an address of any family. */
export function bind(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const parsed = parseSockaddr(bytes.subarray(16, 144));
  const size = fields.getUint16(12, true);
  if (parsed === undefined || size === 0 || size !== parsed.bytes) {
    throw invalid(sizeFault(parsed, size));
  }
  const context = file.expect(fields.getUint32(8, true));
  if (parsed.family !== Family.infiniband) return bindTo(file, context, expectInternet(parsed));
  bindInfiniband(context, bytes.subarray(16, 16 + size));
  return DONE;
}

function bindTo(file: OpenChannel, context: CmContext, parsed: InternetSockaddr): KernelReply {
  if (context.ibAddress !== undefined)
    throw invalid('the id is bound to an InfiniBand address already: create another id');
  assertMayBind(file.client.rights, parsed.address);
  file.host.cm.bindAddr(context.id, parsed.address);
  context.family = parsed.family;
  return DONE;
}

/** The kernel's rdma_cm does not find RoCE and iWARP devices by GID (`sockaddr_ib`) either. */
const NO_IB_ADDRESSES = 'no device has InfiniBand addresses: use IP addresses';

/**
 * Ports of ids without a device: librdmacm binds one to detect support for InfiniBand addresses.
 */
const INFINIBAND_PORT_FIRST = 32_768;
const PORT_BITS = 0xffffn;

function bindInfiniband(context: CmContext, bytes: Uint8Array): void {
  const { id, portSpace, number } = context;
  if (portSpace !== PortSpace.ib || id.state !== 'idle' || context.ibAddress !== undefined) {
    throw invalid(
      `an id takes an InfiniBand address (sockaddr_ib) once, with port space RDMA_PS_IB and before it is bound; it has port space 0x${portSpace.toString(16)} and is ${id.state}`,
    );
  }
  const wanted = parseIbAddress(bytes);
  if (wanted.gid.some((byte) => byte !== 0)) throw new VerbsError('ENODEV', NO_IB_ADDRESSES);
  const free = BigInt(INFINIBAND_PORT_FIRST + (number % INFINIBAND_PORT_FIRST));
  const anyPort = (wanted.serviceId & PORT_BITS) === 0n;
  context.family = Family.infiniband;
  context.ibAddress = {
    ...wanted,
    serviceId: anyPort ? wanted.serviceId | free : wanted.serviceId,
    serviceMask: wanted.serviceMask | PORT_BITS,
  };
}

/** RESOLVE_IP: see `resolve`. */
export function resolveIp(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const source = parseSockaddr(bytes.subarray(8, 36));
  if (source === undefined) {
    throw invalid('src_addr has an address family that is neither AF_INET nor AF_INET6');
  }
  const destination = expectInternet(parseSockaddr(bytes.subarray(36, 64)));
  const context = file.expect(fields.getUint32(64, true));
  const given = source.family === Family.none ? undefined : expectInternet(source);
  return resolve(file, context, given, destination);
}

/** RESOLVE_ADDR: see `resolve`. */
export function resolveAddr(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const source = sizedSockaddr(bytes.subarray(24, 152), fields.getUint16(16, true));
  const destination = sizedSockaddr(bytes.subarray(152, 280), fields.getUint16(18, true));
  if (destination === undefined) throw invalid('dst_addr is missing: its length is 0');
  const context = file.expect(fields.getUint32(8, true));
  if (destination.family === Family.infiniband) {
    throw new VerbsError('ENODEV', NO_IB_ADDRESSES);
  }
  const given = source === undefined ? undefined : expectInternet(source);
  return resolve(file, context, given, expectInternet(destination));
}

/** The result is an event. Misuse and a source address that cannot be bound fail at once. */
function resolve(
  file: OpenChannel,
  context: CmContext,
  source: InternetSockaddr | undefined,
  destination: InternetSockaddr,
): KernelReply {
  // A bound id keeps its source.
  if (source !== undefined && context.id.localAddress === undefined) {
    assertMayBind(file.client.rights, source.address);
  }
  file.host.cm.resolveAddr(context.id, destination.address, source?.address);
  context.family = destination.family;
  return DONE;
}

/**
 * RESOLVE_IB_SERVICE: fails with EOPNOTSUPP, since only InfiniBand has subnet administration.
 * EINVAL for an id that is not bound to a device.
 */
export function resolveIbService(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const { context } = file.expectDevice(fields.getUint32(8, true));
  const { state } = context.id;
  if (state !== 'bound') throw invalid(`the id must be bound to an address; it is ${state}`);
  throw new VerbsError(
    'EOPNOTSUPP',
    'service names need InfiniBand subnet administration, which no device here has',
  );
}

/** RESOLVE_ROUTE: the result is an event. */
export function resolveRoute(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const timeoutMs = fields.getUint32(12, true);
  const context = file.expect(fields.getUint32(8, true));
  if (timeoutMs === 0) throw invalid('timeout_ms must be at least 1; it is 0');
  file.host.cm.resolveRoute(context.id);
  return DONE;
}

interface InternetSockaddr {
  readonly family: Family;
  readonly address: SocketAddress;
}

/** EINVAL for families other than IPv4 and IPv6. */
export function expectInternet(parsed: ParsedSockaddr | undefined): InternetSockaddr {
  if (parsed?.address === undefined) {
    const text = 'the address is neither AF_INET nor AF_INET6, or its scope is missing';
    throw invalid(text);
  }
  return { family: parsed.family, address: parsed.address };
}

/** The address of `size` bytes, undefined if there is none. EINVAL for a wrong size. */
export function sizedSockaddr(bytes: Uint8Array, size: number): ParsedSockaddr | undefined {
  if (size === 0) return undefined;
  const parsed = parseSockaddr(bytes);
  if (parsed?.bytes !== size) throw invalid(sizeFault(parsed, size));
  return parsed;
}

function sizeFault(parsed: ParsedSockaddr | undefined, size: number): string {
  return parsed === undefined
    ? 'the address family is none of AF_INET, AF_INET6 and AF_IB'
    : `the address has ${size} bytes; those of its family have ${parsed.bytes}`;
}

/** LISTEN: an unbound id listens on any address. */
export function listen(file: OpenChannel, { fields }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(8, true));
  if (context.ibAddress !== undefined) {
    throw new VerbsError(
      'ENODEV',
      'no device listens at an InfiniBand address: bind an IP address',
    );
  }
  file.host.cm.listen(context.id, fields.getInt32(12, true));
  if (context.family === Family.none) context.family = Family.ipv4;
  return DONE;
}

/** Options of level `RDMA_OPTION_ID`. */
const IdOption = { typeOfService: 0, reuseAddress: 1, afOnly: 2, ackTimeout: 3 } as const;
const ID_OPTION_BYTES: Readonly<Partial<Record<number, number>>> = {
  [IdOption.typeOfService]: 1,
  [IdOption.reuseAddress]: 4,
  [IdOption.afOnly]: 4,
  [IdOption.ackTimeout]: 1,
};
const OPTION_VALUE_AT = 32;

export function setOption(file: OpenChannel, { fields, bytes }: CmRequest): KernelReply {
  const context = file.expect(fields.getUint32(16, true));
  const level = fields.getUint32(20, true);
  const name = fields.getUint32(24, true);
  const length = fields.getUint32(28, true);
  const expected = level === 0 ? ID_OPTION_BYTES[name] : undefined;
  if (expected === undefined)
    throw new VerbsError(
      'ENOSYS',
      `no such option ${name} of level ${level}: level 0 (RDMA_OPTION_ID) has 0 to 3`,
    );
  if (length !== expected || bytes.length < OPTION_VALUE_AT + length) {
    throw invalid(`option ${name} takes a value of ${expected} bytes, not ${length}`);
  }
  const { id, qpType } = context;
  switch (name) {
    case IdOption.typeOfService:
      id.typeOfService = fields.getUint8(OPTION_VALUE_AT);
      break;
    case IdOption.reuseAddress:
      file.host.cm.setReuseAddress(id, fields.getInt32(OPTION_VALUE_AT, true) !== 0);
      break;
    case IdOption.afOnly:
      file.host.cm.setAfOnly(id, fields.getInt32(OPTION_VALUE_AT, true) !== 0);
      break;
    case IdOption.ackTimeout:
      if (qpType !== CmQpType.rc) {
        const text = 'RDMA_OPTION_ID_ACK_TIMEOUT is for RC: datagrams are not acknowledged';
        throw invalid(text);
      }
      id.ackTimeout = fields.getUint8(OPTION_VALUE_AT);
      break;
  }
  return DONE;
}
