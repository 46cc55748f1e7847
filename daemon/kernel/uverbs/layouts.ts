/**
 * The structs of the uverbs write() ABI that all providers share, as data: byte offsets from the
 * start of the program's write (headers included) and of the response. Numbers are little endian. A
 * provider's private part follows without a gap; see `persona.ts`.
 */

export const CommandHeader = {
  /** u32: number of the command, and a bit for extended ones. */
  command: 0,
  /** u16: 4-byte words of the whole write; extended: 8-byte words after the headers. */
  inWords: 4,
  /** u16: 4-byte words of the response; extended: 8-byte words. */
  outWords: 6,
  bytes: 8,
} as const;

/** The second header of an extended command. */
export const ExtendedHeader = {
  /** u64 */
  response: 8,
  /** u16: 8-byte words. */
  providerInWords: 16,
  providerOutWords: 18,
  /** u32, zero. */
  reserved: 20,
  bytes: 24,
} as const;

export const CommandBit = { extended: 0x8000_0000, number: 0xff } as const;

export const UverbsCommandNumber = {
  getContext: 0,
  queryDevice: 1,
  queryPort: 2,
  allocPD: 3,
  deallocPD: 4,
  createAH: 5,
  destroyAH: 8,
  regMR: 9,
  deregMR: 13,
  allocMW: 14,
  deallocMW: 16,
  createCompChannel: 17,
  createCQ: 18,
  resizeCQ: 19,
  destroyCQ: 20,
  requestNotify: 23,
  createQP: 24,
  queryQP: 25,
  modifyQP: 26,
  destroyQP: 27,
  postSend: 28,
  attachMulticast: 30,
  detachMulticast: 31,
  createSRQ: 32,
  modifySRQ: 33,
  querySRQ: 34,
  destroySRQ: 35,
  createXSRQ: 39,
} as const;

/** Numbers of the extended commands that the providers issue. */
export const ExtendedCommandNumber = { queryDevice: 1, createCQ: 18, createQP: 24 } as const;

/** Offset of the first field after the u64 response pointer. */
const AFTER_RESPONSE = 16;

export const GetContext = {
  response: { asyncFd: 0, compVectors: 4, bytes: 8 },
} as const;

export const QueryDevice = {
  response: {
    /** u64 */
    fwVer: 0,
    /** 8 bytes, big endian. */
    nodeGuid: 8,
    sysImageGuid: 16,
    /** u64 */
    maxMrSize: 24,
    pageSizeCap: 32,
    vendorId: 40,
    vendorPartId: 44,
    hwVer: 48,
    maxQp: 52,
    maxQpWr: 56,
    deviceCapFlags: 60,
    maxSge: 64,
    maxSgeRd: 68,
    maxCq: 72,
    maxCqe: 76,
    maxMr: 80,
    maxPd: 84,
    maxQpRdAtom: 88,
    maxResRdAtom: 96,
    maxQpInitRdAtom: 100,
    atomicCap: 108,
    maxMw: 120,
    maxMcastGrp: 132,
    maxMcastQpAttach: 136,
    maxTotalMcastQpAttach: 140,
    maxAh: 144,
    maxSrq: 156,
    maxSrqWr: 160,
    maxSrqSge: 164,
    /** u16 */
    maxPkeys: 168,
    /** u8 */
    localCaAckDelay: 170,
    physPortCnt: 171,
    bytes: 176,
  },
} as const;

export const ExtendedQueryDevice = {
  request: { compMask: 24, reserved: 28, bytes: 32 },
  response: {
    compMask: 176,
    responseLength: 180,
    /** u64 */
    deviceCapFlagsEx: 224,
    /** Every caller has room for this many bytes. */
    coreBytes: 184,
    bytes: 304,
  },
} as const;

export const QueryPort = {
  request: { portNum: AFTER_RESPONSE, bytes: 24 },
  response: {
    portCapFlags: 0,
    maxMsgSize: 4,
    gidTableLength: 16,
    /** u16 */
    pkeyTableLength: 20,
    /** u8 from here on. */
    state: 26,
    maxMtu: 27,
    activeMtu: 28,
    maxVl: 30,
    activeWidth: 34,
    activeSpeed: 35,
    physState: 36,
    linkLayer: 37,
    flags: 38,
    bytes: 40,
  },
} as const;

export const AllocPD = { response: { handle: 0, bytes: 4 } } as const;
/** Commands whose only field is a handle, without a response. */
export const PlainDestroy = { request: { handle: 8, bytes: 12 } } as const;

export const CreateAH = {
  request: { userHandle: 16, pdHandle: 24, attributes: 32, bytes: 64 },
  attributes: {
    /** 16 bytes */
    dgid: 0,
    flowLabel: 16,
    /** u8 from here on, except `dlid`. */
    sgidIndex: 20,
    hopLimit: 21,
    trafficClass: 22,
    /** u16 */
    dlid: 24,
    sl: 26,
    srcPathBits: 27,
    staticRate: 28,
    isGlobal: 29,
    portNum: 30,
  },
  response: { handle: 0, bytes: 4 },
} as const;

export const AllocMW = {
  /** `type`: u8 */
  request: { pdHandle: 16, type: 20, bytes: 24 },
  response: { handle: 0, rkey: 4, bytes: 8 },
} as const;

export const RegMR = {
  request: {
    /** u64 */
    start: 16,
    length: 24,
    hcaVa: 32,
    pdHandle: 40,
    access: 44,
    bytes: 48,
  },
  response: { handle: 0, lkey: 4, rkey: 8, bytes: 12 },
} as const;

