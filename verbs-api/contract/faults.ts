/**
 * Faults that a daemon can be told to commit: what each kind does, what it takes, and where in the
 * daemon its occasions are. Plain data for the command line, HTTP and TypeScript alike.
 */
import type { CommandName } from './commands.ts';
import type { ErrnoCode } from './errors.ts';

/** Fields that say which occasions a fault is for. All that are given have to hold. */
export interface FaultScope {
  /** Name of a device. */
  readonly device?: string;
  /** Number of a queue pair. */
  readonly qp?: number;
  /** The other end of a connection: `ADDRESS`, `ADDRESS:PORT` or `[IPv6]:PORT`. */
  readonly peer?: string;
  /** What is under way: an RDMAP message or a startup frame. Only known of what leaves. */
  readonly opcode?: FaultOpcode;
  /** Seen from the device: what leaves it, or what comes. Default: both. */
  readonly direction?: 'in' | 'out';
  /** Process id of a program. */
  readonly pid?: number;
  /** Which verb fails. Default: any of `FAULT_VERBS`. */
  readonly verb?: FaultVerb;
}

/** Fields that say on which of its occasions a fault happens. Default: on each. */
export interface FaultTrigger {
  /** Only on this one, counted from 1. */
  readonly nth?: number;
  /** On every one whose number is a multiple of this. */
  readonly every?: number;
  /** No more after it has happened. */
  readonly once?: boolean;
  /** On each with this chance, above 0 and at most 1. */
  readonly probability?: number;
  /** Makes the choices of `probability`; the same seed makes the same ones. Default: a random one. */
  readonly seed?: number;
}

/** Fields that say how bad it is. Which of them a kind takes, `FAULT_KINDS` tells. */
export interface FaultParameters {
  /** Milliseconds. */
  readonly ms?: number;
  readonly bytesPerSecond?: number;
  /** Octets of a piece. */
  readonly bytes?: number;
  /** Octets of one direction of a connection that still pass, from when the fault is there. */
  readonly afterBytes?: number;
  readonly errno?: ErrnoCode;
  /** Inbound and outbound reads that a startup frame tells at most. */
  readonly ird?: number;
  readonly ord?: number;
}

/** A fault as its inventor describes it. */
export interface FaultSpec extends FaultScope, FaultTrigger, FaultParameters {
  readonly kind: FaultKind;
}

/** A fault that is there. */
export interface FaultStatus {
  /** Its number; never given twice by one daemon or provider. */
  readonly id: number;
  /** As it was asked for, with the seed that was chosen. */
  readonly spec: FaultSpec;
  /** Occasions within its scope, so far. */
  readonly matched: number;
  /** How many of them it has spoilt. */
  readonly fired: number;
}

/** Who can be told to commit faults: a running daemon, or an embedded provider. */
export interface FaultControl {
  /** Has something go wrong until it is removed. Rejects with EINVAL that names a wrong field. */
  addFault(spec: FaultSpec): Promise<FaultStatus>;
  /** Faults, with how often each has happened. */
  faults(): Promise<readonly FaultStatus[]>;
  /** Removes a fault: what it held back goes on. ENOENT when there is none of this number. */
  removeFault(id: number): Promise<FaultStatus>;
  /** Removes all faults. */
  removeFaults(): Promise<readonly FaultStatus[]>;
}

/** Messages and frames by name. */
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
] as const;
export type FaultOpcode = (typeof FAULT_OPCODES)[number];

