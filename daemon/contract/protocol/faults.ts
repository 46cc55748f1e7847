/**
 * Faults that a daemon can inject: the effect and parameters of each kind, and the events in the
 * daemon that count as its occasions. Plain data for the command line, HTTP and TypeScript alike.
 */
import type { ErrnoCode } from '../verbs/errors.ts';
import type { CommandName } from './commands.ts';

/** Selects the occasions of a fault. All given fields must match. */
export interface FaultScope {
  /** Name of a device. */
  readonly device?: string;
  /** Number of a queue pair. */
  readonly qp?: number;
  /** The other end of a connection: `ADDRESS`, `ADDRESS:PORT` or `[IPv6]:PORT`. */
  readonly peer?: string;
  /**
   * RDMAP message or startup frame in progress, known for outgoing traffic only. On RoCE devices: the
   * message that the packet belongs to.
   */
  readonly opcode?: FaultOpcode;
  /** Direction as seen from the device. Default: both. */
  readonly direction?: 'in' | 'out';
  /** Process id of a program. */
  readonly pid?: number;
  /** Which verb fails. Default: any of `FAULT_VERBS`. */
  readonly verb?: FaultVerb;
}

/** Selects on which of its occasions a fault fires. Default: on each. */
export interface FaultTrigger {
  /** Fires only on this occasion, counted from 1. */
  readonly nth?: number;
  /** Fires on every occasion whose number is a multiple of this. */
  readonly every?: number;
  /** Fires at most once. */
  readonly once?: boolean;
  /** Fires with this probability, above 0 and at most 1. */
  readonly probability?: number;
  /** Seed for `probability`; the same seed makes the same choices. Default: random. */
  readonly seed?: number;
}

/** Parameters of a fault; `FAULT_KINDS` lists which ones each kind takes. */
export interface FaultParameters {
  /** Milliseconds. */
  readonly ms?: number;
  /** Rate in bytes per second. */
  readonly bytesPerSecond?: number;
  /** Bytes per piece. */
  readonly bytes?: number;
  /** Bytes of one direction of a connection that still pass after the fault was added. */
  readonly afterBytes?: number;
  /** Reason of the NAK. */
  readonly syndrome?: FaultSyndrome;
  /** The error that the verb fails with. */
  readonly errno?: ErrnoCode;
  /** Upper limit of the inbound reads (IRD) in a startup frame. */
  readonly ird?: number;
  /** Upper limit of the outbound reads (ORD) in a startup frame. */
  readonly ord?: number;
}

/** A fault: what fails, where, and on which occasions. */
export interface FaultSpec extends FaultScope, FaultTrigger, FaultParameters {
  /** The kind of failure. */
  readonly kind: FaultKind;
}

/** An injected fault. */
export interface FaultStatus {
  /** Its number; a daemon or provider never reuses numbers. */
  readonly id: number;
  /** The requested fault, with the chosen seed. */
  readonly spec: FaultSpec;
  /** Occasions within its scope so far. */
  readonly matched: number;
  /** Occasions on which it fired. */
  readonly fired: number;
}

/** Injects faults: a running daemon, or an embedded provider. */
export interface FaultControl {
  /**
   * Adds a fault, which lasts until it is removed. Rejects with EINVAL that names a wrong field.
   */
  addFault(spec: FaultSpec): Promise<FaultStatus>;
  /** Faults, with how often each has fired. */
  faults(): Promise<readonly FaultStatus[]>;
  /** Removes a fault and releases what it held back. ENOENT if no fault has this number. */
  removeFault(id: number): Promise<FaultStatus>;
  /** Removes all faults. */
  removeFaults(): Promise<readonly FaultStatus[]>;
}

/** Names of RDMAP's opcodes, by number, then of other frames. */
export const FAULT_OPCODES = [
  'write',
  'read-request',
  'read-response',
  'send',
  'send-invalidate',
  'send-solicited',
  'send-solicited-invalidate',
  'terminate',
  'immediate',
  'immediate-solicited',
  'atomic-request',
  'atomic-response',
  'mpa-request',
  'mpa-reply',
  'acknowledge',
] as const;
/** A message, packet or startup frame that the scope of a fault can select. */
export type FaultOpcode = (typeof FAULT_OPCODES)[number];

