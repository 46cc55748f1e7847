/** Events of the communication manager, and the actions that it asks for. */
import type { CmConnection } from './cm-connection.ts';
import type { CmListener } from './cm-listener.ts';
import type { CmPath } from './cm-path.ts';
import type { CmPeerFacts, CmService } from './cm-types.ts';

/** An event of a connection or of a listener. */
export type IbCmEvent =
  /** A REQ arrived: accept or reject `connection`. */
  | {
      readonly type: 'request';
      readonly connection: CmConnection;
      readonly listener: CmListener;
      readonly request: CmPeerFacts;
    }
  /** A SIDR REQ arrived: answer `connection` with `answerService`. */
  | {
      readonly type: 'service-request';
      readonly connection: CmConnection;
      readonly listener: CmListener;
      readonly privateData: Uint8Array;
    }
  /** A REP arrived: move the queue pair, then call `establish` or `reject`. */
  | {
      readonly type: 'reply';
      readonly connection: CmConnection;
      readonly reply: CmPeerFacts;
    }
  /** A SIDR REP arrived. It is the last event. */
  | {
      readonly type: 'service-reply';
      readonly connection: CmConnection;
      readonly service: CmService;
    }
  /** The peer has sent the RTU, or data. */
  | { readonly type: 'established'; readonly connection: CmConnection }
  /** A REJ arrived. `reason` is a `RejectReason` or another value of IBTA table 106. */
  | {
      readonly type: 'rejected';
      readonly connection: CmConnection;
      readonly reason: number;
      readonly privateData: Uint8Array;
    }
  /** The peer did not answer any resend. */
  | { readonly type: 'unreachable'; readonly connection: CmConnection }
  /** A DREQ arrived: stop the queue pair, then call `disconnect`, which answers it. */
  | { readonly type: 'disconnect-requested'; readonly connection: CmConnection }
  /** The peer has answered our DREQ, or all resends are used up. */
  | {
      readonly type: 'disconnected';
      readonly connection: CmConnection;
      readonly timedOut: boolean;
    }
  /** Timewait is over: no packet is in flight, and the queue pair may be reused. */
  | { readonly type: 'timewait-exit'; readonly connection: CmConnection };

/** Actions of the manager. Poll until undefined after every input. */
export type IbCmEffect =
  /** Send the MAD from QP 1 of `path.port` to QP 1 of the port that has `path.dgid`. */
  | { readonly type: 'send'; readonly path: CmPath; readonly mad: Uint8Array }
  | { readonly type: 'event'; readonly event: IbCmEvent };