/** Verbs that can fail: those that make or move something. What a program ends always ends. */
export const FAULT_VERBS = [
  'openDevice',
  'queryDevice',
  'queryPort',
  'allocPD',
  'allocBuffer',
  'regMR',
  'allocMW',
  'createCompChannel',
  'createCQ',
  'createSRQ',
  'modifySRQ',
  'createQP',
  'modifyQP',
  'queryQP',
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
export type FaultVerb = (typeof FAULT_VERBS)[number];

/** Where in the daemon a fault has its occasions, and the fields that it can be narrowed by there. */
export const FAULT_PLACES = {
  /** What passes a connection: an FPDU or startup frame that leaves, a read from the socket. */
  octets: ['device', 'qp', 'peer', 'opcode', 'direction'],
  /** A direction of a connection that has carried enough octets. */
  direction: ['device', 'qp', 'peer', 'direction'],
  /** An FPDU that leaves. */
  fpdu: ['device', 'qp', 'peer', 'opcode'],
  /** An MPA Reply that leaves. */
  reply: ['device', 'peer'],
  /** An MPA Request that came. */
  request: ['device', 'peer'],
  /** A startup frame with depths that leaves. */
  depths: ['device', 'peer', 'opcode'],
  /** A completion that is written. */
  completion: ['device', 'qp'],
  /** A completion queue that was armed and has something to tell. */
  notification: ['device'],
  /** A receive that is taken from a shared receive queue. */
  receive: ['device'],
  /** A verb that a program calls. */
  verb: ['device', 'pid', 'verb'],
  /** None: it happens at once. With `nth`, `every`, `probability` or `opcode`: FPDUs that leave. */
  event: ['device', 'qp', 'peer', 'opcode'],
} as const satisfies Readonly<Record<string, readonly (keyof FaultScope)[]>>;
export type FaultPlace = keyof typeof FAULT_PLACES;

interface KindEntry {
  readonly place: FaultPlace;
  readonly summary: string;
  /** Parameters that it needs, and those that it may have. */
  readonly needs?: readonly (keyof FaultParameters)[];
  readonly takes?: readonly (keyof FaultParameters)[];
}

/** Kinds of faults. */
export const FAULT_KINDS = {
  delay: { place: 'octets', needs: ['ms'], summary: 'Octets pass, later' },
  bandwidth: {
    place: 'octets',
    needs: ['bytesPerSecond'],
    summary: 'Octets pass slowly, each connection and direction by itself',
  },
  slice: { place: 'octets', needs: ['bytes'], summary: 'Octets pass in small pieces' },
  stall: {
    place: 'octets',
    takes: ['ms'],
    summary: 'Nothing passes, for a time or until the fault is removed',
  },
  reset: {
    place: 'direction',
    takes: ['afterBytes'],
    summary: 'TCP is reset (RST) after so many octets',
  },
  close: {
    place: 'direction',
    takes: ['afterBytes'],
    summary: 'TCP ends (FIN) after so many octets, be it within an FPDU',
  },
  'corrupt-crc': { place: 'fpdu', summary: 'An FPDU leaves with a wrong CRC' },
  'corrupt-marker': {
    place: 'fpdu',
    summary: 'A marker within an FPDU points elsewhere; the CRC is right',
  },
  'corrupt-length': {
    place: 'fpdu',
    summary: 'ULPDU_Length is 4 too small, so that the peer looks for the CRC where it is not',
  },
  'corrupt-stag': {
    place: 'fpdu',
    summary: 'A tagged segment or Read Request names an STag that is none; the CRC is right',
  },
  'corrupt-msn': {
    place: 'fpdu',
    summary: 'An untagged segment has an MSN far out of range; the CRC is right',
  },
  'corrupt-mo': {
    place: 'fpdu',
    summary: 'An untagged segment has an MO beyond its buffer; the CRC is right',
  },
  terminate: {
    place: 'fpdu',
    summary: 'Behind an FPDU the device sends a Terminate, as for an error of its own',
  },
  'mpa-silent': { place: 'reply', summary: 'The MPA Reply does not leave' },
  'mpa-late': { place: 'reply', needs: ['ms'], summary: 'The MPA Reply leaves late' },
  'mpa-reject': { place: 'request', summary: 'The MPA Reply rejects, and no program is asked' },
  'mpa-depths': {
    place: 'depths',
    takes: ['ird', 'ord'],
    summary: 'A startup frame tells a smaller IRD or ORD than there is',
  },
  'cq-overrun': {
    place: 'completion',
    summary: 'A completion is lost as if its queue were full, with its asynchronous event',
  },
  'completion-event-lost': {
    place: 'notification',
    summary: 'An armed completion queue fires, and nobody is told',
  },
  'completion-event-late': {
    place: 'notification',
    needs: ['ms'],
    summary: 'An armed completion queue fires, and it is told late',
  },
  'srq-limit': {
    place: 'receive',
    summary: 'The limit event of a shared receive queue, whatever its limit is',
  },
  'port-down': {
    place: 'event',
    summary: 'The port goes down, and up again when the fault is removed',
  },
  'port-up': { place: 'event', summary: 'The event that the port is active, unasked' },
  'qp-fatal': {
    place: 'event',
    summary: 'Queue pairs fail: their state is ERR, their connections are reset',
  },
  'device-fatal': {
    place: 'event',
    summary: 'The device fails, and all of its queue pairs with it',
  },
  errno: { place: 'verb', needs: ['errno'], summary: 'A verb fails' },
} as const satisfies Readonly<Record<string, KindEntry>>;
export type FaultKind = keyof typeof FAULT_KINDS;

/** The entry of a kind, all fields there. */
export function faultKind(kind: FaultKind): Required<KindEntry> {
  const entry: KindEntry = FAULT_KINDS[kind];
  return { needs: [], takes: [], ...entry };
}

/** The fields of `FaultParameters`. */
export const FAULT_PARAMETERS = [
  'ms',
  'bytesPerSecond',
  'bytes',
  'afterBytes',
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

/** A fault of kind `event` happens at once, unless its spec names occasions. */
export function happensAtOnce(spec: FaultSpec): boolean {
  if (FAULT_KINDS[spec.kind].place !== 'event') return false;
  return (
    spec.nth === undefined &&
    spec.every === undefined &&
    spec.probability === undefined &&
    spec.opcode === undefined
  );
}
