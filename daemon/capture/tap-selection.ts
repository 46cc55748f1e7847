/** The links, work and refusals that a filter selects. */
import type { TappedPacket } from '#contract/protocol/packet-records';
import type { Refusal } from '#contract/protocol/refusals';
import type {
  LinkQueuePairs,
  QueuePairName,
  TapFilter,
  TapLinkEnds,
} from '#contract/protocol/tap-records';
import type { LinkAddresses } from './capture-tap.ts';
import { sctpEnds } from './sctp-trace.ts';
import { udpEnds } from './udp-header.ts';

/**
 * Maximum queue pairs remembered when work is selected by links. One forgotten after this many others
 * was most likely destroyed long ago; if not, its work is no longer reported.
 */
const PAIRS_MAX = 65_536;

export class TapSelection {
  readonly #filter: TapFilter;
  readonly #ends: ReadonlySet<string> | undefined;
  readonly #qps: ReadonlySet<number> | undefined;
  /** Queue pairs of the reported links, oldest first. */
  readonly #linked = new Set<string>();

  constructor(filter: TapFilter) {
    this.#filter = filter;
    // A connection between two devices of the daemon may be reported from either end.
    const ends = filter.links?.flatMap((link) => [keyOf(link), keyOf(mirrored(link))]);
    this.#ends = ends === undefined ? undefined : new Set(ends);
    this.#qps = filter.qps === undefined ? undefined : new Set(filter.qps);
  }

  /** True if links are selected by their ends: work is then selected by their queue pairs. */
  get byEnds(): boolean {
    const { address, port, links } = this.#filter;
    return address !== undefined || port !== undefined || links !== undefined;
  }

  /** Undefined if it depends on a queue pair that the link does not have yet. */
  wantsLink(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined {
    if (!this.#hasEnds(addresses)) return false;
    if (this.#filter.device === undefined && this.#qps === undefined) return true;
    const { us, peer } = pairs;
    const found = [us, peer].some((pair) => pair !== undefined && this.#hasPair(pair));
    return found ? true : undefined;
  }

  /** Packets match by either end, like links. */
  wantsPacket({ sender, receiver, bytes }: TappedPacket): boolean {
    const found = [sender, receiver].some((pair) => pair !== undefined && this.#hasPair(pair));
    if (!found || !this.byEnds) return found;
    // Connections are identified by SCTP's ports, whatever the UDP ports are.
    const sctp = sctpEnds(bytes, 0);
    const ends = sctp ?? udpEnds(bytes, 0);
    // RoCE connections have no ports of their own.
    if (ends === undefined || (sctp === undefined && this.#ends !== undefined)) return false;
    const { sourceAddress, destinationAddress, sourcePort, destinationPort } = ends;
    return this.#hasEnds({
      localAddress: sourceAddress,
      localPort: sourcePort,
      remoteAddress: destinationAddress,
      remotePort: destinationPort,
    });
  }

  /** Records the queue pairs of a selected link: their work is selected, too. */
  noteLink({ us, peer }: LinkQueuePairs): void {
    if (!this.byEnds) return;
    for (const pair of [us, peer]) if (pair !== undefined) this.#linked.add(nameOf(pair));
    for (const oldest of this.#linked) {
      if (this.#linked.size <= PAIRS_MAX) break;
      this.#linked.delete(oldest);
    }
  }

  wantsWork(device: string, qpn: number): boolean {
    const pair = { device, qpn };
    return this.#hasPair(pair) && (!this.byEnds || this.#linked.has(nameOf(pair)));
  }

  /** A refusal that concerns no queue pair matches only by its device. */
  wantsRefusal({ device, objects }: Pick<Refusal, 'device' | 'objects'>): boolean {
    const qpn = objects?.['qp'];
    if (device !== undefined && qpn !== undefined) return this.wantsWork(device, qpn);
    if (this.#qps !== undefined || this.byEnds) return false;
    return this.#filter.device === undefined || this.#filter.device === device;
  }

  #hasEnds({ localAddress, localPort, remoteAddress, remotePort }: TapLinkEnds): boolean {
    const { address, port } = this.#filter;
    const ends = { localAddress: plain(localAddress), remoteAddress: plain(remoteAddress) };
    if (address !== undefined && !Object.values(ends).includes(plain(address))) return false;
    if (port !== undefined && port !== localPort && port !== remotePort) return false;
    return this.#ends?.has(keyOf({ ...ends, localPort, remotePort })) ?? true;
  }

  #hasPair({ device, qpn }: QueuePairName): boolean {
    const { device: wanted } = this.#filter;
    return (wanted === undefined || wanted === device) && (this.#qps?.has(qpn) ?? true);
  }
}

function nameOf({ device, qpn }: QueuePairName): string {
  return `${device} ${qpn}`;
}

function mirrored(link: TapLinkEnds): TapLinkEnds {
  const { localAddress, localPort, remoteAddress, remotePort } = link;
  return {
    localAddress: remoteAddress,
    localPort: remotePort,
    remoteAddress: localAddress,
    remotePort: localPort,
  };
}

/** IPv4 addresses in IPv4 notation, even for an IPv6 socket. */
function plain(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '').split('%')[0] ?? address;
}

function keyOf({ localAddress, localPort, remoteAddress, remotePort }: TapLinkEnds): string {
  return `${plain(localAddress)} ${localPort} ${plain(remoteAddress)} ${remotePort}`;
}
