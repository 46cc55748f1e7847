/**
 * A lower layer such as another package might add: MPA over TCP with every byte inverted. Import it before
 * modules that read the kinds of devices.
 */
import type { Delivery, Transmit } from '#base/transmit';
import { type DeviceLowerLayer, LOWER_LAYERS } from '#contract/verbs/attributes';
import { DEVICE_KINDS } from '#daemon/host/device-kinds';
import type { Dial, Link } from '#daemon/host/links/link';
import { LinkAround } from '#daemon/host/links/link-around';
import type { LinkPort, Network } from '#daemon/host/links/network';
import type { CarrierModule, CarrierOptions } from '#daemon/host/stream-carrier';
import { TcpCarrier } from '#daemon/host/tcp-carrier';

/** Its name, which is not in the product's type. */
export const TOY = 'toy' as DeviceLowerLayer;

function inverted(bytes: Uint8Array): Uint8Array {
  return bytes.map((byte) => ~byte);
}

class ToyLink extends LinkAround {
  readonly lowerLayer = TOY;

  override get faithful(): boolean {
    return false;
  }

  override write(transmit: Transmit): number {
    return super.write({ ...transmit, bytes: inverted(transmit.bytes) });
  }

  override handleBytes(bytes: Uint8Array, delivery?: Delivery): void {
    super.handleBytes(inverted(bytes), delivery);
  }
}

class ToyNetwork implements Network {
  readonly #inner: Network;
  readonly #addresses: ReadonlySet<string>;

  constructor({ inner, devices }: CarrierOptions) {
    this.#inner = inner;
    const own = devices.filter(({ cmDevice }) => cmDevice.lowerLayer === TOY);
    this.#addresses = new Set(own.flatMap(({ cmDevice }) => cmDevice.addresses));
  }

  sourceAddress(destination: string, source: string | undefined): string {
    return this.#inner.sourceAddress(destination, source);
  }

  hold(...where: Parameters<Network['hold']>): LinkPort {
    return new ToyPort(this.#inner.hold(...where), (link) => {
      return this.#addresses.has(link.localAddress) ? new ToyLink(link) : link;
    });
  }
}

class ToyPort implements LinkPort {
  readonly #inner: LinkPort;
  readonly #around: (link: Link) => Link;

  constructor(inner: LinkPort, around: (link: Link) => Link) {
    this.#inner = inner;
    this.#around = around;
  }

  get address(): string {
    return this.#inner.address;
  }

  get port(): number {
    return this.#inner.port;
  }

  get listens(): boolean {
    return this.#inner.listens;
  }

  get taken(): boolean {
    return this.#inner.taken === true;
  }

  listen(onLink: (link: Link) => void, onError: (error: Error) => void): void {
    this.#inner.listen((link) => onLink(this.#around(link)), onError);
  }

  suspend(): void {
    this.#inner.suspend();
  }

  dial(...[remote, onConnected, ...rest]: Parameters<LinkPort['dial']>): Dial {
    return this.#inner.dial(remote, (link) => onConnected(this.#around(link)), ...rest);
  }

  release(): void {
    this.#inner.release();
  }
}

class ToyCarrier extends TcpCarrier {
  override readonly lowerLayer = TOY;

  constructor(options: CarrierOptions) {
    super({ ...options, inner: new ToyNetwork(options) });
  }
}

const toyCarrier: CarrierModule = { lowerLayer: TOY, make: (options) => new ToyCarrier(options) };

(LOWER_LAYERS as DeviceLowerLayer[]).push(TOY);
DEVICE_KINDS.push({
  name: 'toy',
  choice: { lowerLayer: TOY },
  needsAddresses: true,
  faultTargets: ['connection', 'bytes'],
  lacks: (target, device = 'every device') => `${target}, which ${device} lacks`,
  load: () => Promise.resolve(toyCarrier),
});
