/**
 * A connection id of a host, as `rdma_create_id` makes it, on either wire.
 *
 * An id may use either wire until an address determines its device; a listener on a wildcard address uses
 * both. Only `HostCm` changes an id.
 */
import type { DeviceTransport } from '#contract/verbs/attributes';
import type { IdState } from '#contract/verbs/id-lifecycle';
import type { SocketAddress } from '#contract/verbs/provider';
import type { CmEvent } from '../iwarp/cm/cm-host.ts';
import type { CmId, IdAccount } from '../iwarp/cm/cm-id.ts';
import type { CmEndFacts } from '../roce/cm/cm-types.ts';
import type { RoceId } from './roce/roce-id.ts';

/** Port spaces (`RDMA_PS_*`): the upper bits of InfiniBand's service ids. */
export const PortSpace = { ipoib: 0x0002, tcp: 0x0106, udp: 0x0111, ib: 0x013f } as const;

/** Parameters of connect or accept for a queue pair whose state the program manages. */
export interface ProgramParameters extends CmEndFacts {
  /** At most 56 bytes to connect, 196 to accept; for datagrams 180 and 136. EINVAL for more. */
  readonly privateData: Uint8Array;
  /** Values above 7 count as 7. */
  readonly retryCount: number;
  /** To accept datagrams: the queue pair's Q_Key; 0 for that of rdma_cm. */
  readonly qkey: number;
}

/** Fields that only events of InfiniBand have. */
export interface IbEventFacts
  extends Pick<ProgramParameters, 'flowControl' | 'retryCount' | 'rnrRetry' | 'srq'> {
  /**
   * Reason of the REJ if rejected, status of the SIDR REP if unreachable. Otherwise 0, as when `error` says it all.
   */
  readonly status: number;
  /** The peer's queue pair; 0 if the message has none. */
  readonly qpn: number;
  /** Datagrams: the peer's Q_Key. Its address is in `RoceId.path`. */
  readonly qkey: number;
}

/** An event of an id. On InfiniBand private data has a fixed length, padded with zeros. */
export interface HostCmEvent extends CmEvent<HostId> {
  /** Undefined on iWARP. */
  readonly ib?: IbEventFacts | undefined;
}

export class HostId {
  /** Unique among the ids of a host. */
  readonly number: number;
  /** Owner of the id, for routing events. The id of a connect request starts with its listener's. */
  tag: unknown;
  readonly portSpace: number;
  /** True for an id of datagrams, which no iWARP device supports. */
  readonly datagram: boolean;
  /** The program has chosen a port, not 0. */
  namedPort = false;
  /** RDMA_OPTION_ID_TOS and RDMA_OPTION_ID_ACK_TIMEOUT; for RoCE only. */
  typeOfService = 0;
  ackTimeout: number | undefined;
  /** RDMA_OPTION_ID_AFONLY; undefined unless the program has set it. */
  afOnly: boolean | undefined;
  /** The id in iWARP's manager; undefined once only RoCE has the id. */
  iwarp: CmId | undefined;
  /** The id's RoCE part; undefined once only iWARP has the id, and until it is needed. */
  roce: RoceId | undefined;

  /** The user of its program: the same value for the same user. */
  user: number | object | undefined;

  #reuseAddress = false;
  #refusalPatienceMs = 0;
  #account: IdAccount | undefined;

  constructor(number: number, tag: unknown, portSpace: number, datagram: boolean) {
    this.number = number;
    this.tag = tag;
    this.portSpace = portSpace;
    this.datagram = datagram;
  }

  /** The wire, once an address has determined it. */
  get transport(): DeviceTransport | undefined {
    if (this.iwarp?.device !== undefined) return 'iwarp';
    return this.roce?.device === undefined ? undefined : 'roce';
  }

  /** Name of the device, once an address has determined it. */
  get device(): string | undefined {
    return this.iwarp?.device ?? this.roce?.device;
  }

  get localAddress(): SocketAddress | undefined {
    return this.iwarp?.localAddress ?? this.roce?.localAddress;
  }

  get peerAddress(): SocketAddress | undefined {
    return this.iwarp?.peerAddress ?? this.roce?.peerAddress;
  }

  get state(): IdState {
    return this.iwarp?.state ?? this.roce?.state ?? 'idle';
  }

  get reuseAddress(): boolean {
    return this.#reuseAddress;
  }

  set reuseAddress(reuse: boolean) {
    this.#reuseAddress = reuse;
    if (this.iwarp !== undefined) this.iwarp.reuseAddress = reuse;
  }

  /** How long to retry while nothing listens at the destination, in milliseconds. */
  get refusalPatienceMs(): number {
    return this.#refusalPatienceMs;
  }

  set refusalPatienceMs(milliseconds: number) {
    this.#refusalPatienceMs = milliseconds;
    if (this.iwarp !== undefined) this.iwarp.refusalPatienceMs = milliseconds;
  }

  /** See `CmId`; iWARP only. */
  set portKeeper(keeper: object | undefined) {
    if (this.iwarp !== undefined) this.iwarp.portKeeper = keeper;
  }

  /** See `CmId`; iWARP only. */
  set program(program: object | undefined) {
    if (this.iwarp !== undefined) this.iwarp.program = program;
  }

  get account(): IdAccount | undefined {
    return this.#account;
  }

  set account(account: IdAccount | undefined) {
    this.#account = account;
    if (this.iwarp !== undefined) this.iwarp.account = account;
  }

  /** True for the id of a connect request. */
  get passive(): boolean {
    const endpoint = this.iwarp?.endpoint;
    return endpoint === undefined ? this.roce?.passive === true : endpoint.role === 'responder';
  }
}
