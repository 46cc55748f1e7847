/** Connection ids on the RoCE devices of a host, on simulated time. */
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType, QPState, QPType } from '#contract/verbs/enums';
import { type HostCmEvent, type HostId, PortSpace } from '#daemon/host/host-id';
import type { RoceNetwork } from '#daemon/host/roce/roce-network';
import { MASKS } from './program-steps.ts';
import { type RoceEnd, RoceWorld } from './roce-host.ts';

/** Default address of listeners: at the second device. */
export const AT = { address: '127.0.0.3', port: 7471 };
/** Parameters of both ends. */
export const WISHES: CMParameters = {
  privateData: Uint8Array.of(1, 2, 3),
  initiatorDepth: 4,
  responderResources: 6,
  wire: undefined,
};

/** A world whose events are kept. */
export class CmWorld extends RoceWorld {
  readonly events: HostCmEvent[] = [];

  constructor(devices = 2, roce?: RoceNetwork) {
    super(devices, roce);
    this.host.onCmEvent = (_id, event) => this.events.push(event);
  }

  get cm() {
    return this.host.cm;
  }

  get types(): CMEventType[] {
    return this.events.map(({ type }) => type);
  }

  take(type: CMEventType): HostCmEvent {
    this.run();
    const event = this.events.shift();
    if (event?.type !== type) {
      throw new Error(`event ${event?.type ?? 'none'} (${event?.text ?? ''}) instead of ${type}`);
    }
    return event;
  }

  listener(address = AT.address, portSpace: number = PortSpace.tcp): HostId {
    const id = this.cm.createId('listener', portSpace, portSpace === PortSpace.udp);
    this.cm.bindAddr(id, { address, port: AT.port });
    this.cm.listen(id, 4);
    return id;
  }

  resolved(to = AT, portSpace: number = PortSpace.tcp): HostId {
    const id = this.cm.createId('dialer', portSpace, portSpace === PortSpace.udp);
    this.cm.resolveAddr(id, to, { address: '127.0.0.2', port: 0 });
    this.take(CMEventType.addrResolved);
    this.cm.resolveRoute(id);
    this.take(CMEventType.routeResolved);
    return id;
  }

  /** An end whose queue pair is in INIT, as that of a connection id is. */
  initialised(device: number, type: QPType = QPType.rc): RoceEnd {
    const end = this.end(device, type);
    end.modify(QPState.INIT, MASKS[type][0], { accessFlags: 0 });
    return end;
  }

  /** Two ends, connected by the host. */
  connected(): { active: RoceEnd; passive: RoceEnd; dialer: HostId; acceptor: HostId } {
    this.listener();
    const active = this.initialised(0);
    const passive = this.initialised(1);
    const dialer = this.resolved();
    this.cm.connect(dialer, active.qp, WISHES);
    const { id: acceptor } = this.take(CMEventType.connectRequest);
    this.cm.accept(acceptor, passive.qp, { ...WISHES, privateData: Uint8Array.of(9) });
    for (let end = 0; end < 2; end += 1) this.take(CMEventType.established);
    return { active, passive, dialer, acceptor };
  }
}
