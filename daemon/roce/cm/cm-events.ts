/** Events of the communication manager, and what it wants done. */
import type { CmConnection } from './cm-connection.ts';
import type { CmListener } from './cm-listener.ts';
import type { CmPath } from './cm-path.ts';
import type { CmPeerFacts, CmService } from './cm-types.ts';

/** Something happened to a connection, or to a listener. */
export type CmEvent =
  /** A REQ came: accept or reject `connection`. */
  | {
      readonly type: 'request';
      readonly connection: CmConnection;
      readonly listener: CmListener;
      readonly request: CmPeerFacts;
    }
  /** A SIDR REQ came: answer `connection` by `answerService`. */
  | {
      readonly type: 'service-request';
      readonly connection: CmConnection;
      readonly listener: CmListener;
      readonly privateData: Uint8Array;
    }
  /** A REP came: move the queue pair, then `establish` or `reject`. */
  | {
      readonly type: 'reply';
      readonly connection: CmConnection;
      readonly reply: CmPeerFacts;
    }
  /** A SIDR REP came. Nothing else will happen. */
  | {
      readonly type: 'service-reply';
      readonly connection: CmConnection;
      readonly service: CmService;
    }
  /** The peer has sent the RTU, or data. */
  | { readonly type: 'established'; readonly connection: CmConnection }
  /** A REJ came. `reason` is one of `RejectReason` or another of IBTA table 106. */
  | {
      readonly type: 'rejected';
      readonly connection: CmConnection;
      readonly reason: number;
      readonly privateData: Uint8Array;
    }
  /** No answer came, however often a message was sent. */
  | { readonly type: 'unreachable'; readonly connection: CmConnection }
  /** A DREQ came: stop the queue pair, then `disconnect`, which answers it. */
  | { readonly type: 'disconnect-requested'; readonly connection: CmConnection }
  /** The peer has answered our DREQ, or never will. */
  | {
      readonly type: 'disconnected';
      readonly connection: CmConnection;
      readonly timedOut: boolean;
    }
  /** No packet of the connection is on its way any more: its queue pair may be used again. */
  | { readonly type: 'timewait-exit'; readonly connection: CmConnection };

/** Actions of the manager; poll them until undefined after every input. */
export type CmEffect =
  /** Send the MAD from QP 1 of `path.port` to QP 1 of the port that has `path.dgid`. */
  | { readonly type: 'send'; readonly path: CmPath; readonly mad: Uint8Array }
  | { readonly type: 'event'; readonly event: CmEvent };
