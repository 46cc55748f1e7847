/**
 * Where the fields of connection management's messages are, counted from the end of the MAD's common header
 * (IBTA 12.6, 12.11). Bits without a name are reserved, or belong to features that RoCE lacks: reliable
 * datagrams and alternate paths.
 */

/** Layout of a message: numbers by first bit and width (at most 32 bits), bytes by first byte and length. */
export interface CmLayout {
  readonly attributeId: number;
  readonly numbers: Readonly<Record<string, readonly [firstBit: number, bits: number]>>;
  readonly bytes: Readonly<Record<string, readonly [firstByte: number, length: number]>>;
}

/** 64-bit numbers are in halves. */
export const CM_LAYOUTS = {
  REQ: {
    attributeId: 0x10,
    numbers: {
      localCommId: [0, 32],
      serviceIdHi: [64, 32],
      serviceIdLo: [96, 32],
      localQkey: [224, 32],
      localQpn: [256, 24],
      responderResources: [280, 8],
      initiatorDepth: [312, 8],
      remoteResponseTimeout: [344, 5],
      transportService: [349, 2],
      flowControl: [351, 1],
      startingPsn: [352, 24],
      localResponseTimeout: [376, 5],
      retryCount: [381, 3],
      pkey: [384, 16],
      pathMtu: [400, 4],
      rdcExists: [404, 1],
      rnrRetry: [405, 3],
      maxCmRetries: [408, 4],
      srq: [412, 1],
      extendedTransport: [413, 3],
      localLid: [416, 16],
      remoteLid: [432, 16],
      flowLabel: [704, 20],
      packetRate: [730, 6],
      trafficClass: [736, 8],
      hopLimit: [744, 8],
      serviceLevel: [752, 4],
      subnetLocal: [756, 1],
      localAckTimeout: [760, 5],
    },
    bytes: {
      localCaGuid: [16, 8],
      localGid: [56, 16],
      remoteGid: [72, 16],
      privateData: [140, 92],
    },
  },
  MRA: {
    attributeId: 0x11,
    numbers: {
      localCommId: [0, 32],
      remoteCommId: [32, 32],
      message: [64, 2],
      serviceTimeout: [72, 5],
    },
    bytes: { privateData: [10, 222] },
  },
  REJ: {
    attributeId: 0x12,
    numbers: {
      localCommId: [0, 32],
      remoteCommId: [32, 32],
      message: [64, 2],
      infoLength: [72, 7],
      reason: [80, 16],
    },
    bytes: { info: [12, 72], privateData: [84, 148] },
  },
  REP: {
    attributeId: 0x13,
    numbers: {
      localCommId: [0, 32],
      remoteCommId: [32, 32],
      localQkey: [64, 32],
      localQpn: [96, 24],
      startingPsn: [160, 24],
      responderResources: [192, 8],
      initiatorDepth: [200, 8],
      targetAckDelay: [208, 5],
      failoverAccepted: [213, 2],
      flowControl: [215, 1],
      rnrRetry: [216, 3],
      srq: [219, 1],
    },
    bytes: { localCaGuid: [28, 8], privateData: [36, 196] },
  },
  RTU: {
    attributeId: 0x14,
    numbers: { localCommId: [0, 32], remoteCommId: [32, 32] },
    bytes: { privateData: [8, 224] },
  },
  DREQ: {
    attributeId: 0x15,
    numbers: { localCommId: [0, 32], remoteCommId: [32, 32], remoteQpn: [64, 24] },
    bytes: { privateData: [12, 220] },
  },
  DREP: {
    attributeId: 0x16,
    numbers: { localCommId: [0, 32], remoteCommId: [32, 32] },
    bytes: { privateData: [8, 224] },
  },
  SIDR_REQ: {
    attributeId: 0x17,
    numbers: {
      requestId: [0, 32],
      pkey: [32, 16],
      serviceIdHi: [64, 32],
      serviceIdLo: [96, 32],
    },
    bytes: { privateData: [16, 216] },
  },
  SIDR_REP: {
    attributeId: 0x18,
    numbers: {
      requestId: [0, 32],
      status: [32, 8],
      infoLength: [40, 8],
      qpn: [64, 24],
      serviceIdHi: [96, 32],
      serviceIdLo: [128, 32],
      qkey: [160, 32],
    },
    bytes: { info: [24, 72], privateData: [96, 136] },
  },
} as const satisfies Readonly<Record<string, CmLayout>>;
