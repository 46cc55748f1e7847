/** State of an id; the same for both wires. */
export type HostIdState =
  | 'idle'
  | 'bound'
  | 'resolved'
  | 'routed'
  | 'listening'
  /** From connect, or from the connect request, until the connection ends. */
  | 'connection'
  /** The connection failed or ended; only destroy is left. */
  | 'closed'
  | 'destroyed';
