/** A connection id of a program, as rdma_cm sees it: the manager's id and the kernel's bookkeeping. */
import { CMEventType } from '../../../verbs-api/contract/enums.ts';
import { ERRNO, isVerbsError } from '../../../verbs-api/contract/errors.ts';
import type { CmId } from '../../cm/cm-id.ts';
import type { CmEvent } from '../../cm/cm-types.ts';
import { EventSink } from '../verbs/event-router.ts';
import { emitCmEvent } from './cm-abi.ts';
import type { CmFile } from './cm-file.ts';
import { Family, type IbAddress } from './cm-sockaddr.ts';

/** Port spaces (`RDMA_PS_*`). */
export const PortSpace = { ipoib: 0x0002, tcp: 0x0106, udp: 0x0111, ib: 0x013f } as const;

/** QP types (`IBV_QPT_*`) that a port space implies. */
export const CmQpType = { rc: 2, ud: 4 } as const;

/** An event that waits for the program. */
export interface CmRecord {
  readonly octets: Uint8Array;
  /** On a connect request: the new id, which the program does not know yet. */
  readonly child: CmContext | undefined;
}

const NO_OCTETS = new Uint8Array(0);

/** The program had this private data with the connect request. */
function isPassiveStart({ type, id: { state } }: CmEvent): boolean {
  if (type !== CMEventType.established || state.kind !== 'connection') return false;
  return state.endpoint.role === 'responder';
}

/** See the module's comment. */
export class CmContext extends EventSink {
  readonly number: number;
  readonly id: CmId;
  readonly portSpace: number;
  readonly qpType: number;
  /** The open file that gets its events. */
  file: CmFile;
  /** The program's name for it; 0 for a new passive id until it is accepted. */
  uid: bigint;
  /** Of its addresses, as the program gave them. */
  family: Family = Family.none;
  /** An id of the InfiniBand port space that was bound to an address of that kind. */
  ibAddress: IbAddress | undefined;
  /** False for a new passive id until its connect request is delivered. */
  known: boolean;
  /** Events delivered, a connect request counting for the listener. */
  eventsReported = 0;
  /** Events that came, delivered or not. */
  eventsRaised = 0;

  constructor(parts: {
    number: number;
    id: CmId;
    file: CmFile;
    uid: bigint;
    portSpace: number;
    qpType: number;
    known: boolean;
  }) {
    super();
    this.number = parts.number;
    this.id = parts.id;
    this.file = parts.file;
    this.uid = parts.uid;
    this.portSpace = parts.portSpace;
    this.qpType = parts.qpType;
    this.known = parts.known;
  }

  /** Queues an event. One of a passive id that was not accepted yet is left out, as in the kernel. */
  override handleCmEvent(event: CmEvent): void {
    if (event.type === CMEventType.connectRequest) {
      this.#handleRequest(event);
      return;
    }
    this.eventsRaised += 1;
    if (this.uid === 0n) return;
    this.file.queueEvent(this, { octets: this.#record(event, this.number), child: undefined });
  }

  /** A connect request that finds no room for its id is rejected. */
  #handleRequest(event: CmEvent): void {
    try {
      const child = this.file.addChild(this, event.id);
      this.file.queueEvent(this, { octets: this.#record(event, child.number), child });
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      event.id.tag = undefined;
      this.file.host.cm.destroy(event.id);
    }
  }

  #record(event: CmEvent, number: number): Uint8Array {
    return emitCmEvent({
      uid: this.uid,
      number,
      type: event.type,
      status: event.error === undefined ? 0 : -ERRNO[event.error].number,
      privateData: isPassiveStart(event) ? NO_OCTETS : event.privateData,
      responderResources: event.responderResources ?? 0,
      initiatorDepth: event.initiatorDepth ?? 0,
    });
  }
}
