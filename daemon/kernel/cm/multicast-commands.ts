/** Commands of multicast groups. The program itself attaches its queue pair after joining. */
import { isWildcard } from '#base/address';
import { invalid } from '#contract/verbs/errors';
import { gidBytes } from '#daemon/host/host-addresses';
import type { KernelReply } from '../kernel-file.ts';
import { type CmRequest, expectRoom, u32Response } from './abi.ts';
import { expectInternet, sizedSockaddr } from './address-commands.ts';
import { CmQpType } from './context.ts';
import { emitCmEvent, MULTICAST_JOIN } from './event-record.ts';
import type { OpenChannel } from './open-channel.ts';
import { CM_PERSONAS } from './personas.ts';
import { Family, type ParsedSockaddr, parseIbAddress, parseSockaddr } from './sockaddr.ts';

/** How to join a group: as a full member, or to send only. */
const JOIN_FLAG_MAX = 1;
/** The QP number that addresses all members of a group, and the key that they share. */
const GROUP_QPN = 0xff_ffff;
const GROUP_QKEY = 0x0123_4567;
const NO_BYTES = new Uint8Array(0);

/** JOIN_IP_MCAST: like JOIN_MCAST, for an IP address. */
export function joinIpMulticast(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields, bytes } = request;
  expectRoom(request, 4);
  const group = expectInternet(parseSockaddr(bytes.subarray(24, 52)));
  const uid = fields.getBigUint64(16, true);
  return join(file, fields.getUint32(52, true), uid, groupGid(group.address.address));
}

/** JOIN_MCAST: queues the event at once. */
export function joinMulticast(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields, bytes } = request;
  expectRoom(request, 4);
  const sockaddr = bytes.subarray(32, 160);
  const parsed = sizedSockaddr(sockaddr, fields.getUint16(28, true));
  if (parsed === undefined || fields.getUint16(30, true) > JOIN_FLAG_MAX) {
    throw invalid(
      'the group address is missing, or join_flags are neither 0 (full member) nor 1 (send only)',
    );
  }
  const uid = fields.getBigUint64(16, true);
  return join(file, fields.getUint32(24, true), uid, gidOf(parsed, sockaddr));
}

/** LEAVE_MCAST: returns how many events of the membership the program has read. */
export function leaveMulticast(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, 4);
  const membership = file.expectMembership(request.fields.getUint32(16, true));
  const reply = file.leave(membership);
  return { ...reply, response: u32Response(membership.eventsReported) };
}

function join(file: OpenChannel, number: number, uid: bigint, gid: Uint8Array): KernelReply {
  const { context, device } = file.expectDevice(number);
  const { state } = context.id;
  if (context.qpType !== CmQpType.ud || (state !== 'bound' && state !== 'resolved')) {
    throw invalid(
      `joining a group needs an RDMA_PS_UDP id that is bound or resolved; this one is ${state}`,
    );
  }
  const vector = CM_PERSONAS[device.transport].groupVector(file.callOn(context, device), gid);
  const membership = file.join(context, uid);
  const bytes = emitCmEvent({
    uid,
    number: context.number,
    type: MULTICAST_JOIN,
    status: 0,
    parameters: {
      kind: 'datagram',
      privateData: NO_BYTES,
      qpn: GROUP_QPN,
      qkey: GROUP_QKEY,
      vector,
    },
  });
  file.queueEvent(context, { bytes, child: undefined, membership });
  return { status: 0, response: u32Response(membership.number) };
}

function gidOf(parsed: ParsedSockaddr, bytes: Uint8Array): Uint8Array {
  if (parsed.family === Family.infiniband) return parseIbAddress(bytes).gid;
  return groupGid(expectInternet(parsed).address.address);
}

function groupGid(address: string): Uint8Array {
  if (isWildcard(address)) throw invalid(`${address} is not a multicast address`);
  return gidBytes(address);
}
