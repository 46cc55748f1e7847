/** The persona of rxe, the kernel's software RoCE device. */
import { Access } from '#contract/verbs/enums';
import { gidTable } from '#daemon/host/roce/gid-table';
import { hwCounters, RoceCounters } from '#daemon/host/roce/roce-counters';
import { setUint64 } from '#daemon/kernel/struct-fields';
import { REMOTE_ACCESS } from '#daemon/rnic/memory/memory-region';
import { NicCounters } from '#daemon/rnic/nic-counters';
import { UverbsCommandNumber as N, QueryDevice, QueryPort } from '../layouts.ts';
import type { Persona } from '../persona.ts';
import { RxeLimit } from './limits.ts';
import { MMINFO_BYTES } from './mminfo.ts';

/** Supported page sizes as a mask: all from 4 KiB. */
const PAGE_SIZE_CAP = 0xffff_f000;
const VENDOR_ID = 0xff_ffff;
/** IB_ATOMIC_HCA: atomic with respect to this device only. */
const ATOMIC_CAP = 1;
const CA_ACK_DELAY = 15;
/** IBV_QPF_GRH_REQUIRED */
const PORT_FLAGS = 1;
/** Shortest interval in milliseconds after which counters are read again. */
const COUNTER_LIFESPAN = '12';

const HW_COUNTERS = Object.keys(hwCounters(new RoceCounters(), new NicCounters()));

/** Limits in the response of QUERY_DEVICE: offset, value. */
const DEVICE_WORDS: readonly (readonly [number, number])[] = [
  [QueryDevice.response.vendorId, VENDOR_ID],
  [QueryDevice.response.vendorPartId, 0],
  [QueryDevice.response.hwVer, 0],
  [QueryDevice.response.maxQp, RxeLimit.queuePairs],
  [QueryDevice.response.maxQpWr, RxeLimit.workRequests],
  [QueryDevice.response.maxSge, RxeLimit.elements],
  [QueryDevice.response.maxSgeRd, RxeLimit.elements],
  [QueryDevice.response.maxCq, RxeLimit.completionQueues],
  [QueryDevice.response.maxCqe, RxeLimit.completions],
  [QueryDevice.response.maxMr, RxeLimit.regions],
  [QueryDevice.response.maxPd, RxeLimit.protectionDomains],
  [QueryDevice.response.maxQpRdAtom, RxeLimit.readDepth],
  [QueryDevice.response.maxResRdAtom, RxeLimit.readDepthOfDevice],
  [QueryDevice.response.maxQpInitRdAtom, RxeLimit.readDepth],
  [QueryDevice.response.atomicCap, ATOMIC_CAP],
  [QueryDevice.response.maxMw, RxeLimit.windows],
  [QueryDevice.response.maxMcastGrp, RxeLimit.multicastGroups],
  [QueryDevice.response.maxMcastQpAttach, RxeLimit.membersOfGroup],
  [QueryDevice.response.maxTotalMcastQpAttach, RxeLimit.members],
  [QueryDevice.response.maxAh, RxeLimit.addressHandles],
  [QueryDevice.response.maxSrq, RxeLimit.sharedQueues],
  [QueryDevice.response.maxSrqWr, RxeLimit.workRequests],
  [QueryDevice.response.maxSrqSge, RxeLimit.sharedElements],
];

export const RXE: Persona = {
  // RDMA_DRIVER_RXE
  driverId: 14,
  abiVersion: 2,
  // RDMA_NODE_IB_CA
  nodeType: { number: 1, name: '1: CA' },
  protocol: 'roce',
  description: 'Emulated RoCE adapter',
  // BAD_PKEY_CNTR, BAD_QKEY_CNTR, AUTO_PATH_MIG, CHANGE_PHY_PORT, UD_AV_PORT_ENFORCE,
  // PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE, MEM_WINDOW, MEM_MGT_EXTENSIONS
  // and MEM_WINDOW_TYPE_2B
  deviceCapFlags: 0x0122_3c76,
  // IB_PORT_CM_SUP
  portCapFlags: 0x0001_0000,
  namesInterface: true,
  gids: gidTable,
  sysfsFiles(interfaceName) {
    const counters = HW_COUNTERS.map((name) => [`ports/1/hw_counters/${name}`, '0']);
    return {
      parent: interfaceName,
      'ports/1/pkeys/0': '0xffff',
      'ports/1/hw_counters/lifespan': COUNTER_LIFESPAN,
      ...(Object.fromEntries(counters) as Record<string, string>),
    };
  },
  putDevice(reply) {
    const at = QueryDevice.response;
    // "0.0.0", as in the kernel.
    setUint64(reply, at.fwVer, 0);
    reply.setBigUint64(at.maxMrSize, 2n ** 64n - 1n, true);
    setUint64(reply, at.pageSizeCap, PAGE_SIZE_CAP);
    for (const [offset, value] of DEVICE_WORDS) reply.setUint32(offset, value, true);
    reply.setUint16(at.maxPkeys, RxeLimit.partitionKeys, true);
    reply.setUint8(at.localCaAckDelay, CA_ACK_DELAY);
  },
  putPort(reply) {
    const at = QueryPort.response;
    reply.setUint32(at.maxMsgSize, RxeLimit.messageBytes, true);
    reply.setUint16(at.pkeyTableLength, 1, true);
    reply.setUint8(at.maxVl, 1);
    reply.setUint8(at.flags, PORT_FLAGS);
  },
  idleDoorbell: 'EINVAL',
  privateBytes: {
    // The number of the handle, which is never 0, and four zero bytes.
    [N.createAH]: { request: 0, response: 8 },
    [N.createCQ]: { request: 0, response: MMINFO_BYTES },
    [N.resizeCQ]: { request: 0, response: MMINFO_BYTES },
    [N.createQP]: { request: 0, response: 2 * MMINFO_BYTES },
    // The number of the queue, and four bytes that the kernel does not write.
    [N.createSRQ]: { request: 0, response: MMINFO_BYTES + 8 },
    // The address at which the preload library stores a new ring's mapping.
    [N.modifySRQ]: { request: 8, response: 0 },
  },
  putContext: () => undefined,
  keptAccess:
    Access.localWrite |
    Access.remoteWrite |
    Access.remoteRead |
    Access.remoteAtomic |
    Access.mwBind,
  regionKey: () => undefined,
  // As in the kernel: no key where peers have no rights.
  remoteKey: ({ access, rkey }) => ((access & REMOTE_ACCESS) === 0 ? 0 : rkey),
  boundRegion: 'EINVAL',
  putRegion: () => undefined,
};