/** Opcodes of RoCE packets. Sends and Writes with immediate data count as Sends and Writes. */
export const PACKET_OPCODES: readonly FaultOpcode[] = [
  'write',
  'read-request',
  'read-response',
  'send',
  'send-invalidate',
  'atomic-request',
  'atomic-response',
  'acknowledge',
];

/** Reasons of a NAK. */
export const FAULT_SYNDROMES = [
  'psn-sequence',
  'invalid-request',
  'remote-access',
  'remote-operation',
] as const;
/** The reason of a NAK that a fault sends. */
export type FaultSyndrome = (typeof FAULT_SYNDROMES)[number];

/** Verbs that can fail: those that create or move something. Destroying always succeeds. */
export const FAULT_VERBS = [
  'openDevice',
  'queryDevice',
  'queryPort',
  'queryGidTable',
  'allocPD',
  'allocBuffer',
  'regMR',
  'allocMW',
  'createAH',
  'createCompChannel',
  'createCQ',
  'createSRQ',
  'modifySRQ',
  'createQP',
  'modifyQP',
  'queryQP',
  'attachMcast',
  'cmCreateId',
  'cmBindAddr',
  'cmResolveAddr',
  'cmResolveRoute',
  'cmListen',
  'cmConnect',
  'cmAccept',
  'cmReject',
  'cmDisconnect',
] as const satisfies readonly CommandName[];
/** A verb that an `errno` fault can make fail. */
export type FaultVerb = (typeof FAULT_VERBS)[number];

/** Names in C of the verbs that correspond to one call. */
export const FAULT_VERB_CALLS: Readonly<Partial<Record<FaultVerb, string>>> = {
  openDevice: 'ibv_open_device',
  queryDevice: 'ibv_query_device',
  queryPort: 'ibv_query_port',
  queryGidTable: 'ibv_query_gid_table',
  allocPD: 'ibv_alloc_pd',
  regMR: 'ibv_reg_mr',
  allocMW: 'ibv_alloc_mw',
  createAH: 'ibv_create_ah',
  createCompChannel: 'ibv_create_comp_channel',
  createCQ: 'ibv_create_cq',
  createSRQ: 'ibv_create_srq',
  modifySRQ: 'ibv_modify_srq',
  createQP: 'ibv_create_qp',
  modifyQP: 'ibv_modify_qp',
  queryQP: 'ibv_query_qp',
  attachMcast: 'ibv_attach_mcast',
  cmCreateId: 'rdma_create_id',
  cmBindAddr: 'rdma_bind_addr',
  cmResolveAddr: 'rdma_resolve_addr',
  cmResolveRoute: 'rdma_resolve_route',
  cmListen: 'rdma_listen',
  cmConnect: 'rdma_connect',
  cmAccept: 'rdma_accept',
  cmReject: 'rdma_reject',
  cmDisconnect: 'rdma_disconnect',
};

/**
 * The places in the daemon where faults have occasions, with the scope fields that each supports.
 */
export const FAULT_PLACES = {
  /** Traffic of a connection: an outgoing FPDU or startup frame, a read from the socket. */
  bytes: ['device', 'qp', 'peer', 'opcode', 'direction'],
  /** A direction of a connection that has carried enough bytes. */
  direction: ['device', 'qp', 'peer', 'direction'],
  /** An outgoing FPDU. */
  fpdu: ['device', 'qp', 'peer', 'opcode'],
  /** A packet between RoCE devices, or between devices over SCTP. */
  packet: ['device', 'qp', 'peer', 'opcode', 'direction'],
  /** An RC packet whose request is next in sequence; for `rnr`, the first of a message. */
  'packet-request': ['device', 'qp', 'peer', 'opcode', 'direction'],
  /** An outgoing MPA Reply. */
  reply: ['device', 'peer'],
  /** An incoming MPA Request. */
  request: ['device', 'peer'],
  /** An outgoing startup frame with depths. */
  depths: ['device', 'peer', 'opcode'],
  /** A completion that is written. */
  completion: ['device', 'qp'],
  /** An armed completion queue that is about to fire. */
  notification: ['device'],
  /** A receive that is taken from a shared receive queue. */
  receive: ['device'],
  /** A verb that a program calls. */
  verb: ['device', 'pid', 'verb'],
  /**
   * None: fires at once. With `nth`, `every`, `probability` or `opcode`: outgoing FPDUs, and packets.
   */
  event: ['device', 'qp', 'peer', 'opcode'],
} as const satisfies Readonly<Record<string, readonly (keyof FaultScope)[]>>;
export type FaultPlace = keyof typeof FAULT_PLACES;