export const CreateCompChannel = { response: { fd: 0, bytes: 4 } } as const;

export const CreateCQ = {
  /** `compChannel`: s32, -1 for none. */
  request: { userHandle: 16, cqe: 24, compVector: 28, compChannel: 32, bytes: 40 },
  response: { handle: 0, cqe: 4, bytes: 8 },
} as const;

export const ResizeCQ = {
  request: { handle: 16, cqe: 20, bytes: 24 },
  response: { cqe: 0, bytes: 8 },
} as const;

export const RequestNotify = {
  request: { handle: 8, solicitedOnly: 12, bytes: 16 },
} as const;

/** Commands that destroy an object and return how many of its events were delivered. */
export const CountedDestroy = { request: { handle: AFTER_RESPONSE, bytes: 24 } } as const;
export const DestroyCQ = {
  response: { compEventsReported: 0, asyncEventsReported: 4, bytes: 8 },
} as const;
export const EventsReported = { response: { eventsReported: 0, bytes: 4 } } as const;

export const CreateQP = {
  request: {
    userHandle: 16,
    pdHandle: 24,
    sendCQ: 28,
    recvCQ: 32,
    srqHandle: 36,
    maxSendWr: 40,
    maxRecvWr: 44,
    maxSendSge: 48,
    maxRecvSge: 52,
    maxInlineData: 56,
    /** u8 from here on. */
    sqSigAll: 60,
    qpType: 61,
    isSrq: 62,
    bytes: 64,
  },
  response: {
    handle: 0,
    qpn: 4,
    maxSendWr: 8,
    maxRecvWr: 12,
    maxSendSge: 16,
    maxRecvSge: 20,
    maxInlineData: 24,
    bytes: 32,
  },
} as const;

/** The request of EX_CREATE_QP: the fields of `CreateQP` after another header. */
export const ExtendedCreateQP = {
  request: {
    userHandle: 24,
    pdHandle: 32,
    sendCQ: 36,
    recvCQ: 40,
    srqHandle: 44,
    maxSendWr: 48,
    maxRecvWr: 52,
    maxSendSge: 56,
    maxRecvSge: 60,
    maxInlineData: 64,
    /** u8 from here on. */
    sqSigAll: 68,
    qpType: 69,
    isSrq: 70,
    /** u32 */
    compMask: 72,
    createFlags: 76,
    bytes: 88,
  },
  response: { responseLength: 36, bytes: 40 },
} as const;

/** Offsets in an address of QUERY_QP and MODIFY_QP. */
export const QPDestination = {
  /** 16 bytes */
  dgid: 0,
  /** u32 */
  flowLabel: 16,
  /** u16 */
  dlid: 20,
  /** u8 from here on. */
  sgidIndex: 24,
  hopLimit: 25,
  trafficClass: 26,
  sl: 27,
  srcPathBits: 28,
  staticRate: 29,
  isGlobal: 30,
  portNum: 31,
} as const;

export const QueryQP = {
  request: { handle: AFTER_RESPONSE, attrMask: 20, bytes: 24 },
  response: {
    /** A `QPDestination`, and another one. */
    altDestination: 32,
    maxSendWr: 64,
    maxRecvWr: 68,
    maxSendSge: 72,
    maxRecvSge: 76,
    maxInlineData: 80,
    /** `QP_ATTRIBUTES` has the places. */
    attributes: 84,
    /** u8 from here on. */
    sqDraining: 112,
    sqSigAll: 122,
    bytes: 128,
  },
} as const;

export const ModifyQP = {
  request: {
    /** A `QPDestination`. */
    destination: 8,
    /** u8: port of the address vector. */
    destPortNum: 39,
    handle: 72,
    attrMask: 76,
    /** `QP_ATTRIBUTES` has the places. */
    attributes: 80,
    bytes: 120,
  },
} as const;

export const PostSend = {
  request: { handle: AFTER_RESPONSE, wrCount: 20, sgeCount: 24, wqeBytes: 28, bytes: 32 },
  response: { badWr: 0, bytes: 4 },
  /** Size of the kernel's own work request; ignored. */
  wqeMinBytes: 128,
} as const;

export const Multicast = {
  /** `gid`: 16 bytes; `mlid`: u16 */
  request: { gid: 8, handle: 24, mlid: 28, bytes: 32 },
} as const;

export const CreateSRQ = {
  request: { userHandle: 16, pdHandle: 24, maxWr: 28, maxSge: 32, srqLimit: 36, bytes: 40 },
  response: {
    handle: 0,
    maxWr: 4,
    maxSge: 8,
    srqn: 12,
    bytes: 16,
  },
} as const;

export const ModifySRQ = {
  request: { handle: 8, attrMask: 12, maxWr: 16, srqLimit: 20, bytes: 24 },
} as const;

export const QuerySRQ = {
  request: { handle: 16, bytes: 24 },
  response: { maxWr: 0, maxSge: 4, srqLimit: 8, bytes: 16 },
} as const;

/** Bits of a shared receive queue's attribute mask. */
export const SRQAttrBit = { maxWr: 1, limit: 2 } as const;

/** Bytes of a record of a completion channel: u64 name of the queue. */
export const COMPLETION_EVENT_BYTES = 8;
/** Bytes of an asynchronous event: u64 name of the object, u32 type, u32 zero. */
export const ASYNC_EVENT_BYTES = 16;
