/**
 * A ring in memory that a client shares with the device, seen from the device.
 *
 * The client is not trusted. A field is read once, into a variable, before it is checked; the
 * flags octet alone is accessed with Atomics, since it alone hands an element over.
 */
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { QueueFlag } from '../../verbs-api/contract/queue-layout.ts';

/** Takes elements of `elementBytes` octets in order. Numbers in the ring are little endian. */
export class ElementRing {
  readonly octets: Uint8Array;
  readonly view: DataView;
  readonly count: number;
  private readonly elementBytes: number;
  private readonly flagsOffset: number;
  private readonly mask: number;
  /** Runs free, modulo 2^32. */
  private head = 0;
  /** Octet position of the next element. */
  position = 0;

  /** `count` is a power of two; the ring starts at `start` in `octets`. */
  constructor(
    octets: Uint8Array,
    start: number,
    count: number,
    elementBytes: number,
    flagsOffset: number,
  ) {
    this.octets = octets.subarray(start, start + count * elementBytes);
    this.view = new DataView(octets.buffer, octets.byteOffset + start, count * elementBytes);
    this.count = count;
    this.elementBytes = elementBytes;
    this.flagsOffset = flagsOffset;
    this.mask = count - 1;
  }

  /** Free-running index of the next element. */
  get index(): number {
    return this.head;
  }

  /** True when the next element is VALID. Its body may be read until `release`. */
  ready(): boolean {
    return (Atomics.load(this.octets, this.position + this.flagsOffset) & QueueFlag.valid) !== 0;
  }

  /** True when the element `distance` behind the next one is VALID. */
  readyAt(distance: number): boolean {
    const slot = (this.head + distance) & this.mask;
    const flags = Atomics.load(this.octets, slot * this.elementBytes + this.flagsOffset);
    return (flags & QueueFlag.valid) !== 0;
  }

  /** Hands the element back to the client and goes on to the next one. */
  release(): void {
    Atomics.store(this.octets, this.position + this.flagsOffset, 0);
    this.head = (this.head + 1) >>> 0;
    this.position = (this.head & this.mask) * this.elementBytes;
  }

  /** Elements that are VALID without a gap, at most `count`. */
  readyCount(): number {
    let distance = 0;
    while (distance < this.count && this.readyAt(distance)) distance += 1;
    return distance;
  }
}

/** Asks for ring memory and checks what came: large enough, and aligned for 64-bit fields. */
export function requestRing(source: (bytes: number) => Uint8Array, bytes: number): Uint8Array {
  const ring = source(bytes);
  if (ring.length < bytes || ring.byteOffset % 8 !== 0) {
    throw new VerbsError('EINVAL', `a ring needs ${bytes} octets, aligned to 8`);
  }
  return ring;
}