/**
 * The parts of a device's traffic that faults can change. Each kind of device has some; see
 * `DEVICE_KINDS` of the host.
 */
export type FaultTarget =
  /** Packets that the daemon sends itself. */
  | 'packets'
  /** Requests of an RC connection, as packets. */
  | 'requests'
  /** The check of a RoCE packet. */
  | 'icrc'
  /** A connection with its messages. */
  | 'connection'
  /** A connection whose data are bytes, which can be cut anywhere. */
  | 'bytes'
  /** FPDUs with a CRC, with markers, with a length. */
  | 'crc'
  | 'markers'
  | 'lengths';

/** Targets that only packets have. */
const PACKET_TARGETS: readonly FaultTarget[] = ['packets', 'requests', 'icrc'];

interface KindEntry {
  readonly place: FaultPlace;
  /** It changes the first of these that a device has. Default: no part of its traffic. */
  readonly on?: readonly FaultTarget[];
  readonly summary: string;
  /** Required parameters, and optional ones. */
  readonly needs?: readonly (keyof FaultParameters)[];
  readonly takes?: readonly (keyof FaultParameters)[];
}

/** The longest time of a fault: longer than any test waits, and within the range of a timer. */
export const FAULT_MS_MAX = 3_600_000;

/** Kinds of faults. */
export const FAULT_KINDS = {
  delay: {
    place: 'bytes',
    on: ['packets', 'connection'],
    needs: ['ms'],
    summary: 'Delay bytes, or packets of RoCE or SCTP',
  },
  bandwidth: {
    place: 'bytes',
    on: ['connection'],
    needs: ['bytesPerSecond'],
    summary: 'Limit the bandwidth of each connection and direction',
  },
  slice: {
    place: 'bytes',
    on: ['bytes'],
    needs: ['bytes'],
    summary: 'Deliver bytes in small pieces',
  },
  stall: {
    place: 'bytes',
    on: ['connection'],
    takes: ['ms'],
    summary: 'Deliver nothing, for a time or until the fault is removed',
  },
  reset: {
    place: 'direction',
    on: ['connection'],
    takes: ['afterBytes'],
    summary: 'Reset TCP (RST), or abort SCTP (ABORT), after N bytes',
  },
  close: {
    place: 'direction',
    on: ['connection'],
    takes: ['afterBytes'],
    summary:
      'Close TCP (FIN) after N bytes, even in the middle of an FPDU; shut SCTP down (SHUTDOWN)',
  },
  'corrupt-crc': { place: 'fpdu', on: ['crc'], summary: 'Send an FPDU with a wrong CRC' },
  'corrupt-marker': {
    place: 'fpdu',
    on: ['markers'],
    summary: 'Send a marker that points to the wrong byte; the CRC stays correct',
  },
  'corrupt-length': {
    place: 'fpdu',
    on: ['lengths'],
    summary:
      'Send a ULPDU_Length that is 4 too small: the peer looks for the CRC in the wrong place',
  },
  'corrupt-stag': {
    place: 'fpdu',
    on: ['connection'],
    summary:
      'Replace the STag of a tagged segment or Read Request with an invalid one; the CRC stays correct',
  },
  'corrupt-msn': {
    place: 'fpdu',
    on: ['connection'],
    summary: 'Send an untagged segment with an MSN far out of range; the CRC stays correct',
  },
  'corrupt-mo': {
    place: 'fpdu',
    on: ['connection'],
    summary: 'Send an untagged segment with an MO beyond its buffer; the CRC stays correct',
  },
  terminate: {
    place: 'fpdu',
    on: ['connection'],
    summary: 'Send a Terminate after an FPDU, as for a local error',
  },
  drop: {
    place: 'packet',
    on: ['packets'],
    takes: ['ms'],
    summary: 'Drop a packet of RoCE or SCTP, for a time or until the fault is removed',
  },
  duplicate: {
    place: 'packet',
    on: ['packets'],
    summary: 'Deliver a packet of RoCE or SCTP twice',
  },
  reorder: {
    place: 'packet',
    on: ['packets'],
    summary:
      'Deliver a packet of RoCE or SCTP after the next one of its queue pair, or after 10 ms',
  },
  'corrupt-icrc': {
    place: 'packet',
    on: ['icrc'],
    summary: 'Deliver a packet with a wrong ICRC: its receiver drops and counts it',
  },
  nak: {
    place: 'packet-request',
    on: ['requests'],
    needs: ['syndrome'],
    summary: 'Answer an RC request with a NAK instead of executing it',
  },
  rnr: {
    place: 'packet-request',
    on: ['requests'],
    summary: 'Answer the first packet of an RC request as if no receive were posted (RNR NAK)',
  },
  'mpa-silent': {
    place: 'reply',
    on: ['connection'],
    summary: 'Send no MPA Reply, nor its answer over SCTP',
  },
  'mpa-late': { place: 'reply', on: ['connection'], needs: ['ms'], summary: 'Delay the MPA Reply' },
  'mpa-reject': {
    place: 'request',
    on: ['connection'],
    summary: 'Reject the connection in the MPA Reply, without asking the program',
  },
  'mpa-depths': {
    place: 'depths',
    on: ['connection'],
    takes: ['ird', 'ord'],
    summary: 'Advertise a smaller IRD or ORD in a startup frame',
  },
  'cq-overrun': {
    place: 'completion',
    summary: 'Lose a completion as if its queue were full, and raise the asynchronous event',
  },
  'completion-event-lost': {
    place: 'notification',
    summary: 'Drop the event when an armed completion queue fires',
  },
  'completion-event-late': {
    place: 'notification',
    needs: ['ms'],
    summary: 'Delay the event when an armed completion queue fires',
  },
  'srq-limit': {
    place: 'receive',
    summary: 'Raise the limit event of a shared receive queue, whatever its limit is',
  },
  'port-down': {
    place: 'event',
    takes: ['ms'],
    summary: 'Take the port down, for a time or until the fault is removed',
  },
  'port-up': { place: 'event', summary: 'Raise the event that the port is active' },
  'qp-fatal': {
    place: 'event',
    summary: 'Move queue pairs to ERR and reset their connections',
  },
  'device-fatal': {
    place: 'event',
    summary: 'Fail the device and all of its queue pairs',
  },
  errno: { place: 'verb', needs: ['errno'], summary: 'Fail a verb with an errno' },
} as const satisfies Readonly<Record<string, KindEntry>>;
/** A kind of fault; `iwarpd fault add --help` describes each. */
export type FaultKind = keyof typeof FAULT_KINDS;

