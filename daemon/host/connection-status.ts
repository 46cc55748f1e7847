/** Connections as `status` shows them, on either wire. */
import type { PhaseCount } from '#contract/protocol/control';
import type { SocketAddress } from '#contract/verbs/provider';
import type { EndpointPhase } from '../iwarp/cm/endpoint.ts';
import type { CmConnection } from '../roce/cm/cm-connection.ts';
import type { HostId } from './host-id.ts';

/** A connection as `status` shows it. */
export interface ConnectionStatus {
  readonly device: string;
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  readonly role: 'initiator' | 'responder';
  readonly phase: EndpointPhase;
  /** Its queue pair, if any. */
  readonly qpNum: number | undefined;
}

/** Counts connections by device and phase. */
export class ConnectionCounts {
  readonly #byDevice = new Map<string, Map<EndpointPhase, number>>();

  add(device: string, phase: EndpointPhase): void {
    let phases = this.#byDevice.get(device);
    if (phases === undefined) {
      phases = new Map();
      this.#byDevice.set(device, phases);
    }
    phases.set(phase, (phases.get(phase) ?? 0) + 1);
  }

  all(): PhaseCount[] {
    return [...this.#byDevice].flatMap(([device, phases]) => {
      return [...phases].map(([phase, count]) => ({ device, phase, count }));
    });
  }
}

/** Filters connections before their status is made: there may be many. */
export type ConnectionChoice = (device: string, qpNum: number | undefined) => boolean;

/** InfiniBand's states as iWARP's phases. */
const PHASES: Readonly<Record<CmConnection['state'], EndpointPhase>> = {
  'req-sent': 'initiating',
  'mra-req-rcvd': 'initiating',
  'sidr-req-sent': 'initiating',
  'req-rcvd': 'requested',
  'sidr-req-rcvd': 'requested',
  'rep-sent': 'accepting',
  'mra-rep-rcvd': 'accepting',
  'rep-rcvd': 'accepting',
  established: 'established',
  'dreq-sent': 'closing',
  'dreq-rcvd': 'closing',
  timewait: 'leaving',
  idle: 'over',
};

/** The connection of a RoCE device's id; undefined if it has none or the filter excludes it. */
export function roceConnection(
  { device, roce }: HostId,
  wants: ConnectionChoice,
): ConnectionStatus | undefined {
  const connection = roce?.connection;
  const { localAddress: local, peerAddress: remote } = roce ?? {};
  if (device === undefined || connection === undefined || !local || !remote) return undefined;
  const phase = PHASES[connection.state];
  const qpNum = connection.local?.qpn;
  if (phase === 'over' || !wants(device, qpNum)) return undefined;
  const role = connection.role === 'active' ? 'initiator' : 'responder';
  return { device, local, remote, role, phase, qpNum };
}
