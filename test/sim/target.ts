/** A party's messages, and the memory that its peer writes to. */
import { holdsPartly, isBlank } from './pattern.ts';
import { must } from './rules.ts';
import type { Area } from './sim-memory.ts';

/** A Send or Immediate Data in flight: what the receiver must see. */
export interface Message {
  /** Offset in the pattern. */
  readonly offset: number;
  readonly lengthBytes: number;
  readonly immediate: bigint | undefined;
  readonly invalidates: number | undefined;
  /** Number of Writes that the same party posted before it. */
  readonly writesBefore: number;
  /** Posted after a disconnect. */
  readonly late: boolean;
}

/** A Write in flight. */
export interface WriteRecord {
  readonly area: Area;
  readonly at: number;
  readonly offset: number;
  readonly lengthBytes: number;
  /** Completed with success. */
  done: boolean;
}

/** Memory that peers write to. Each Write has its own stripe: Writes may be placed in any order. */
export class Target {
  readonly area: Area;
  readonly address: number;
  rkey: number;
  cursor = 0;
  readonly writes: WriteRecord[] = [];

  constructor(area: Area, rkey: number) {
    this.area = area;
    this.address = area.address;
    this.rkey = rkey;
  }

  get room(): number {
    return this.area.bytes.length - this.cursor;
  }

  /** Allocates a stripe for a Write of the pattern from `offset`. */
  take(lengthBytes: number, offset: number): WriteRecord {
    const write = { area: this.area, at: this.cursor, offset, lengthBytes, done: false };
    this.cursor += lengthBytes;
    this.writes.push(write);
    return write;
  }

  /** Checks that it holds only written bytes. */
  check(rule: 'payload' | 'window'): void {
    const { bytes } = this.area;
    for (const { at, offset, lengthBytes } of this.writes) {
      must(holdsPartly(bytes, at, offset, lengthBytes), rule, 'a Write left other bytes');
    }
    must(isBlank(bytes, this.cursor, bytes.length), rule, 'bytes outside every Write changed');
  }
}