/** The entry of a kind, with all fields filled in. */
export function faultKind(kind: FaultKind): Required<KindEntry> {
  const entry: KindEntry = FAULT_KINDS[kind];
  return { needs: [], takes: [], on: [], ...entry };
}

/** The transport whose devices a kind acts on; undefined for both. */
export function faultTransport(kind: FaultKind): 'iwarp' | 'roce' | undefined {
  const [target, other] = faultKind(kind).on;
  if (target === undefined || other !== undefined) return undefined;
  return PACKET_TARGETS.includes(target) ? 'roce' : 'iwarp';
}

/** The fields of `FaultParameters`. */
export const FAULT_PARAMETERS = [
  'ms',
  'bytesPerSecond',
  'bytes',
  'afterBytes',
  'syndrome',
  'errno',
  'ird',
  'ord',
] as const satisfies readonly (keyof FaultParameters)[];

/** The fields of `FaultScope`. */
export const FAULT_SCOPES = [
  'device',
  'qp',
  'peer',
  'opcode',
  'direction',
  'pid',
  'verb',
] as const satisfies readonly (keyof FaultScope)[];

/** A fault of kind `event` fires at once, unless its spec selects occasions. */
export function firesAtOnce(spec: FaultSpec): boolean {
  if (FAULT_KINDS[spec.kind].place !== 'event') return false;
  return (
    spec.nth === undefined &&
    spec.every === undefined &&
    spec.probability === undefined &&
    spec.opcode === undefined
  );
}
